"""The lines of entries that leave: each with the content and steps that no line before had."""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from remit.ledger.archive.files import Line
from remit.ledger.archived import Places
from remit.ledger.content import NO_STEP, StoredValue
from remit.ledger.errors import LedgerFormatError
from remit.ledger.exports import note_erased
from remit.ledger.reader import EntryRow, as_bytes, decode_record, marks
from remit.ledger.record import columns_of
from remit.ledger.store import Store

__all__ = ["lines_of"]

_PAGE = 300


def lines_of(store: Store, places: Places) -> Iterator[Line]:
    """The lines of the entries in ``places``, in ledger order.

    Raises:
        LedgerFormatError: an entry or what it shows is not there.
    """
    lines = _Lines(store, places)
    wanted = iter(places)
    while seqs := list(itertools.islice(wanted, _PAGE)):
        yield from lines.of(seqs)


class _Lines:
    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places
        ((contents, steps),) = store.select(
            "SELECT (SELECT max(content_id) FROM contents), "
            "(SELECT max(step_id) FROM message_steps)"
        )
        self._contents = Places((contents or 0) + 1)  # that a line has had
        self._steps = Places((steps or 0) + 1)
        self._since: dict[str, int] = {}  # by session, its first entry

    def of(self, seqs: list[int]) -> Iterator[Line]:
        """The next lines."""
        rows = [
            EntryRow(seq, entry_hash, as_bytes(record))
            for seq, entry_hash, record in self._store.select(
                f"SELECT seq, entry_hash, {self._store.record_sql} FROM entries "
                f"WHERE seq IN ({marks(seqs)}) ORDER BY seq",
                seqs,
            )
        ]
        if len(rows) != len(seqs):
            raise LedgerFormatError("Entries are missing.", next_step="Run `remit ledger verify`.")
        shown, contents = self._new_contents(seqs)
        steps = self._new_steps(seqs)
        decoded = {row.seq: decode_record(row) for row in rows}
        note_erased(self._store, decoded, shown, contents, steps)
        for row in rows:
            session_id = columns_of(decoded[row.seq]["metadata"]).session_id or ""
            since = self._since.setdefault(session_id, row.seq)
            new = (contents[row.seq], steps[row.seq])
            yield Line(row.seq, row.entry_hash, row.record, *new, since)

    def _new_contents(
        self, seqs: list[int]
    ) -> tuple[dict[int, set[str]], dict[int, list[dict[str, Any]]]]:
        """By entry: the commitments of all that it shows by value, and its new values."""
        shown: dict[int, set[str]] = defaultdict(set)
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        at = f"WHERE s.seq IN ({marks(seqs)})"
        subjects: dict[int, list[str]] = defaultdict(list)
        for content_id, subject_id in self._store.select(
            "SELECT DISTINCT o.content_id, o.subject_id FROM shown_contents AS s "
            f"JOIN content_subjects AS o ON o.content_id = s.content_id {at} "
            "ORDER BY o.content_id, o.subject_id",
            seqs,
        ):
            subjects[content_id].append(subject_id)
        # Shown by an entry that stays, too: the database keeps it.
        kept = {
            content_id
            for content_id, seq in self._store.select(
                "SELECT DISTINCT o.content_id, o.seq FROM shown_contents AS s "
                f"JOIN shown_contents AS o ON o.content_id = s.content_id {at}",
                seqs,
            )
            if seq not in self._places
        }
        for seq, content_id, commitment, nonce, codec, value in self._store.select(
            "SELECT s.seq, c.content_id, c.commitment, c.nonce, c.codec, c.value "
            f"FROM shown_contents AS s JOIN contents AS c ON c.content_id = s.content_id {at} "
            "ORDER BY s.seq, c.content_id",
            seqs,
        ):
            shown[seq].add(commitment)
            if content_id in self._contents:
                continue
            self._contents.add(content_id)
            stored = StoredValue(codec, value)
            item = {
                "commitment": commitment,
                "nonce": base64.b64encode(nonce).decode(),
                "json" if stored.is_exact else "jcs": stored.encoded().decode(),
            }
            if content_id in subjects:
                item["subjects"] = subjects[content_id]
            if content_id in kept:
                item["kept"] = True
            new[seq].append(item)
        return shown, new

    def _new_steps(self, seqs: list[int]) -> dict[int, list[dict[str, Any]]]:
        """By entry: its new message steps, oldest first."""
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        ends = self._store.select(
            f"SELECT seq, step_id FROM shown_lists WHERE seq IN ({marks(seqs)}) "
            "ORDER BY seq, step_id",
            seqs,
        )
        by_id = self._read_steps({step_id for _, step_id in ends if step_id not in self._steps})
        for seq, end in ends:
            chain: list[dict[str, Any]] = []
            step_id = end
            while step_id and step_id not in self._steps:
                self._steps.add(step_id)
                step, parent_id, commitment, content_id, parent = by_id[step_id]
                chain.append(
                    {"step": step, "parent": parent or NO_STEP, "commitment": commitment,
                     "gone": content_id is None}
                )  # fmt: skip
                step_id = parent_id
            new[seq].extend(reversed(chain))
        return new

    def _read_steps(self, ends: set[int]) -> dict[int, tuple[Any, ...]]:
        """Steps by id, up to those that lines had."""
        found: dict[int, tuple[Any, ...]] = {}
        wanted = ends
        while wanted:
            part = sorted(wanted)[:_PAGE]
            for step_id, *row in self._store.select(
                "SELECT s.step_id, s.step, s.parent_id, s.commitment, s.content_id, p.step "
                "FROM message_steps AS s LEFT JOIN message_steps AS p ON p.step_id = s.parent_id "
                f"WHERE s.step_id IN ({marks(part)})",
                part,
            ):
                found[step_id] = tuple(row)
            above = {found[one][1] for one in part if one in found}
            wanted = {
                one
                for one in (wanted | above) - set(part)
                if one and one not in found and one not in self._steps
            }
        return found
