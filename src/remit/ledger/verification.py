"""Is the ledger what it claims to be? Reads everything once, skips nothing (SPEC 3.3)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from remit.ledger.checking import (
    Damage,
    EntryRange,
    check_contents,
    check_entries,
    check_steps,
    erasure_is_sound,
    peaks_root,
)
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.entry import entry_id
from remit.ledger.errors import LedgerFormatError
from remit.ledger.opening import StoreAddress
from remit.ledger.reader import Reader
from remit.ledger.report import Progress, VerificationReport
from remit.ledger.store import Store
from remit.tlog import (
    TILE_WIDTH,
    NoteError,
    SignedCheckpoint,
    TlogError,
    VerifierKey,
    tree_root,
)

__all__ = ["Verifier"]

_T = TypeVar("_T")

_RANGE = 8 * TILE_WIDTH  # entries in one piece of work; also what progress is counted in
_WORTH_A_PROCESS = 20_000  # entries and contents; below, starting processes costs more


class Verifier:
    """Verifies one ledger.

    Args:
        address: where the ledger lies, for further processes to open it.
        store: the open ledger.
        key: the ledger's verifier key; without it signatures cannot be checked.
        witnesses: verifier keys of witnesses, whose cosignatures are then looked for.
    """

    def __init__(
        self,
        address: StoreAddress,
        store: Store,
        *,
        key: VerifierKey | None = None,
        witnesses: Sequence[VerifierKey] = (),
    ) -> None:
        self._address = address
        self._store = store
        self._key = key
        self._witnesses = witnesses

    def verify(
        self,
        *,
        checkpoint: str | bytes | SignedCheckpoint | None = None,
        first: int = 0,
        jobs: int = 1,
        deep: bool = True,
        progress: Progress | None = None,
    ) -> VerificationReport:
        """Check records, chain, columns, content, message lists, erasures, tree, checkpoints.

        Args:
            checkpoint: one held outside, to hold the ledger against.
            first: leave out what is before this sequence number; its stored tree hashes still
                have to lead to every checkpoint.
            jobs: processes to work with.
            deep: have the engine check its file as well.
            progress: told how far it is.
        """
        report = VerificationReport()
        try:
            self._verify(report, checkpoint, first, jobs, deep, progress)
        except LedgerFormatError as error:
            # The engine cannot go on reading: that is a failure, and says where it stopped.
            report.add(report.first_seq + report.entries, "unreadable", error.message)
        report.sort()
        return report

    def _verify(
        self,
        report: VerificationReport,
        outside: str | bytes | SignedCheckpoint | None,
        first: int,
        jobs: int,
        deep: bool,
        progress: Progress | None,
    ) -> None:
        if problem := self._store.integrity_problem(deep=deep):
            report.add(None, "store", problem)
        reader = Reader(self._store)
        # The notes first: one that comes while we read would cover entries we do not.
        notes = list(Checkpoints(self._store).notes())
        size = reader.size()
        contents, steps = (
            self._greatest("content_id", "contents"),
            self._greatest("step_id", "message_steps"),
        )
        start = min(first, size) // TILE_WIDTH * TILE_WIDTH
        report.first_seq = start
        if start:
            contents_from = self._first_shown(start, "content_id", "shown_contents", contents)
            steps_from = self._first_shown(start, "step_id", "shown_lists", steps)
        else:
            contents_from = steps_from = 1
        heads = self._heads(report, notes, outside, size)
        wanted = {head.size for head in heads if start <= head.size <= size}
        total = (contents - contents_from + 1) + (size - start)
        work = _Work(self._address, self._store, jobs if total > _WORTH_A_PROCESS else 1, progress,
                     total)  # fmt: skip
        with work:
            damage = Damage()
            for number, bad in work.run(check_contents, _pieces(contents_from, contents)):
                report.contents += number
                damage.contents.update(bad)
            for bad in work.run(check_steps, _pieces(steps_from, steps), counts=False):
                damage.steps.update(bad)
            ranges = work.run(
                check_entries,
                (
                    (low, high, damage, {item for item in wanted if low <= item <= high + 1})
                    for low, high in _pieces(start, size - 1)
                ),
            )
            roots, partials, blamed = self._join(report, reader, start, ranges)
        for content_id, problem in damage.contents.items():
            if content_id not in blamed:
                report.add(None, "content", problem)
        self._check_erasures(report, reader)
        report.erased = sum(report.erasures.values())
        self._check_upper_tree(report, roots)
        self._check_heads(report, heads, roots, partials, start, size)

    def _greatest(self, column: str, table: str) -> int:
        rows = self._store.select(f"SELECT max({column}) FROM {table}")
        return int(rows[0][0] or 0)

    def _first_shown(self, start: int, column: str, table: str, greatest: int) -> int:
        """Where in a table begins what no entry before ``start`` had shown."""
        rows = self._store.select(f"SELECT max({column}) FROM {table} WHERE seq < ?", (start,))
        return min(int(rows[0][0] or 0), greatest) + 1

    def _join(
        self, report: VerificationReport, reader: Reader, start: int, ranges: Iterable[EntryRange]
    ) -> tuple[list[bytes], dict[int, bytes], set[int]]:
        """Put ranges together: links across their borders, the tree from left to right."""
        roots = [
            bytes(row[0] or b"")
            for row in self._store.select(
                "SELECT hash FROM tree_hashes WHERE level = 1 AND idx < ? ORDER BY idx",
                (start // TILE_WIDTH,),
            )
        ]
        partials: dict[int, bytes] = {}
        blamed: set[int] = set()
        before = reader.get(start - 1) if start else None
        last_hash: str | None = before.entry_hash if before else ""
        seq = start
        for part in ranges:
            if last_hash is not None and part.first_link not in (None, last_hash):
                part.report.add(seq, "link", "previous_hash is not the hash of the entry before")
            report.merge(part.report)
            roots.extend(part.tile_roots)
            partials.update(part.partial_roots)
            blamed |= part.blamed
            last_hash = part.last_hash
            seq += _RANGE
        return roots, partials, blamed

    def _check_erasures(self, report: VerificationReport, reader: Reader) -> None:
        for (seq,) in self._store.select("SELECT DISTINCT seq FROM erasures ORDER BY seq"):
            if erasure_is_sound(reader, seq):
                report.erasures[entry_id(seq)] = len(reader.erased_under(seq))
            else:
                report.add(seq, "erasure", "no ERASURE entry accounts for what is erased here")

    def _check_upper_tree(self, report: VerificationReport, roots: list[bytes]) -> None:
        level, hashes, width = 2, roots, TILE_WIDTH
        while len(hashes) >= TILE_WIDTH:
            whole = len(hashes) - len(hashes) % TILE_WIDTH
            hashes = [
                tree_root(hashes[start : start + TILE_WIDTH])
                for start in range(0, whole, TILE_WIDTH)
            ]
            width *= TILE_WIDTH
            stored = dict(
                self._store.select("SELECT idx, hash FROM tree_hashes WHERE level = ?", (level,))
            )
            for index, item in enumerate(hashes):
                if index not in stored or bytes(stored[index] or b"") != item:
                    report.add(
                        None,
                        "tree",
                        f"the stored tree hash of entries {index * width} to "
                        f"{(index + 1) * width - 1} is not theirs",
                    )
            level += 1

    def _heads(
        self,
        report: VerificationReport,
        notes: list[tuple[int, str]],
        outside: str | bytes | SignedCheckpoint | None,
        size: int,
    ) -> list[_Head]:
        """The tree heads to hold the ledger against, greatest last; those that are no heads are
        reported."""
        heads = []
        for column, note in notes:
            try:
                signed = SignedCheckpoint.parse(note)
                if self._key is not None:
                    signed.verify(self._key)
                if signed.checkpoint.size != column:
                    raise NoteError("Its size is not that of its row.")
            except TlogError as error:
                report.add(
                    None, "checkpoint", f"the stored checkpoint of {column}: {error.message}"
                )
                report.checkpoint = "failed"
                continue
            heads.append(_Head(signed, column, signed.checkpoint.root, False))
        if outside is not None:
            try:
                if not isinstance(outside, SignedCheckpoint):
                    outside = SignedCheckpoint.parse(outside)
                if self._key is not None:
                    outside.verify(self._key)
            except TlogError as error:
                report.add(None, "checkpoint", f"the one that was handed in: {error}")
                report.checkpoint = "failed"
            else:
                head = outside.checkpoint
                heads.append(_Head(outside, head.size, head.root, True))
        return sorted(heads, key=lambda head: (head.size, head.outside))

    def _check_heads(
        self,
        report: VerificationReport,
        heads: list[_Head],
        roots: list[bytes],
        partials: dict[int, bytes],
        start: int,
        size: int,
    ) -> None:
        peaks = _Peaks()
        failed = report.checkpoint == "failed"
        holds: _Head | None = None
        for head in heads:
            where = "the checkpoint that was handed in" if head.outside else "a stored checkpoint"
            if head.size > size:
                report.add(
                    size,
                    "checkpoint",
                    f"{where} covers {head.size} entries, but there are {size}: the ledger was "
                    "cut off",
                )
                failed = True
                continue
            if head.size < start:
                continue  # its leaves were left out on request
            index = head.size // TILE_WIDTH
            peaks.extend(roots[peaks.count : index])
            root = peaks.root(partials.get(head.size, b""))
            if peaks.count != index or root != head.root:
                report.add(
                    None,
                    "checkpoint",
                    f"{where} of {head.size} entries has another root than the records: history "
                    "before it was rewritten",
                )
                failed = True
                continue
            if holds is None or head.outside or not holds.outside:
                holds = head
        if failed:
            report.checkpoint = "failed"
        elif holds is not None:
            report.checkpoint = "outside" if holds.outside else "stored"
            if self._key is None:
                report.checkpoint = "unchecked"
            report.checkpoint_size = holds.size
            try:
                cosigned = holds.signed.cosignatures(self._witnesses)
            except TlogError as error:
                report.add(None, "checkpoint", error.message)
            else:
                report.witnesses = [item.key.name for item in cosigned]


@dataclass(frozen=True, slots=True)
class _Head:
    signed: SignedCheckpoint
    size: int
    root: bytes
    outside: bool


class _Peaks:
    """The roots of a growing tree's complete subtrees, greatest first."""

    def __init__(self) -> None:
        self.count = 0
        self._peaks: list[tuple[int, bytes]] = []

    def extend(self, roots: Iterable[bytes]) -> None:
        for root in roots:
            node, height = root, 0
            while self._peaks and self._peaks[-1][0] == height:
                node = tree_root([self._peaks.pop()[1], node])
                height += 1
            self._peaks.append((height, node))
            self.count += 1

    def root(self, partial: bytes) -> bytes:
        hashes = [item for _, item in self._peaks]
        if partial:
            hashes.append(partial)
        if not hashes:
            return peaks_root((), b"")
        node = hashes[-1]
        for left in reversed(hashes[:-1]):
            node = tree_root([left, node])
        return node


def _pieces(first: int, last: int) -> Iterator[tuple[int, int]]:
    for low in range(first, last + 1, _RANGE):
        yield low, min(low + _RANGE - 1, last)


class _Work:
    """Runs checks over pieces, here or in further processes, results in order."""

    def __init__(
        self,
        address: StoreAddress,
        store: Store,
        jobs: int,
        progress: Progress | None,
        total: int,
    ) -> None:
        self._store = store
        self._progress = progress
        self._total = total
        self._done = 0
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            self._pool = ProcessPoolExecutor(
                jobs,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_open_here,
                initargs=(address,),
            )

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(
        self, check: Callable[..., _T], pieces: Iterable[tuple[Any, ...]], *, counts: bool = True
    ) -> Iterator[_T]:
        """``check(store, *piece)`` for each piece."""
        if self._pool is None:
            for piece in pieces:
                result = check(self._store, *piece)
                self._advance(piece, counts)
                yield result
            return
        waiting: list[tuple[tuple[Any, ...], Any]] = []
        for piece in pieces:  # a few ahead of what is taken: memory stays flat
            waiting.append((piece, self._pool.submit(_check_here, check, piece)))
            if len(waiting) > 3 * self._jobs:
                piece, future = waiting.pop(0)
                result = future.result()
                self._advance(piece, counts)
                yield result
        for piece, future in waiting:
            result = future.result()
            self._advance(piece, counts)
            yield result

    def _advance(self, piece: tuple[Any, ...], counts: bool) -> None:
        if counts and self._progress is not None:
            self._done = min(self._done + piece[1] - piece[0] + 1, self._total)
            self._progress(self._done, self._total)


_HERE: list[Store] = []


def _open_here(address: StoreAddress) -> None:
    _HERE.append(address.open(create=False))


def _check_here(check: Callable[..., Any], piece: tuple[Any, ...]) -> Any:
    return check(_HERE[0], *piece)
