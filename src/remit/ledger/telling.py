"""What an export tells of each entry."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.ledger.content import NO_STEP, StoredValue
from remit.ledger.entry import entry_id
from remit.ledger.reader import Reader, decode_record
from remit.ledger.record import commitments_in
from remit.ledger.store import EntryRow, Store

__all__ = ["Teller"]


class Teller:
    """Tells of each entry what its record commits to and no entry before it told.

    Content and message steps are numbered in the order in which entries first show them, so
    what is new is what has a greater number than anything told: memory stays flat.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = Reader(store)
        self._told_content = 0
        self._told_step = 0

    def lines(self, rows: list[EntryRow]) -> Iterator[dict[str, Any]]:
        """One object for each of ``rows``, which follow those told before."""
        contents, shown = self._contents(rows[0].seq, rows[-1].seq)
        steps = self._steps(rows[0].seq, rows[-1].seq)
        missing: dict[int, list[str]] = {}
        for row in rows:
            record = decode_record(row)
            items = commitments_in([record["metadata"], record["reason"]])
            missing[row.seq] = [
                mac
                for item in items
                if "$content" in item and (mac := item["$content"][12:]) not in shown[row.seq]
            ]
        gone = {mac for macs in missing.values() for mac in macs}
        gone.update(step["commitment"] for told in steps.values() for step in told if step["gone"])
        erased = self._reader.erasures(gone) if gone else {}
        for row in rows:
            told = contents[row.seq]
            told.extend(
                {"commitment": mac, "erased": entry_id(erased[mac])}
                for mac in dict.fromkeys(missing[row.seq])
                if mac in erased
            )
            for step in steps[row.seq]:
                if step.pop("gone") and step["commitment"] in erased:
                    step["erased"] = entry_id(erased[step["commitment"]])
            yield {
                "seq": row.seq,
                "entry_hash": row.entry_hash,
                "record": row.record.decode(),
                "contents": told,
                "steps": steps[row.seq],
            }

    def _contents(
        self, first: int, last: int
    ) -> tuple[dict[int, list[dict[str, Any]]], dict[int, set[str]]]:
        """By entry: new values whole, and the commitments of all that it shows by value."""
        told: dict[int, list[dict[str, Any]]] = defaultdict(list)
        shown: dict[int, set[str]] = defaultdict(set)
        subjects: dict[int, list[str]] = defaultdict(list)
        for content_id, subject_id in self._store.select(
            "SELECT DISTINCT o.content_id, o.subject_id FROM shown_contents AS s "
            "JOIN content_subjects AS o ON o.content_id = s.content_id "
            "WHERE s.seq BETWEEN ? AND ? ORDER BY o.content_id, o.subject_id",
            (first, last),
        ):
            subjects[content_id].append(subject_id)
        for seq, content_id, commitment, nonce, codec, value in self._store.select(
            "SELECT s.seq, c.content_id, c.commitment, c.nonce, c.codec, c.value "
            "FROM shown_contents AS s JOIN contents AS c ON c.content_id = s.content_id "
            "WHERE s.seq BETWEEN ? AND ? ORDER BY s.seq, c.content_id",
            (first, last),
        ):
            shown[seq].add(commitment)
            if content_id <= self._told_content:
                continue
            self._told_content = content_id
            item = {
                "commitment": commitment,
                "nonce": base64.b64encode(nonce).decode(),
                "jcs": canonical_json(StoredValue(codec, value).decode()).decode(),
            }
            if content_id in subjects:
                item["subjects"] = subjects[content_id]
            told[seq].append(item)
        return told, shown

    def _steps(self, first: int, last: int) -> dict[int, list[dict[str, Any]]]:
        """By entry: the message steps that are new with it, oldest first."""
        ends = self._store.select(
            "SELECT seq, step_id FROM shown_lists WHERE seq BETWEEN ? AND ? ORDER BY seq, step_id",
            (first, last),
        )
        told: dict[int, list[dict[str, Any]]] = defaultdict(list)
        greatest = max((step_id for _, step_id in ends), default=0)
        fresh = {
            row[0]: row
            for row in self._store.select(
                "SELECT s.step_id, s.step, s.parent_id, s.commitment, s.content_id, p.step "
                "FROM message_steps AS s LEFT JOIN message_steps AS p ON p.step_id = s.parent_id "
                "WHERE s.step_id > ? AND s.step_id <= ?",
                (self._told_step, greatest),
            )
        }
        for seq, end in ends:
            chain: list[dict[str, Any]] = []
            row = fresh.pop(end, None)
            while row is not None:
                chain.append(
                    {"step": row[1], "parent": row[5] or NO_STEP, "commitment": row[3],
                     "gone": row[4] is None}
                )  # fmt: skip
                row = fresh.pop(row[2], None)
            told[seq].extend(reversed(chain))
        self._told_step = max(self._told_step, greatest)
        return told
