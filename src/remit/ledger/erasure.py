"""Lawful erasure: content and nonce go, records, chain and proofs stay (SPEC 3.4)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger.content import StoredValue
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import ErasureError
from remit.ledger.reader import chunks, marks
from remit.ledger.record import is_plain_text
from remit.ledger.search import TextIndex
from remit.ledger.store import Store, Transaction

__all__ = ["Eraser", "ErasureReport", "erasure_digest", "is_erasure_of"]

Run = Callable[[Callable[[Transaction], Any]], Any]


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure did, or with ``dry_run`` would do.

    Attributes:
        erasure_id: the ``ERASURE`` entry; empty when nothing was erased.
        values: how many content values are gone.
        entries: how many entries showed one of them first.
        sessions: of which sessions.
        remainder: what could not be done at once, and how it can be; empty when all was.
    """

    erasure_id: str
    values: int
    entries: int
    sessions: list[str]
    remainder: str = ""


def erasure_digest(commitments: list[str]) -> str:
    """What an ``ERASURE`` entry says of the values it erased: SHA-256 over their commitments.

    The commitments (64 hex digits each) are sorted and concatenated.
    """
    return hashlib.sha256("".join(sorted(commitments)).encode()).hexdigest()


def is_erasure_of(record: dict[str, Any], commitments: list[str]) -> bool:
    """Whether a parsed record is an ``ERASURE`` of exactly these values."""
    metadata = record["metadata"]
    return bool(
        record["event_type"] == "ERASURE"
        and metadata.get("erased_count") == len(commitments)
        and metadata.get("erased_hash") == erasure_digest(commitments)
    )


# A manifest too long for a record is content; without it nobody could tell what is installed.
_KEPT_EVENTS = ("INSTALLED",)


class Eraser:
    """Erases content of one ledger.

    Args:
        store: of the ledger.
        run: commits a call in one transaction.
        contained_from: an erased text of at least as many characters is also looked for inside
            the other values of its session, which go with it.
    """

    def __init__(self, store: Store, run: Run, *, contained_from: int) -> None:
        self._store = store
        self._run = run
        self._contained_from = contained_from
        self._index = TextIndex(store, run)

    def erase(
        self,
        *,
        entry_seq: int | None = None,
        session_id: str | None = None,
        subject_id: str | None = None,
        reason: str,
        requested_by: str,
        dry_run: bool = False,
    ) -> ErasureReport:
        """Erase by entry, by session or by subject: exactly one is given.

        Raises:
            ErasureError: there is no content to erase.
            InvalidInputError: none or several were given, or no reason.
        """
        given = {"entry": entry_seq, "session": session_id, "subject": subject_id}
        kinds = [name for name, value in given.items() if value is not None]
        if len(kinds) != 1:
            raise InvalidInputError("Name one of: an entry, a session, a subject.")
        for name, value in given.items():
            if name != "entry" and value is not None and not is_plain_text(value):
                raise InvalidInputError(f"The {name} is not a text that can be on record.")
        if not reason.strip():
            raise InvalidInputError(
                "An erasure needs a reason.",
                next_step="It stays on record: name the request, not the person.",
            )

        def target(tx: Transaction) -> set[int]:
            if session_id is not None:
                rows = tx.execute(
                    "SELECT content_id FROM contents WHERE scope = ?", (f"s:{session_id}",)
                )
            elif subject_id is not None:
                rows = tx.execute(
                    "SELECT content_id FROM content_subjects WHERE subject_id = ?", (subject_id,)
                )
            else:
                return self._shown_by(tx, entry_seq or 0)
            return {int(row[0]) for row in rows}

        if entry_seq is not None:
            self._check_may_go(entry_seq)
        what: dict[str, Any] = {"target": kinds[0]}
        if session_id is not None:
            what["erased_session_id"] = session_id
        elif entry_seq is not None:
            what["erased_entry_id"] = f"LED-{entry_seq:08x}"
        return self._do(
            target, what, reason, requested_by, widen=session_id is None, dry_run=dry_run
        )

    def _check_may_go(self, seq: int) -> None:
        rows = self._store.select("SELECT event_type FROM entries WHERE seq = ?", (seq,))
        if rows and rows[0][0] in _KEPT_EVENTS:
            raise ErasureError(
                f"LED-{seq:08x} tells what was installed, and the registries follow from it.",
                next_step="Remove the package instead.",
            )

    def retain(
        self, days_by_event: dict[str, float], *, requested_by: str, dry_run: bool = False
    ) -> list[ErasureReport]:
        """Erase what is older than its class of event may be kept; an ``ERASURE`` per class.

        A value is as old as the entry that first showed it, and belongs to that entry's class.

        Args:
            days_by_event: days by event type; ``*`` stands for every other.

        Raises:
            InvalidInputError: an event type is named from which follows what is installed.
        """
        now = datetime.now(UTC)
        reports = []
        if kept := sorted(set(_KEPT_EVENTS) & set(days_by_event)):
            raise InvalidInputError(
                f"{kept[0]} cannot be kept for a time only: what is installed follows from it."
            )
        named = [*_KEPT_EVENTS, *(name for name in days_by_event if name != "*")]
        for event_type, days in days_by_event.items():
            limit = (now - timedelta(days=days)).isoformat(timespec="microseconds")[:-6] + "Z"
            if event_type == "*":
                condition = f"e.event_type NOT IN ({marks(named)})"
                parameters: tuple[Any, ...] = (limit, *named)
            else:
                condition, parameters = "e.event_type = ?", (limit, event_type)

            def target(
                tx: Transaction, condition: str = condition, parameters: Any = parameters
            ) -> set[int]:
                rows = tx.execute(
                    "SELECT c.content_id FROM contents AS c JOIN entries AS e ON e.seq = "
                    "(SELECT min(s.seq) FROM shown_contents AS s WHERE s.content_id = "
                    f"c.content_id) WHERE e.timestamp < ? AND {condition}",
                    parameters,
                )
                return {int(row[0]) for row in rows}

            what = {"target": "retention", "erased_event_type": event_type, "retention_days": days}
            try:
                reports.append(
                    self._do(
                        target,
                        what,
                        f"Retention of {event_type}: {days:g} days",
                        requested_by,
                        widen=False,
                        dry_run=dry_run,
                    )
                )
            except ErasureError:
                continue
        return reports

    def _do(
        self,
        target: Callable[[Transaction], set[int]],
        what: dict[str, Any],
        reason: str,
        requested_by: str,
        *,
        widen: bool,
        dry_run: bool,
    ) -> ErasureReport:
        def call(tx: Transaction) -> ErasureReport:
            ids = target(tx)
            if widen:
                ids |= self._containing(tx, ids)
            if not ids:
                raise ErasureError(
                    "There is no content to erase there.",
                    next_step="It may be erased already: `remit ledger query --event-type ERASURE`",
                )
            return self._erase(tx, sorted(ids), what, reason, requested_by, dry_run)

        report: ErasureReport = self._run(call)
        if dry_run:
            return report
        remainder = self._store.compact()
        return ErasureReport(
            report.erasure_id, report.values, report.entries, report.sessions, remainder
        )

    def _erase(
        self,
        tx: Any,
        ids: list[int],
        what: dict[str, Any],
        reason: str,
        requested_by: str,
        dry_run: bool,
    ) -> ErasureReport:
        commitments: list[str] = []
        scopes: set[str] = set()
        seqs: set[int] = set()
        for chunk in chunks(ids):
            for commitment, scope in tx.execute(
                f"SELECT commitment, scope FROM contents WHERE content_id IN ({marks(chunk)})",
                chunk,
            ):
                commitments.append(str(commitment))
                scopes.add(str(scope))
            seqs.update(
                row[0]
                for row in tx.execute(
                    "SELECT min(seq) FROM shown_contents "
                    f"WHERE content_id IN ({marks(chunk)}) GROUP BY content_id",
                    chunk,
                )
            )
        sessions = sorted(scope[2:] for scope in scopes if scope.startswith("s:"))
        if dry_run:
            return ErasureReport("", len(commitments), len(seqs), sessions)
        erasure_id = tx.append(
            LedgerEntry(
                event_type="ERASURE",
                submission_id=requested_by,
                decision="ERASED",
                reason=reason,
                metadata={
                    **what,
                    "requested_by": requested_by,
                    "erased_count": len(commitments),
                    "erased_hash": erasure_digest(commitments),
                },
            )
        )
        seq = int(erasure_id[4:], 16)
        self._index.forget(tx, ids)
        for commitment_chunk in chunks(commitments, 200):
            tx.execute(
                f"INSERT INTO erasures VALUES {', '.join(['(?, ?)'] * len(commitment_chunk))}",
                [part for commitment in commitment_chunk for part in (commitment, seq)],
            )
        for chunk in chunks(ids):
            inside = f"WHERE content_id IN ({marks(chunk)})"
            tx.execute(f"DELETE FROM shown_contents {inside}", chunk)
            tx.execute(f"DELETE FROM content_subjects {inside}", chunk)
            tx.execute(f"UPDATE message_steps SET content_id = NULL {inside}", chunk)
            tx.execute(f"DELETE FROM contents {inside}", chunk)
        self._index.lower_mark(tx)
        tx.forget()
        return ErasureReport(erasure_id, len(commitments), len(seqs), sessions)

    def _shown_by(self, tx: Transaction, seq: int) -> set[int]:
        """Everything that an entry shows: its values, and every message of its lists."""
        if not tx.execute("SELECT 1 FROM entries WHERE seq = ?", (seq,)):
            raise ErasureError(
                f"There is no entry LED-{seq:08x}.",
                next_step="`remit ledger tail` shows the latest.",
            )
        rows = tx.execute(
            "SELECT content_id FROM shown_contents WHERE seq = ?",
            (seq,),
        )
        ids = {int(row[0]) for row in rows}
        steps = tx.execute("SELECT step_id FROM shown_lists WHERE seq = ?", (seq,))
        while steps:
            found = tx.execute(
                "SELECT parent_id, content_id FROM message_steps WHERE step_id = ?", steps.pop()
            )
            for parent_id, content_id in found:
                if content_id is not None:
                    ids.add(int(content_id))
                if parent_id:
                    steps.append((parent_id,))
        return ids

    def _containing(self, tx: Transaction, ids: set[int]) -> set[int]:
        """Values of the same scopes that hold one of the texts to be erased."""
        texts_by_scope: dict[str, set[str]] = {}
        for chunk in chunks(sorted(ids)):
            for scope, codec, value in tx.execute(
                f"SELECT scope, codec, value FROM contents WHERE content_id IN ({marks(chunk)})",
                chunk,
            ):
                texts = texts_by_scope.setdefault(str(scope), set())
                for text in _texts(StoredValue(codec, value).decode()):
                    if len(text) >= self._contained_from:
                        texts.add(text)
        found = set()
        for scope, texts in texts_by_scope.items():
            if not texts:
                continue
            for content_id, codec, value in tx.execute(
                "SELECT content_id, codec, value FROM contents WHERE scope = ?", (scope,)
            ):
                if content_id in ids:
                    continue
                candidates = list(_texts(StoredValue(codec, value).decode()))
                if any(text in candidate for candidate in candidates for text in texts):
                    found.add(int(content_id))
        return found


def _texts(value: Any) -> Iterable[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
