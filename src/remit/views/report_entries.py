"""The entries of a report: which are shown where, what of each record, and their proofs."""

from __future__ import annotations

import base64
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remit.ledger import LedgerClient, LedgerEntry, is_authentic, parse_entry_id
from remit.views.report_sums import CALLS, at
from remit.views.wording import shown_value

__all__ = ["SECTIONS", "ReportEntries", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report that lists entries.

    Attributes:
        name: its anchor.
        title: for people.
        part: the heading that it stands under.
        events: the event types that it lists.
        is_bounded: whether it lists only the latest of each type.
        about: a sentence for people.
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
            about="Prices of tools, and what programs charged themselves."),
    Section("rejected", "Requests refused before anything was sent", "refused",
            ("PROMPT_REJECTED", "BUDGET_WARNING"), is_bounded=True,
            about="BUDGET_WARNING is a call that went out over its limit, in the mode warn."),
    Section("denied", "Tool calls that a person refused", "refused", ("APPROVAL_DENIED",)),
    Section("granted", "Tool calls that a person let go on", "refused",
            ("APPROVAL_GRANTED", "APPROVAL_SIGNED", "APPROVAL_DELEGATED")),
    Section("packages", "Packages", "changed", ("INSTALLED", "REMOVED")),
    Section("keys", "Keys and their roles", "changed", ("KEY_CREATED", "KEY_REVOKED")),
    Section("budgets", "Budgets", "changed", ("BUDGET_ALLOCATED",), is_bounded=True,
            about="RESET is a new window of a limit, no change of it."),
    Section("settings", "Settings, prices, trust and waivers", "changed", ("CONFIG_CHANGED",)),
    Section("pins", "Tools of MCP servers", "changed", ("TOOL_PINNED",)),
    Section("learning", "Learning: proposals, and what was decided", "changed",
            ("SIGNAL_PROPOSED", "SIGNAL_ADOPTED", "SIGNAL_REJECTED", "SIGNAL_ROLLED_BACK")),
    Section("erasures", "Erasures", "changed", ("ERASURE",),
            about="The content is gone; the records that committed to it still verify."),
)  # fmt: skip
"""What a report lists of its range, in its order."""

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
    "tiers", "expires", "rotated", "changed", "requested_by",
)  # fmt: skip
_KEYS: dict[str, tuple[str, ...]] = {
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
    "SIGNAL_ADOPTED": _DECIDED,
    "SIGNAL_REJECTED": _DECIDED,
    "SIGNAL_ROLLED_BACK": (*_DECIDED, "erasure_id"),
    "ERASURE": (
        "target", "erased_entry_id", "erased_session_id", "erased_event_type", "retention_days",
        "erased_count", "requested_by",
    ),
    "GATE_PASSED": ("gate", "by"),
    "GATE_FAILED": ("gate", "by", "errors"),
}  # fmt: skip
"""Of each event type, what of its metadata is shown."""

_NO_REASON = frozenset({"EXCHANGE", "BUDGET_DEBIT"})  # it says what the rest says


class ReportEntries:
    """Entries with proofs under one checkpoint.

    Args:
        ledger: the record.
        size: entries under the checkpoint; later ones are left out.
        since: first instant, inclusive; ``None``: from the beginning.
        until: last instant, exclusive; ``None``: to the end.
        most: how many of each type the sections list that are bounded.
    """

    def __init__(
        self, ledger: LedgerClient, size: int, since: str | None, until: str | None, most: int
    ) -> None:
        self._ledger = ledger
        self._size = size
        self._since, self._until = since, until
        self._most = most
        self._prove: Callable[[int], list[bytes]] = ledger.checkpoints.inclusions(size)

    def of(self, section: Section) -> Iterator[dict[str, Any]]:
        """The entries of a section, in ledger order, each made when it is asked for."""
        each = [self._latest(event) if section.is_bounded else self._all(event)
                for event in section.events]  # fmt: skip
        return map(self._row, heapq.merge(*each, key=_seq))

    def named(self, entry_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Entries by id, as far as the checkpoint covers them, in ledger order."""
        ids = sorted({one for one in entry_ids if (parse_entry_id(one) or 0) < self._size})
        return (self._row(self._ledger.read(one, with_content=False)) for one in ids)

    def between(self, event: str) -> Iterator[LedgerEntry]:
        """All entries of a type in the range, the latest first, without content."""
        return self._ledger.query(
            event_type=event, since=self._since, until=self._until, after=self._size,
            order="desc", with_content=False,
        )  # fmt: skip

    def _latest(self, event: str) -> list[LedgerEntry]:
        return list(itertools.islice(self.between(event), self._most))[::-1]

    def _all(self, event: str) -> Iterator[LedgerEntry]:
        found = self._ledger.query(
            event_type=event, since=self._since, until=self._until, with_content=False
        )
        return itertools.takewhile(lambda entry: _seq(entry) < self._size, found)

    def _row(self, entry: LedgerEntry) -> dict[str, Any]:
        data = self._ledger.read_record(entry.id)
        record = orjson.loads(data)
        names = _KEYS.get(entry.event_type, ())
        pointers = [f"/metadata/{name}" for name in names]
        pointers += [] if entry.event_type in _NO_REASON else ["/reason"]
        if entry.event_type in ("PROMPT_REJECTED", "BUDGET_WARNING"):
            pointers.append("/metadata/error_message")
        return {
            "entry_id": entry.id,
            "timestamp": entry.timestamp,
            "event_type": entry.event_type,
            "decision": entry.decision,
            "shown": _shown(record, pointers),
            "counts": is_authentic(entry),
            "seq": record["seq"],
            "entry_hash": entry.entry_hash,
            "record": data.decode(),
            "proof": [base64.b64encode(item).decode() for item in self._prove(record["seq"])],
        }


def _shown(record: dict[str, Any], pointers: Sequence[str]) -> dict[str, str]:
    """Values by pointer, without those that say nothing."""
    found = ((pointer, at(record, pointer)) for pointer in pointers)
    return {
        pointer: shown_value(value) for pointer, value in found if value not in (None, "", [], {})
    }


def _seq(entry: LedgerEntry) -> int:
    return parse_entry_id(entry.id) or 0
