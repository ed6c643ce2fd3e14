"""The entries that a report lists: their sections, the values shown of each, and their proofs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remit.ledger import LedgerClient, LedgerEntry, entry_id, is_authentic, parse_entry_id
from remit.views.report_sums import CALLS, at
from remit.views.wording import shown_value

_BATCH = 200  # records read by one statement


@dataclass(frozen=True, slots=True)
class Section:
    """A list of entries in a report.

    Attributes:
        name: the anchor in the page.
        title: the heading.
        part: the part of the page that holds the list.
        events: the event types that are listed.
        is_bounded: True if a long range lists only the latest entries of each type.
        about: an explanation below the heading.
    """

    name: str
    title: str
    part: str
    events: tuple[str, ...]
    is_bounded: bool = False
    about: str = ""


SECTIONS = (
    Section("calls", "Calls to models", "ran", CALLS, is_bounded=True),
    Section("debits", "Charged outside the gateway", "cost", ("BUDGET_DEBIT",), is_bounded=True,
            about="Prices of tools, and charges that programs made themselves."),
    Section("rejected", "Requests refused before anything was sent", "refused",
            ("PROMPT_REJECTED", "BUDGET_WARNING"), is_bounded=True,
            about="BUDGET_WARNING: in the mode warn, a call over its limit was sent all the same."),
    Section("denied", "Tool calls that a person denied", "refused", ("APPROVAL_DENIED",)),
    Section("granted", "Tool calls that a person approved", "refused",
            ("APPROVAL_GRANTED", "APPROVAL_SIGNED", "APPROVAL_DELEGATED")),
    Section("packages", "Packages", "changed", ("INSTALLED", "REMOVED")),
    Section("keys", "Keys and their roles", "changed", ("KEY_CREATED", "KEY_REVOKED")),
    Section("budgets", "Budgets", "changed", ("BUDGET_ALLOCATED",), is_bounded=True,
            about="RESET: a new window of an unchanged limit began."),
    Section("settings", "Settings, prices, trust and waivers", "changed", ("CONFIG_CHANGED",)),
    Section("pins", "Tools of MCP servers", "changed", ("TOOL_PINNED",)),
    Section("learning", "Learning: proposals and decisions", "changed",
            ("SIGNAL_PROPOSED", "SIGNAL_CANARY", "SIGNAL_ADOPTED", "SIGNAL_REJECTED",
             "SIGNAL_ROLLED_BACK")),
    Section("erasures", "Erasures", "changed", ("ERASURE",),
            about="The content was deleted. The records that committed to it still verify."),
    Section("archives", "Archives", "changed", ("ARCHIVED",),
            about="The entries were moved to a segment. Their hashes stayed in the ledger."),
)  # fmt: skip
"""The lists of a report, in the order of the page."""

_CALLER = ("agent_id", "key_id", "user_id", "session_id")
_APPROVAL = (
    "tool_id", "decided_by", "person", "on_behalf_of", "decision_reason", "request_id",
    "arguments_hash", "expires", "provenance/agent_id", "provenance/session_id",
)  # fmt: skip
_DECIDED = (
    "kind", "package_id", "version", "previous_version", "policy_epoch", "by", "role",
    "decision_reason", "rolls_back", "proposal_id",
)  # fmt: skip
_KEY = (
    "key_id", "name", "role", "user_id", "team_id", "organisation_id", "models", "agents",
    "tiers", "pass_through", "pass_through_unpriced", "expires", "rotated", "changed",
    "requested_by",
)  # fmt: skip
_METADATA: dict[str, tuple[str, ...]] = {
    "EXCHANGE": (
        "model_id", "outcome", "error_code", *_CALLER, "work_order_id", "contract_id",
        "contract_version", "input_tokens", "output_tokens", "cost_usd", "cost_certainty",
        "latency_ms", "finish_reason", "dispatch_entry_id",
    ),
    "EXCHANGE_ORPHANED": (
        *_CALLER, "contract_id", "settlement", "settled_tokens", "cost_usd", "cost_certainty",
        "dispatch_entry_id",
    ),
    "BUDGET_DEBIT": ("scope", "cost_usd", "model_id", "input_tokens", "output_tokens"),
    "PROMPT_REJECTED": ("error_code", "agent_id", "session_id", "contract_id"),
    "BUDGET_WARNING": ("error_code", "agent_id", "session_id", "contract_id"),
    "APPROVAL_DENIED": _APPROVAL,
    "APPROVAL_GRANTED": _APPROVAL,
    "APPROVAL_SIGNED": _APPROVAL,
    "APPROVAL_DELEGATED": ("delegator", "delegate", "until", "decision_reason"),
    "INSTALLED": (
        "package_id", "version", "previous_version", "operation", "by", "approved_by",
        "permissions_widened", "archive_sha256",
    ),
    "REMOVED": ("package_id", "version", "by"),
    "KEY_CREATED": _KEY,
    "KEY_REVOKED": ("key_id", "name", "requested_by"),
    "BUDGET_ALLOCATED": (
        "scope", "usd_limit", "token_limit", "turn_limit", "requests_per_minute",
        "tokens_per_minute", "window", "window_end", "by",
    ),
    "CONFIG_CHANGED": (
        "by", "file", "sha256", "waiver", "settings", "prices", "distribution_version",
        "fork",
    ),
    "TOOL_PINNED": ("server", "tool_id", "definition_hash", "by"),
    "SIGNAL_PROPOSED": (
        "kind", "target", "package_id", "version", "base_version", "evidence_count", "by", "role",
        "rolls_back", "proposal_id",
    ),
    "SIGNAL_CANARY": (*_DECIDED, "share", "usd", "for_key", "task"),
    "SIGNAL_ADOPTED": _DECIDED,
    "SIGNAL_REJECTED": _DECIDED,
    "SIGNAL_ROLLED_BACK": (*_DECIDED, "erasure_id"),
    "ERASURE": (
        "target", "erased_entry_id", "erased_session_id", "erased_event_type", "retention_days",
        "erased_count", "requested_by",
    ),
    "ARCHIVED": ("first", "end", "entries", "by"),
    "GATE_PASSED": ("gate", "by"),
    "GATE_FAILED": ("gate", "by", "errors"),
}  # fmt: skip

_WITHOUT_REASON = frozenset({"EXCHANGE", "BUDGET_DEBIT"})  # the reason repeats other values
_WITH_ERROR = frozenset({"PROMPT_REJECTED", "BUDGET_WARNING"})

SHOWN = {
    event: (
        *(f"/metadata/{name}" for name in names),
        *(() if event in _WITHOUT_REASON else ("/reason",)),
        *(("/metadata/error_message",) if event in _WITH_ERROR else ()),
    )
    for event, names in _METADATA.items()
}
"""The values shown of each event type, as JSON pointers into its record."""


class ReportEntries:
    """Entries of a range of time, with proofs under a single checkpoint.

    Every method but :meth:`covered` reads the ledger and raises LedgerError if that fails.
    :meth:`row` and :meth:`covered` look only at ``size``, not at the range. Tree hashes are cached
    between the proofs of neighbours.

    Args:
        ledger: the ledger.
        size: entries under the checkpoint; later entries are left out.
        since: first instant, inclusive, as text in the form of entries (:func:`instant`), since
            texts are compared; ``None``: from the beginning.
        until: last instant, exclusive, in the same form; ``None``: to the end.
        most: the largest number of entries of each type in a section with ``is_bounded``.
    """

    def __init__(
        self, ledger: LedgerClient, size: int, since: str | None, until: str | None, most: int
    ) -> None:
        self._ledger = ledger
        self._size = size
        self._since, self._until = since, until
        self._most = most
        self._prove: Callable[[int], list[bytes]] = ledger.checkpoints.inclusions(size)

    def seqs_of(self, section: Section) -> list[int]:
        """Return the sequence numbers of a section's entries, ascending.

        A bounded section has only the latest ``most`` entries of each type.

        Args:
            section: a section of the report.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        limits = [("timestamp >= ?", self._since), ("timestamp < ?", self._until)]
        given = [(clause, value) for clause, value in limits if value is not None]
        sql = " AND ".join(["event_type = ?", "seq < ?", *(clause for clause, _ in given)])
        sql = f"SELECT seq FROM entries WHERE {sql} ORDER BY seq DESC"
        sql += f" LIMIT {self._most}" if section.is_bounded else ""
        values = [self._size, *(value for _, value in given)]
        rows = (self._ledger.select(sql, [event, *values]) for event in section.events)
        return sorted(int(seq) for found in rows for (seq,) in found)

    def covered(self, entry_ids: Iterable[str]) -> list[int]:
        """Return the sequence numbers of the given ids that the checkpoint covers, ascending.

        Later entries and invalid ids are left out. Whether an entry exists, or lies in the range of
        time, is not checked.

        Args:
            entry_ids: ids in any order; repeated ones count once.
        """
        seqs = {parse_entry_id(one) for one in entry_ids}
        return sorted(seq for seq in seqs if seq is not None and seq < self._size)

    def between(self, event: str) -> Iterator[LedgerEntry]:
        """Yield the entries of a type in the range and under the checkpoint, latest first, without
        content.

        Args:
            event: the event type.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._ledger.query(
            event_type=event, since=self._since, until=self._until, after=self._size,
            order="desc", with_content=False,
        )  # fmt: skip

    def row(self, seq: int) -> dict[str, Any]:
        """Return an entry as data: shown values, record and proof.

        Args:
            seq: sequence number of the entry, below the checkpoint's size.

        Returns:
            ``entry_id``, ``timestamp``, ``event_type``, ``decision``, ``shown`` (texts by JSON
            pointer, empty ones left out), ``counts`` (True if an authentic writer made the entry),
            ``seq``, ``entry_hash`` (hex), ``record`` (canonical text) and ``proof``, a list of tree
            hashes in base64.

        Raises:
            EntryNotFoundError: there is no such entry; EntryArchivedError if it is in a segment
                that is not attached.
            TlogError: the checkpoint does not cover the entry.
            LedgerFormatError: tree hashes or leaves are missing.
            ValueError: the record is damaged.
        """
        data = self._ledger.read_record(entry_id(seq))
        record = orjson.loads(data)
        entry = LedgerEntry(record["event_type"], "", "", "", metadata=record["metadata"])
        return {
            "entry_id": record["id"],
            "timestamp": record["timestamp"],
            "event_type": record["event_type"],
            "decision": record["decision"],
            "shown": _shown(record, SHOWN.get(record["event_type"], ("/reason",))),
            "counts": is_authentic(entry),
            "seq": seq,
            "entry_hash": hashlib.sha256(data).hexdigest(),
            "record": data.decode(),
            "proof": [base64.b64encode(item).decode() for item in self._prove(seq)],
        }


def read_records(ledger: LedgerClient, seqs: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield sequence number and canonical record of entries, in the order of ``seqs``.

    A missing entry is left out. Bytes of a damaged record that are not UTF-8 are replaced.

    Args:
        ledger: the ledger.
        seqs: sequence numbers, ascending.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    for start in range(0, len(seqs), _BATCH):
        batch = seqs[start : start + _BATCH]
        rows = ledger.select(
            f"SELECT seq, record FROM entries WHERE seq IN ({', '.join('?' * len(batch))}) "
            "ORDER BY seq",
            batch,
        )
        for seq, record in rows:
            # A damaged row may hold bytes: the reader's script then finds the wrong hash.
            yield seq, record if isinstance(record, str) else bytes(record).decode(errors="replace")


def _shown(record: dict[str, Any], pointers: Sequence[str]) -> dict[str, str]:
    """Return the values to show by pointer, without empty ones."""
    found = ((pointer, at(record, pointer)) for pointer in pointers)
    return {
        pointer: shown_value(value) for pointer, value in found if value not in (None, "", [], {})
    }
