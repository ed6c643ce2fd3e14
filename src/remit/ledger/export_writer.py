"""The lines of exports: each has the content and steps that no line before had."""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from remit.ledger.archived_ranges import Places
from remit.ledger.contents import NO_STEP, StoredValue, commitments_in, is_canonical, is_given_exact
from remit.ledger.entry import entry_id
from remit.ledger.entry_reader import EntryRow, as_bytes, decode_record, marks
from remit.ledger.errors import LedgerFormatError
from remit.ledger.store import Store

_PAGE = 300


_Items = list[dict[str, Any]]
Line = tuple[EntryRow, dict[str, Any], _Items, _Items]
"""An entry's row, its parsed record, its new content items, and its new message steps."""


def lines_of(store: Store, seqs: Iterable[int]) -> Iterator[Line]:
    """Yield the lines of the entries at ``seqs``, in ledger order.

    A line is the entry's row, its parsed record, its new content items sorted by commitment, and
    its new message steps in the order of the record's lists. A value or step that an earlier line
    had is left out. An erased value is an item with its ``ERASURE`` entry, in every line whose
    record names it.

    Args:
        store: the store of the ledger. Entries are read in pages of 300.
        seqs: sequence numbers in ascending order.

    Raises:
        LedgerFormatError: an entry is not there, or a record or value cannot be read.
        LedgerError: the ledger cannot be read.
    """
    lines = _Lines(store)
    wanted = iter(seqs)
    while page := list(itertools.islice(wanted, _PAGE)):
        yield from lines.of(page)


class _Lines:
    def __init__(self, store: Store) -> None:
        self._store = store
        ((contents, steps),) = store.select(
            "SELECT (SELECT max(content_id) FROM contents), "
            "(SELECT max(step_id) FROM message_steps)"
        )
        self._contents = Places((contents or 0) + 1)  # values that a line has had
        self._steps = Places((steps or 0) + 1)

    def of(self, seqs: list[int]) -> Iterator[Line]:
        """Yield the next lines."""
        rows = [
            EntryRow(seq, entry_hash, as_bytes(record))
            for seq, entry_hash, record in self._store.select(
                f"SELECT seq, entry_hash, {self._store.record_sql} FROM entries "
                f"WHERE seq IN ({marks(seqs)}) ORDER BY seq",
                seqs,
            )
        ]
        if len(rows) != len(seqs):
            missing = next(iter(set(seqs) - {row.seq for row in rows}))
            raise LedgerFormatError(
                f"Entry {missing} is not there.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        records = {row.seq: decode_record(row) for row in rows}
        named = {
            seq: commitments_in([record["metadata"], record["reason"]])
            for seq, record in records.items()
        }
        shown, contents = self._new_contents(seqs, named)
        steps = self._new_steps(seqs, named)
        _note_erased(self._store, named, shown, contents, steps)
        for row in rows:
            items = sorted(contents[row.seq], key=lambda item: str(item["commitment"]))
            yield row, records[row.seq], items, steps[row.seq]

    def _new_contents(
        self, seqs: list[int], named: Mapping[int, list[dict[str, Any]]]
    ) -> tuple[dict[int, set[str]], dict[int, list[dict[str, Any]]]]:
        """Return by entry the commitments of its values, and its new values."""
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
            encoded = stored.encoded()
            canonical = not stored.is_exact or is_canonical(encoded)
            item = {
                "commitment": commitment,
                "nonce": base64.b64encode(nonce).decode(),
                "json" if is_given_exact(commitment, named[seq], canonical) else "jcs":
                    encoded.decode(),
            }  # fmt: skip
            if content_id in subjects:
                item["subjects"] = subjects[content_id]
            new[seq].append(item)
        return shown, new

    def _new_steps(
        self, seqs: list[int], named: Mapping[int, list[dict[str, Any]]]
    ) -> dict[int, list[dict[str, Any]]]:
        """Return by entry its new message steps, in the order of the record's lists."""
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        ends: dict[int, list[int]] = defaultdict(list)
        for seq, step_id in self._store.select(
            f"SELECT seq, step_id FROM shown_lists WHERE seq IN ({marks(seqs)})", seqs
        ):
            if step_id not in self._steps:
                ends[seq].append(step_id)
        by_id = self._read_steps({step_id for ids in ends.values() for step_id in ids})
        for seq in sorted(ends):
            places = [item.get("$messages") for item in named[seq]]
            for end in sorted(ends[seq], key=lambda one: places.index(by_id[one][0])):
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
        """Return steps by id, up to the steps of earlier lines."""
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


def _note_erased(
    store: Store,
    named: Mapping[int, list[dict[str, Any]]],
    shown: Mapping[int, set[str]],
    contents: dict[int, list[dict[str, Any]]],
    steps: Mapping[int, list[dict[str, Any]]],
) -> None:
    """Have lines name the erasure of each value that is gone.

    Args:
        store: has the erasures.
        named: the commitments of the records, by entry.
        shown: the commitments of the values that are there, by entry.
        contents: of the lines; gets ``commitment`` and ``erased`` of values that entries name.
        steps: of the lines, each with ``gone``, which is taken out; ``erased`` is put in.
    """
    missing: dict[int, list[str]] = {}
    for seq, items in named.items():
        macs = [item["$content"][12:] for item in items if "$content" in item]
        missing[seq] = [mac for mac in dict.fromkeys(macs) if mac not in shown[seq]]
    gone = {mac for macs in missing.values() for mac in macs}
    gone.update(step["commitment"] for new in steps.values() for step in new if step["gone"])
    erased = store.erasures(gone) if gone else {}
    for seq in named:
        contents[seq].extend(
            {"commitment": mac, "erased": entry_id(erased[mac])}
            for mac in missing[seq]
            if mac in erased
        )
        for step in steps[seq]:
            if step.pop("gone") and step["commitment"] in erased:
                step["erased"] = entry_id(erased[step["commitment"]])
