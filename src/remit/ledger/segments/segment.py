"""A segment: a ledger file that contains the entries of ended sessions before a cut.

The file has the tables of every SQLite ledger, so the ordinary store, reader, verifier, eraser and
exporter read it. It has these rows of a ledger:

- the entries that left the ledger's database, with their content, message steps and subjects;
- the leaf hashes of each tile that it contains in part, and all tree hashes above;
- a checkpoint of the tree at its end;
- ``segment`` in ``ledger_info``, which names its entries. A file with this row takes no new entry.

The ``ERASURE`` entries of its erased values are in the ledger.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from remit.kernel.durable_files import fsync
from remit.kernel.errors import RemitError
from remit.kernel.settings import LedgerSettings
from remit.ledger.archived_ranges import ARCHIVED_TO, SEGMENT, Places
from remit.ledger.clock import utc_now
from remit.ledger.contents import StoredValue, commitments_in
from remit.ledger.entry_reader import as_bytes, chunks, marks
from remit.ledger.erasure import delete_contents
from remit.ledger.errors import LedgerError, LedgerFormatError
from remit.ledger.key_files import known_as
from remit.ledger.schema import TABLES
from remit.ledger.search import TextIndex
from remit.ledger.segments.copies import interrupted_copies
from remit.ledger.store import Execute, Store, transact
from remit.ledger.store_factory import open_store
from remit.ledger.subjects import BEFORE, subjects_before
from remit.ledger.tlog import TILE_WIDTH, SignedCheckpoint, VerifierKey
from remit.ledger.tree import LedgerTree
from remit.ledger.verification.report import Progress, VerificationReport

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

Rows = Mapping[str, Iterable[Sequence[Any]]]
"""Rows by table, each with all columns of the layout."""

_NAME = re.compile(r"(\d{12})-(\d{12})(\.db)?")
_PAGE = 1_000  # entries that are copied in one transaction
_BATCH = 400


def segment_name(first: int, end: int) -> str:
    """Return the name of a segment's file, such as ``000000000000-000000010000.db``.

    Args:
        first: sequence number of the first entry of the range.
        end: sequence number after the last entry.
    """
    return f"{first:012d}-{end:012d}.db"


def segments_in(directories: Iterable[Path]) -> list[tuple[int, int, Path]]:
    """Return range and path of each segment in some directories, in order.

    A range is the first sequence number that the run archived, and the one after the last. Names
    alone decide; other files are ignored, and nothing is opened. Equal ranges are all listed.

    Args:
        directories: directories that ``remit ledger segment --out`` was given.

    Raises:
        LedgerError: a directory cannot be read, or holds an archive that an earlier version wrote.
    """
    found = []
    for directory in directories:
        try:
            names = [match for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
        except OSError as error:
            raise LedgerError(
                f"The directory {directory} cannot be read: {error.strerror or error}.",
                next_step="Give the directory that `remit ledger segment --out` was given.",
            ) from error
        for match in names:
            path = directory / match[0]
            if not match[3] and path.is_dir():
                raise LedgerError(
                    f"{path} is an archive of an earlier version, which this version cannot read.",
                    next_step=f"Convert it once: `remit ledger segment --convert {directory}`.",
                )
            if match[3]:
                found.append((int(match[1]), int(match[2]), path))
    return sorted(found)


def open_segment(path: Path, settings: LedgerSettings) -> Store:
    """Open the store of a segment, which the caller closes.

    A segment of an earlier layout is migrated.

    Args:
        path: path of the file. A name of another form than :func:`segment_name` gives is accepted.
        settings: limits of the store.

    Raises:
        LedgerFormatError: the file is not a segment, is not the one that its name says, or is
            damaged.
        LedgerError: the file cannot be opened.
    """
    store = open_store(str(path), settings, create=False)
    match, end = _NAME.fullmatch(path.name), store.segment.end if store.segment else 0
    # Entries of earlier ranges may be in the file, so the ledger alone knows the first number.
    is_named = not match or (
        int(match[2]) == end > int(match[1]) and not int(match[1]) % TILE_WIDTH
    )
    if not end or not is_named:
        store.close()
        raise LedgerFormatError(
            f"{path} is not the segment that its name says.",
            next_step="Restore the segment from a copy.",
        )
    return store


def open_segments(directories: Iterable[Path], settings: LedgerSettings) -> list[Store]:
    """Return the opened stores of all segments in some directories, by first entry.

    The caller closes them; after an error all are closed.

    Args:
        directories: directories of segments.
        settings: limits of the stores.

    Raises:
        LedgerError: a directory or segment cannot be read, one is an archive of an earlier version,
            or there is no segment.
    """
    directories = [*directories]
    stores: list[Store] = []
    try:
        stores += (open_segment(path, settings) for _, _, path in segments_in(directories))
    except BaseException:
        for store in stores:
            store.close()
        raise
    if not stores:
        raise LedgerError(
            f"No segment was found in {', '.join(map(str, directories))}.",
            next_step="Give the directory that `remit ledger segment --out` was given.",
        )
    return stores


def rows_of(select: Execute, record_sql: str, seqs: Sequence[int]) -> dict[str, list[Any]]:
    """Return all rows that some entries consist of, by table, with all columns.

    The tables are ``entries``, ``shown_contents``, ``shown_lists``, ``message_steps``, ``contents``
    and ``content_subjects``; erasures are not included. All steps and messages of a shown list are.
    Records are returned as text.

    Args:
        select: runs a query; its errors are raised.
        record_sql: :attr:`Reader.record_sql` of the database.
        seqs: sequence numbers of the entries, ascending; missing ones are left out.
    """

    def read(table: str, key: str, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        names = (record_sql if one.name == "record" else one.name for one in TABLES[table])
        sql = f"SELECT {', '.join(names)} FROM {table} WHERE {key} IN"
        found = (select(f"{sql} ({marks(part)}) ORDER BY 1, 2", part) for part in chunks(ids))
        return [*itertools.chain.from_iterable(found)]

    rows = {name: read(name, "seq", seqs) for name in ("entries", "shown_contents", "shown_lists")}
    steps = steps_above(select, {step_id for _, step_id in rows["shown_lists"]})
    rows["message_steps"] = read("message_steps", "step_id", sorted(steps))
    contents = {content_id for _, content_id in rows["shown_contents"]}
    contents |= {row[3] for row in rows["message_steps"] if row[3] is not None}
    for name in ("contents", "content_subjects"):
        rows[name] = read(name, "content_id", sorted(contents))
    rows["entries"] = [
        (*row[:-1], as_bytes(row[-1]).decode("utf-8", "surrogateescape")) for row in rows["entries"]
    ]
    return rows


def steps_above(select: Execute, ends: Iterable[int]) -> set[int]:
    """Return the ids of all message steps of some lists, the last ones included.

    Args:
        select: runs a query; its errors are raised.
        ends: ids of the lists' last steps.
    """
    found: set[int] = set()
    for part in chunks(sorted(ends)):
        found.update(
            row[0]
            for row in select(
                f"""WITH RECURSIVE walk(step_id) AS (
                        SELECT step_id FROM message_steps WHERE step_id IN ({marks(part)})
                        UNION
                        SELECT s.parent_id FROM walk JOIN message_steps AS s
                        ON s.step_id = walk.step_id WHERE s.parent_id > 0
                    ) SELECT step_id FROM walk""",
                part,
            )
        )
    return found


def facts_of(rows: Rows) -> set[tuple[Any, ...]]:
    """Return the facts in rows as comparable tuples, without ids, which differ between databases.

    A fact is an entry, a content value, a person of a value, or a message of a list. Codecs, scopes
    and the indexed columns of entries are left out.

    Args:
        rows: rows of :func:`rows_of`.

    Raises:
        LedgerFormatError: a content value cannot be read.
    """
    macs = {row[0]: row[1] for row in rows["contents"]}
    found: set[tuple[Any, ...]] = {("entry", row[0], row[2], row[-1]) for row in rows["entries"]}
    for _, mac, _, _, nonce, _, codec, value in rows["contents"]:
        stored = StoredValue(codec, value)
        found.add(("value", mac, bytes(nonce), stored.is_exact, stored.encoded()))
    found |= {("person of the value", macs.get(row[1]), row[0]) for row in rows["content_subjects"]}
    return found | {("message", row[1], row[4]) for row in rows["message_steps"]}


def _copied(store: Store, places: Places) -> Iterator[Rows]:
    """Yield the rows of some entries of a ledger, page by page."""
    seqs = iter(places)
    while page := list(itertools.islice(seqs, _PAGE)):
        rows = rows_of(store.select, store.record_sql, page)
        missing = {row[4] for row in rows["message_steps"] if row[3] is None}
        for row in rows["entries"]:
            record = orjson.loads(row[-1])
            items = commitments_in([record["metadata"], record["reason"]])
            missing |= {item["$content"][12:] for item in items if "$content" in item}
        missing -= {row[1] for row in rows["contents"]}
        rows["erasures"] = [*store.erasures(missing).items()]
        yield rows


def write_segment(
    path: Path,
    ledger: LedgerClient,
    places: Places,
    checkpoint: SignedCheckpoint,
    pages: Iterable[Rows] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a segment to an empty ledger's file, durably.

    The file gets the rows of the entries, the tree hashes around them, the checkpoint, and the row
    that makes it a segment. The file and its directory are synced. After an error the incomplete
    file stays.

    Args:
        path: path of the file, from :func:`~remit.ledger.segments.copies.new_copy`.
        ledger: the ledger, which is only read.
        places: the entries; their end is that of the segment.
        checkpoint: a checkpoint of the tree at that end, which is not verified.
        pages: the rows of the entries, in ledger order, which are not compared with ``places``;
            ``None`` copies them from the ledger.
        progress: called with the number of copied entries and their total; ``None`` for nothing.

    Raises:
        LedgerError: the file is missing or cannot be written, or the ledger cannot be read.
        OSError: the file cannot be synced.
    """
    live, total, done = ledger._store, len(places), 0
    with contextlib.closing(open_store(str(path), ledger._settings, create=False)) as new:
        for rows in _copied(live, places) if pages is None else pages:
            transact(new, functools.partial(_insert, rows))
            done += len([*rows["entries"]])
            if progress is not None:
                progress(done, total)
        transact(new, functools.partial(_insert, _frame(live, places, checkpoint)))
        new.compact()
    for one in (path, path.parent):
        fsync(one)


def _insert(rows: Rows, tx: Any) -> None:
    """Insert the rows that are missing; an earlier entry may have brought the others."""
    for table, added in rows.items():
        slots = marks(TABLES[table])
        tx.execute_many(f"INSERT INTO {table} VALUES ({slots}) ON CONFLICT DO NOTHING", [*added])


def _frame(live: Store, places: Places, checkpoint: SignedCheckpoint) -> Rows:
    """Return the rows next to a segment's entries: tree hashes, checkpoint, and its own names."""
    end, tree = places.end, LedgerTree(live.select, live)
    above = live.select("SELECT level, idx, hash FROM tree_hashes WHERE level > 0")
    hashes = [row for row in above if (row[1] + 1) * TILE_WIDTH ** row[0] <= end]
    tiles = collections.Counter(seq // TILE_WIDTH for seq in places)
    hashes += [
        (0, index, b"".join(tree.tile(0, index)))
        for index, number in tiles.items()
        if number < TILE_WIDTH
    ]
    info = live.select("SELECT name, value FROM ledger_info WHERE name = 'verifier_key'")
    if before := min(subjects_before(live.select), end):
        info.append((BEFORE, str(before)))
    info += [(ARCHIVED_TO, str(end)), (SEGMENT, f"{end} {places.to_text()}")]
    return {
        "tree_hashes": hashes,
        "ledger_info": info,
        "checkpoints": [(checkpoint.checkpoint.size, utc_now(), str(checkpoint))],
    }


def purge(live: Store, segment: Store) -> int:
    """Delete the values in a segment that its ledger erased; return their number.

    The segment notes the erasures, and its file is compacted if a value was deleted.

    Args:
        live: the store of the ledger, which records the erasures.
        segment: the store of the segment.

    Raises:
        LedgerError: the segment cannot be read, written or compacted, or the ledger cannot be read.
    """
    number = 0
    index = TextIndex(segment, functools.partial(transact, segment))
    for gone in _unerased(live, segment):
        transact(segment, functools.partial(_delete, index, gone))
        number += len(gone)
    if number:
        segment.compact()
    return number


def purge_all(ledger: LedgerClient, directories: Iterable[Path]) -> int:
    """Delete erased values from all segments in some directories; return their number.

    Each segment notes the erasures, and is compacted if values were deleted.

    Args:
        ledger: the ledger, which records the erasures.
        directories: directories of segments, which are closed afterwards.

    Raises:
        LedgerError: a directory or segment cannot be read or written, or there is no segment.
    """
    with contextlib.ExitStack() as stack:
        stores = open_segments(directories, ledger._settings)
        for store in stores:
            stack.callback(store.close)
        return sum(purge(ledger._store, store) for store in stores)


def _unerased(live: Store, segment: Store) -> Iterator[dict[int, tuple[str, int]]]:
    """Yield values in a segment that its ledger erased: by content id, commitment and erasure."""
    last = 0
    sql = "SELECT content_id, commitment FROM contents WHERE content_id > ? ORDER BY 1 LIMIT ?"
    while rows := segment.select(sql, (last, _BATCH)):
        last = rows[-1][0]
        erased = live.erasures({str(mac) for _, mac in rows})
        if gone := {one: (mac, erased[mac]) for one, mac in rows if mac in erased}:
            yield gone


def _delete(index: TextIndex, gone: Mapping[int, tuple[str, int]], tx: Any) -> None:
    _insert({"erasures": gone.values()}, tx)
    delete_contents(tx, index, sorted(gone))


def check_segments(
    ledger: LedgerClient, segments: Sequence[Store], jobs: int = 1, progress: Progress | None = None
) -> VerificationReport:
    """Return the result of verifying segments, each alone and against the record of its ledger.

    Nothing is changed. Problems are of the kind ``archive`` and name the segment; an unfinished
    check and a missing segment are problems. A foreign segment and an interrupted copy are notes.

    Args:
        ledger: the ledger.
        segments: the opened segments.
        jobs: number of processes.
        progress: called with the number of checked rows of a segment and their total.

    Raises:
        LedgerError: the ledger's archived ranges cannot be read.
    """
    report = VerificationReport()
    there: dict[int, list[Store]] = {}
    for store in segments:
        if store.segment is not None:
            there.setdefault(store.segment.end, []).append(store)
    for one in ledger.archived_ranges():
        same = there.pop(one.end, [])
        if not same:
            said = f"the entries {one.first} to {one.end - 1} are not in the given segments"
            report.add(one.first, "archive", said)
        for store in same:
            path = Path(store.location)
            name = path.name if len(same) == 1 else store.location
            if path.name != segment_name(one.first, one.end):
                report.add(one.first, "archive", f"{name}: its name says another range")
            found = _check(ledger, store, one.left, one.root, jobs, progress)
            for problem in found.problems:
                report.add(one.first, "archive", f"{name}: {problem}")
            report.entries += found.entries
            report.contents += found.contents
    for store in itertools.chain.from_iterable(there.values()):
        report.notes.append(f"no entry of this ledger names the segment {store.location}")
    for directory in sorted({Path(store.location).parent for store in segments}):
        said = "is the copy of an interrupted run; remove it if no run is writing it"
        report.notes += (f"{path} {said}" for path in interrupted_copies(directory))
    return report


def _check(
    ledger: LedgerClient, store: Store, left: Places, root: str, jobs: int,
    progress: Progress | None,
) -> VerificationReport:  # fmt: skip
    """Return the result of the ordinary verification of a segment and of its comparison."""
    from remit.ledger.verification.verifier import Verifier  # imports multiprocessing

    reopen = functools.partial(open_store, store.location, ledger._settings, create=False)
    key = _key_of(store, ledger.verifier_key)
    report = Verifier(reopen, store, key, (), jobs=jobs, progress=progress).verify()
    with report.guard("the record of its ledger"):
        assert store.segment is not None
        if not len(left) == len(store.segment) == len(left.common(store.segment)):
            report.add(None, "archive", "it has other entries than its ledger records")
        if LedgerTree(store.select, store).root(left.end).hex() != root:
            report.add(None, "archive", "its tree has another root than its ledger records")
    with report.guard("its erasures"):
        for rows in chunks(store.select("SELECT commitment, seq FROM erasures")):
            known = ledger._store.erasures({str(mac) for mac, _ in rows})
            for mac, seq in rows:
                if known.get(mac) != seq:
                    said = f"the value {mac} is said to be erased, and no ERASURE says so"
                    report.add(None, "erasure", said)
        if next(_unerased(ledger._store, store), None):
            said = "a value that was erased is still here: `remit ledger segment --finish "
            report.add(None, "erasure", f"{said}--archive DIR` removes it")
    return report


def _key_of(store: Store, key: VerifierKey | None) -> VerifierKey | None:
    """Return the ledger's key under the origin that it had when a segment was written."""
    rows = store.select("SELECT value FROM ledger_info WHERE name = 'verifier_key'")
    with contextlib.suppress(RemitError):
        if key is not None and rows:
            return known_as(key, VerifierKey.parse(rows[0][0]).name) or key
    return key


def require_sound(ledger: LedgerClient, store: Store, left: Places, root: str) -> None:
    """Raise LedgerError unless a segment verifies and matches its ledger's record.

    The segment must contain exactly the entries ``left``, lead to ``root``, and hold no erased
    value. The message names the first problem.

    Args:
        ledger: the ledger.
        store: the opened segment.
        left: the entries that the segment must contain.
        root: root of the ledger's tree at the segment's end, in hex.
    """
    if problems := _check(ledger, store, left, root, 1, None).problems:
        raise LedgerError(f"The segment {store.location} does not hold: {problems[0]}.")
