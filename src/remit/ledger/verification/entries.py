"""Checks of entries, range by range, without trust in any stored byte.

The result of a range is plain data, so ranges can be checked in several processes at once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from remit.kernel.canonical import sha256_hex
from remit.ledger.archived_ranges import Places
from remit.ledger.entry import entry_id
from remit.ledger.entry_reader import GREATEST
from remit.ledger.raw_rows import RawEntry
from remit.ledger.record import (
    MAX_RECORD_BYTES,
    columns_of,
    content_scope,
    encode_record,
    inspect_record,
)
from remit.ledger.schema import COLUMNS
from remit.ledger.store import Store
from remit.ledger.subjects import commitment_in, subjects_before
from remit.ledger.table_checks import readable, reason_of
from remit.ledger.tlog import TlogError, read_tile
from remit.ledger.tlog.merkle import leaf_hash, tree_root
from remit.ledger.tlog.tiles import TILE_WIDTH
from remit.ledger.verification.contents import check_subjects, erasure_is_sound
from remit.ledger.verification.report import VerificationReport, report_gap, report_tree_hash

_PAGE = 400
_SHOWN = """
    SELECT s.seq, s.content_id, c.commitment, c.scope, c.bytes FROM shown_contents AS s
    LEFT JOIN contents AS c ON c.content_id = s.content_id WHERE s.seq"""
_LISTS = """
    SELECT l.seq, l.step_id, s.step, s.position, c.scope FROM shown_lists AS l
    LEFT JOIN message_steps AS s ON s.step_id = l.step_id
    LEFT JOIN contents AS c ON c.content_id = s.content_id WHERE l.seq"""


@dataclass(slots=True)
class EntryRange:
    """The result of checking a range of entries.

    Attributes:
        first: the first sequence number of the range.
        last: the last sequence number of the range.
        report: the problems in the range.
        first_link: ``previous_hash`` of the first record; ``None`` if it could not be read.
        last_hash: ``entry_hash`` of the last row; ``None`` if that row is missing.
        tile_roots: roots of the complete subtrees of 256 leaves.
        partial_roots: by requested tree size, the root over the leaves after its last complete
            subtree; empty bytes if there are none.
        blamed: problems of content and message steps that were reported at an entry.
        named: content ids of the values that name an entry's subject.
        waiting: number of entries that are present although they were archived, or although the
            segment does not name them.
    """

    first: int
    last: int
    report: VerificationReport
    first_link: str | None = None
    last_hash: str | None = None
    tile_roots: list[bytes] = field(default_factory=list)
    partial_roots: dict[int, bytes] = field(default_factory=dict)
    blamed: set[str] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    waiting: int = 0


def as_hash(value: Any) -> bytes:
    """Return a stored hash as bytes; empty bytes for a value of another type."""
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b""


def check_entries(
    store: Store,
    first: int,
    last: int,
    bad_contents: Mapping[int, str],
    bad_steps: Mapping[int, str],
    sizes: Collection[int],
    left: Places,
) -> EntryRange:
    """Check the entries from ``first`` (a multiple of 256) to ``last``; return the result.

    Records, links, columns, shown content, message lists, subjects and tree hashes are checked.
    Problems, errors of the database too, are in the result's report; none is raised.

    Args:
        store: the store of the ledger.
        first: the first sequence number.
        last: the last sequence number.
        bad_contents: the problem of each damaged content value, by content id.
        bad_steps: the problem of each damaged message step, by step id.
        sizes: tree sizes, from ``first`` to ``last + 1``, whose roots are needed.
        left: the entries that are elsewhere, numbered from ``first``: archived ones, or in a
            segment all that it does not contain.
    """
    found = EntryRange(first, last, VerificationReport())
    with found.report.guard(f"entries {first} to {last}"):
        _EntryChecker(store, bad_contents, bad_steps, sizes, left, found).run(first, last)
    return found


def known_entries(store: Store, first: int, last: int) -> EntryRange:
    """Return the result of a range that an earlier verification found sound.

    The last row's hash and the stored tree hashes are read. Absent entries count as archived.

    Args:
        store: the store of the ledger.
        first: sequence number of the first entry.
        last: sequence number of the last entry.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    row = store.get(last)
    ((there,),) = store.select(
        "SELECT count(*) FROM entries WHERE seq BETWEEN ? AND ?", (first, last)
    )
    return EntryRange(
        first,
        last,
        VerificationReport(entries=there, archived=last - first + 1 - there),
        last_hash=row.entry_hash if row else None,
        tile_roots=[as_hash(item) for _, item in _read_tiles(store, first, last)],
    )


_Rows = list[tuple[Any, ...]]


def _pages(store: Store, first: int, last: int) -> Iterator[tuple[list[RawEntry], _Rows, _Rows]]:
    """Yield entries page by page, with their rows of shown values and of shown lists."""
    scan = store.scan_entries(first, last)
    while rows := list(itertools.islice(scan, _PAGE)):
        window = (rows[0].seq, min(rows[-1].seq + 1, GREATEST))  # whatever numbers between
        shown = store.select(f"{_SHOWN} >= ? AND s.seq < ?", window)
        lists = store.select(f"{_LISTS} >= ? AND l.seq < ?", window)
        yield rows, shown, lists


def _read_tiles(store: Store, first: int, last: int) -> _Rows:
    """Return index and hash of the stored subtrees of 256 leaves in a range."""
    return store.select(
        "SELECT idx, hash FROM tree_hashes WHERE level = 1 AND idx >= ? AND idx < ? ORDER BY idx",
        (first // TILE_WIDTH, (last + 1) // TILE_WIDTH),
    )


@dataclass(eq=False, repr=False)
class _EntryChecker:
    _store: Store
    _bad_contents: Mapping[int, str]
    _bad_steps: Mapping[int, str]
    _sizes: Collection[int]
    _left: Places
    _found: EntryRange
    _kept_leaves: dict[int, list[bytes]] = field(
        default_factory=dict, init=False
    )  # The stored hashes of each tile.
    _absent_tiles: dict[int, bytes] = field(
        default_factory=dict, init=False
    )  # Roots of tiles without an entry in a segment.
    _sound: dict[int, bool] = field(default_factory=dict, init=False)
    _steps: dict[int, tuple[int, int | None]] = field(
        default_factory=dict, init=False
    )  # parent and content, by step id
    _last_step: int | None = field(default=None, init=False)
    _leaves: list[bytes] = field(default_factory=list, init=False)
    _subjects: dict[int, int] = field(
        default_factory=dict, init=False
    )  # The entry of each subject value, by content id.

    def __post_init__(self) -> None:
        self._sizes = frozenset(self._sizes)
        self._subjects_before = subjects_before(self._store.select)

    def run(self, first: int, last: int) -> None:
        """Check the range; add the problems to the result."""
        found, report = self._found, self._found.report
        expected = first
        previous: str | None = None
        if first in self._sizes:
            found.partial_roots[first] = b""
        self._read_leaves(first, last)
        for rows, *related in _pages(self._store, first, last):
            shown, lists = map(_by_entry, related)
            self._read_steps(rows[0].seq, lists)
            for row in rows:
                if row.seq != expected:
                    self._pass_over(expected, row.seq - 1)
                    previous = None
                try:
                    self._check(row, previous, shown.pop(row.seq, ()), lists.pop(row.seq, ()))
                except Exception as error:  # noqa: BLE001 - the next entry has to be checked
                    problem = f"the entry could not be checked: {reason_of(error)}"
                    report.add(row.seq, "unreadable", problem)
                found.waiting += row.seq - first in self._left
                leaf = leaf_hash(row.record)
                kept = self._kept_leaves.get(row.seq // TILE_WIDTH)
                if kept is not None and kept[row.seq % TILE_WIDTH] != leaf:
                    report.add(row.seq, "tree", "the stored leaf hash is not the record's")
                self._leaf(row.seq, leaf)
                expected = row.seq + 1
                stored = row.columns[1]
                previous = found.last_hash = stored if isinstance(stored, str) else ""
                report.entries += 1
            check_subjects(report, self._store, self._subjects)
            found.named.update(self._subjects)
            self._subjects.clear()
            for table, others in (("shown_contents", shown), ("shown_lists", lists)):
                for seq in others:
                    said = f"{table}: there is a row of an entry {seq}, which is not there"
                    report.add(None, "store", said)
        if expected <= last:
            self._pass_over(expected, last)
            found.last_hash = None
        stored_roots: dict[Any, Any] = dict(_read_tiles(self._store, first, last))
        for index, root in enumerate(found.tile_roots, start=first // TILE_WIDTH):
            if as_hash(stored_roots.get(index)) != root:
                report_tree_hash(report, 1, index)

    def _read_leaves(self, first: int, last: int) -> None:
        """Read the stored leaf hashes, which exist for tiles with archived entries."""
        rows = self._store.select(
            "SELECT idx, hash FROM tree_hashes WHERE level = 0 AND idx >= ? AND idx <= ?",
            (first // TILE_WIDTH, last // TILE_WIDTH),
        )
        for index, value in rows:
            try:
                self._kept_leaves[index] = read_tile(as_hash(value))
            except TlogError:
                said = f"tree_hashes: level 0, {index}: the stored value is not 256 hashes"
                self._found.report.add(None, "tree", said)
        if self._store.segment is None:
            return
        for index, root in _read_tiles(self._store, first, last):
            places = range(index * TILE_WIDTH - first, (index + 1) * TILE_WIDTH - first)
            if index not in self._kept_leaves and all(place in self._left for place in places):
                self._absent_tiles[index] = as_hash(root)

    def _pass_over(self, first: int, last: int) -> None:
        """Count absent entries that were archived; report the others as missing."""
        report, low = self._found.report, self._found.first
        missing: list[int] = []  # first and last of a run
        for seq in range(first, last + 1):
            leaves = self._kept_leaves.get(seq // TILE_WIDTH)
            if (root := self._absent_tiles.get(seq // TILE_WIDTH)) is not None:
                report.archived += 1
                if (seq + 1) % TILE_WIDTH == 0:
                    self._found.tile_roots.append(root)
                    if seq + 1 in self._sizes:
                        self._found.partial_roots[seq + 1] = b""
                continue
            if leaves is not None and seq - low in self._left:
                report.archived += 1
                self._leaf(seq, leaves[seq % TILE_WIDTH])
                continue
            # The tree cannot be computed past a gap; leaves keep their places.
            if seq - first < 2 * TILE_WIDTH:
                self._leaf(seq, b"")
            missing = [missing[0] if missing and missing[1] == seq - 1 else seq, seq]
            if seq == last or (seq + 1 - low in self._left):
                report_gap(report, *missing)

    def _leaf(self, seq: int, leaf: bytes) -> None:
        if not self._leaves and seq % TILE_WIDTH:
            return  # after a long gap
        self._leaves.append(leaf)
        size = seq + 1
        if size % TILE_WIDTH == 0:
            self._found.tile_roots.append(tree_root(self._leaves))
            self._leaves = []
        if size in self._sizes:
            self._found.partial_roots[size] = tree_root(self._leaves) if self._leaves else b""

    def _read_steps(self, first: int, lists: dict[int, list[tuple[Any, ...]]]) -> None:
        """Read the message steps that are new with a page, which have greater ids."""
        if self._last_step is None:
            rows = self._store.select(
                "SELECT step_id FROM shown_lists WHERE seq < ? ORDER BY seq DESC LIMIT 1", (first,)
            )
            self._last_step = rows[0][0] if rows else 0
        ends = [row[0] for rows in lists.values() for row in rows if row[1] is not None]
        last = max(ends, default=self._last_step)
        self._steps = {
            row[0]: (row[1], row[2])
            for row in self._store.select(
                "SELECT step_id, parent_id, content_id FROM message_steps "
                "WHERE step_id > ? AND step_id <= ?",
                (self._last_step, last),
            )
        }
        self._last_step = max(last, self._last_step)

    def _step(self, step_id: int) -> tuple[int, int | None] | None:
        if step_id not in self._steps:
            rows = self._store.select(
                "SELECT parent_id, content_id FROM message_steps WHERE step_id = ?", (step_id,)
            )
            return (rows[0][0], rows[0][1]) if rows else None
        return self._steps[step_id]

    def _check(
        self,
        row: RawEntry,
        previous: str | None,
        shown: Collection[tuple[Any, ...]],
        lists: Collection[tuple[Any, ...]],
    ) -> None:
        report, seq, data = self._found.report, row.seq, row.record
        if sha256_hex(data) != row.columns[1]:
            report.add(seq, "hash", "the record does not match entry_hash")
        try:
            record = orjson.loads(data)
            problem, items, odd = inspect_record(record)
            if problem := problem or row.problem:
                raise ValueError(problem)
            again = encode_record(record, odd)
            if again != data:
                raise ValueError("it is not in canonical form")
        except ValueError as error:
            report.add(seq, "unreadable", f"the record cannot be read: {error}")
            return
        if len(data) > MAX_RECORD_BYTES:
            report.add(seq, "field", f"the record is longer than {MAX_RECORD_BYTES:,} bytes")
        if record["seq"] != seq or record["id"] != entry_id(seq):
            report.add(seq, "field", f"the record says it is {record['id']}, seq {record['seq']}")
        if previous is None:
            if seq == self._found.first:
                self._found.first_link = record["previous_hash"]
        elif record["previous_hash"] != previous:
            report.add(seq, "link", "previous_hash is not the hash of the entry before")
        derived = columns_of(record["metadata"])
        expected = (
            record["id"],
            row.columns[1],
            record["timestamp"],
            record["event_type"],
            record["submission_id"],
            *derived,
        )
        if row.columns != expected:
            for name, stored, value in zip(COLUMNS, row.columns, expected, strict=True):
                if stored != value:
                    report.add(seq, "column", f"column {name} differs from the record")
        if items or shown or lists:
            subject = commitment_in(record["metadata"])
            if subject is not None and seq < self._subjects_before:
                report.add(seq, "content", "it names a subject, and ledger_info says it does not")
            scope = content_scope(derived.session_id, seq)
            self._check_content(seq, scope, items, subject, shown, lists)

    def _check_content(
        self,
        seq: int,
        scope: str,
        items: list[dict[str, Any]],
        subject: dict[str, Any] | None,
        shown: Collection[tuple[Any, ...]],
        lists: Collection[tuple[Any, ...]],
    ) -> None:
        report = self._found.report
        there = {row[1]: row for row in shown if row[1] is not None}
        ends = {row[1]: row for row in lists if row[1] is not None}
        for table, rows in (("contents", shown), ("message_steps", lists)):
            for name in [readable(row[0]) for row in rows if row[1] is None]:
                report.add(seq, "content", f"{table}: there is no row {name}, which is shown here")
        missing: dict[str, None] = {}
        for item in items:
            if "$messages" in item:
                self._check_list(seq, scope, item, ends)
                continue
            mac = item["$content"][12:]
            row = there.get(mac)
            if row is None:
                missing[mac] = None
            elif row[0] in self._bad_contents:
                self._blame(seq, "content", self._bad_contents[row[0]])
            elif row[3] != item["bytes"] or row[2] != (
                scope if item is not subject else content_scope(None, seq)
            ):
                said = f"contents: row {row[0]}: its scope or length is not that of the entry"
                report.add(seq, "content", said)
            elif item is subject:
                self._subjects[row[0]] = seq
        erased = self._store.erasures(missing) if missing else {}
        for mac in missing:
            if mac not in erased or not self._is_sound(erased[mac]):
                said = "shown_contents: content is missing and no ERASURE says why"
                report.add(seq, "content", said)
        if any(len({row[1] for row in rows}) < len(rows) for rows in (shown, lists)):
            said = "shown_contents or shown_lists: the entry has a value or a list twice"
            report.add(seq, "content", said)
        named = {item["$content"][12:] for item in items if "$content" in item}
        if ends.keys() != {item["$messages"] for item in items if "$messages" in item}:
            said = "shown_lists: the entry has other message lists than its record"
            report.add(seq, "messages", said)
        extra = {row[0] for mac, row in there.items() if mac not in named}
        for item in items:
            if extra and "$messages" in item and item["$messages"] in ends:
                extra -= self._messages(ends[item["$messages"]][0], extra)
        if extra:
            said = ", ".join(map(readable, sorted(extra, key=str)))
            report.add(seq, "content", f"shown_contents: the record does not name content {said}")

    def _chain(self, step_id: int) -> Iterator[tuple[int, tuple[int, int | None] | None]]:
        """Yield a message step and its parents, up to a missing parent.

        A writer makes a parent before its child, so ids fall and a damaged chain ends too.
        """
        while True:
            step = self._step(step_id)
            yield step_id, step
            if step is None or type(step[0]) is not int or not 0 < step[0] < step_id:
                return
            step_id = step[0]

    def _messages(self, step_id: int, sought: set[int]) -> set[int]:
        """Return the values in ``sought`` that are messages of a list."""
        found: set[int] = set()
        for _, step in self._chain(step_id):
            if step is not None and step[1] in sought:
                found.add(step[1])
                if found == sought:
                    break
        return found

    def _check_list(
        self, seq: int, scope: str, item: dict[str, Any], ends: dict[str, tuple[Any, ...]]
    ) -> None:
        row = ends.get(item["$messages"])
        report = self._found.report
        if row is None or row[2] != item["count"] or row[3] not in (scope, None):
            report.add(seq, "messages", "the message list is not the one committed to")
            return
        if not (self._bad_steps or self._bad_contents):
            return
        for step_id, step in self._chain(row[0]):
            problem = self._bad_steps.get(step_id)
            if step is None:
                problem = problem or f"message_steps: row {step_id} is missing"
            elif step[1] is not None and step[1] in self._bad_contents:
                problem = problem or self._bad_contents[step[1]]
            if problem:
                self._blame(seq, "messages", problem)
                return

    def _blame(self, seq: int, kind: str, problem: str) -> None:
        """Report the damage of content at an entry that shows the content."""
        self._found.blamed.add(problem)
        self._found.report.add(seq, kind, problem)

    def _is_sound(self, seq: int) -> bool:
        """Return True if an ``ERASURE`` entry accounts for exactly its erased values."""
        if seq not in self._sound:
            self._sound[seq] = erasure_is_sound(self._store, seq)
        return self._sound[seq]


def _by_entry(rows: _Rows) -> dict[int, _Rows]:
    found: dict[int, _Rows] = defaultdict(list)
    for seq, *rest in rows:
        found[seq].append(tuple(rest))
    return found
