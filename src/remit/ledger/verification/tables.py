"""Checks of rows outside every range, and of the small tables."""

from __future__ import annotations

from typing import Any

from remit.ledger.archived_ranges import ARCHIVED_TO, COPY, SEGMENT
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.entry_reader import info_number
from remit.ledger.erasure import COMPACTION_DUE
from remit.ledger.schema import LAYOUT_VERSION
from remit.ledger.store import Store
from remit.ledger.subjects import BEFORE, ERASED
from remit.ledger.table_checks import readable
from remit.ledger.tlog import TILE_WIDTH, VerifierKey
from remit.ledger.tlog.tiles import tile_levels
from remit.ledger.verification.contents import erasure_is_sound
from remit.ledger.verification.entries import as_hash
from remit.ledger.verification.report import VerificationReport, report_tree_hash

_INFO = frozenset(
    {"verifier_key", "text_indexed_to", "imported", "clock", ARCHIVED_TO, BEFORE, COMPACTION_DUE}
)
_WRITER = "writer "  # begins the name of a PostgreSQL writer's own row


_END = 1 << 53
"""The lowest number that no writer gives to a row."""

_MAX_ROWS = 20  # rows of one table


def last_id(report: VerificationReport, store: Store, column: str, table: str) -> int | None:
    """Return the greatest id below 2⁵³; ``None`` if the table has none.

    No writer makes greater ids. A table that cannot be read is a problem in ``report``, and gives
    ``None``.

    Args:
        report: receives the problem.
        store: the store of the ledger.
        column: name of the id's column.
        table: name of the table.
    """
    last = None
    with report.guard(table):
        [(last,)] = store.select(f"SELECT max({column}) FROM {table} WHERE {column} < ?", (_END,))
    return None if last is None else int(last)


def check_outliers(report: VerificationReport, store: Store, size: int) -> None:
    """Report rows with ids that no writer makes, and rows of entries that do not exist.

    A table that cannot be read is a problem of the kind ``unreadable``; nothing is raised. Only
    negative numbers and those from ``size`` are looked up as entries. Erasures of a segment are not
    checked.

    Args:
        report: receives the problems, without sequence numbers; those of rows have the kind
            ``store``, and there are at most 20 for each table and check.
        store: the store of the ledger.
        size: number of entries when the verification began.
    """
    for table, column, lowest in (
        ("entries", "seq", 0),
        ("contents", "content_id", 1),
        ("message_steps", "step_id", 1),
        ("shown_contents", "content_id", 1),
        ("shown_lists", "step_id", 1),
        ("content_subjects", "content_id", 1),
        ("checkpoints", "size", 0),
    ):
        with report.guard(table):
            for (found,) in store.select(
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} < ? OR {column} >= ? "
                f"LIMIT {_MAX_ROWS}",
                (lowest, _END),
            ):
                where = f"{table}: no writer makes a row with {column} {readable(found)}"
                report.add(None, "store", where)
    # The ERASURE entries of a segment are in its ledger.
    erasures = () if store.segment is not None else ("erasures",)
    for table in ("shown_contents", "shown_lists", *erasures):
        with report.guard(table):
            for (found,) in store.select(
                f"SELECT DISTINCT seq FROM {table} AS t WHERE seq < 0 OR seq >= ? "
                "AND NOT EXISTS (SELECT 1 FROM entries AS e WHERE e.seq = t.seq) "
                f"LIMIT {_MAX_ROWS}",
                (size,),  # an entry may have been written since
            ):
                where = f"{table}: there is a row of an entry {readable(found)}, which is not there"
                report.add(None, "store", where)


def check_info(report: VerificationReport, store: Store, key: VerifierKey | None) -> None:
    """Report wrong rows of ``ledger_info`` and ``migrations``: owner, extent, layout, names.

    Unknown names are problems too, except for a PostgreSQL writer's own row, the copies of segments
    and erased persons. A ledger without checkpoints needs no owner.

    Args:
        report: receives the problems, of the kind ``store`` and without sequence numbers.
        store: the store of the ledger.
        key: the ledger's key; ``None`` leaves the owner unchecked.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    info: dict[Any, Any] = dict(store.select("SELECT name, value FROM ledger_info"))
    for name in info:
        is_segment = name == SEGMENT and store.segment is not None
        is_added = is_segment or str(name).startswith((_WRITER, COPY, ERASED))
        if name not in _INFO and not is_added:
            said = f"ledger_info has a row {readable(name)}, which a ledger does not have"
            report.add(None, "store", said)
    first = info_number(store.select, ARCHIVED_TO)  # Earlier entries are in segments.
    for name, value in info.items():
        if str(name).startswith(ERASED):
            seq = parse_entry_id(value)
            query = "SELECT 1 FROM entries WHERE seq = ? AND event_type = 'ERASURE'"
            if seq is None or (seq >= first and not store.select(query, (seq,))):
                said = f"ledger_info says that a person was erased by {readable(value)}"
                report.add(None, "store", f"{said}, which is no erasure")
    for name, width in ((BEFORE, 1), (ARCHIVED_TO, TILE_WIDTH)):
        number = info_number(store.select, name)
        if info.get(name, "0") != str(number) or number % width or number > store.count():
            report.add(None, "store", f"ledger_info says {name} {readable(info.get(name))}")
    owner = info.get("verifier_key")
    if owner is None and not store.select("SELECT 1 FROM checkpoints LIMIT 1"):
        owner = str(key)  # nothing was ever signed here
    if key is not None and owner != str(key):
        report.add(None, "store", "ledger_info names another key than this ledger's")
    versions = [row[0] for row in store.select("SELECT version FROM migrations ORDER BY version")]
    if not versions or versions[0] < 1 or versions[-1] != LAYOUT_VERSION:
        said = f"migrations: the versions are {versions}, not up to {LAYOUT_VERSION}"
        report.add(None, "store", said)


def check_unnamed_steps(
    report: VerificationReport, store: Store, first_step: int, first_seq: int
) -> None:
    """Report message steps that belong to no entry's list.

    Raise LedgerError if the ledger cannot be read.

    Args:
        report: receives the problems, of the kind ``messages`` and without sequence numbers.
        store: the store of the ledger.
        first_step: steps with lower ids were checked before.
        first_seq: lists of entries with lower numbers were checked before.
    """
    for (step_id,) in store.select(
        "SELECT step_id FROM message_steps WHERE step_id >= ? "
        "EXCEPT SELECT parent_id FROM message_steps WHERE step_id >= ? "
        "EXCEPT SELECT step_id FROM shown_lists WHERE seq >= ?",
        (first_step, first_step, first_seq),
    ):
        said = f"message_steps: row {step_id} belongs to no entry's list"
        report.add(None, "messages", said)


def check_erasures(report: VerificationReport, store: Store, known: int) -> None:
    """Report rows of ``erasures`` that no ``ERASURE`` entry accounts for; count the others.

    Raise LedgerError if the ledger cannot be read.

    Args:
        report: receives the problems, of the kind ``erasure``, and the number of values by
            ``ERASURE`` entry.
        store: the store of the ledger.
        known: ``ERASURE`` entries with lower numbers are taken as sound.
    """
    for seq, number in store.select("SELECT seq, count(*) FROM erasures GROUP BY seq ORDER BY seq"):
        if isinstance(seq, int) and (seq < known or erasure_is_sound(store, seq)):
            report.erasures[entry_id(seq)] = number
        else:
            report.add(
                seq if isinstance(seq, int) else None,
                "erasure",
                f"erasures: no ERASURE entry accounts for what is erased under {readable(seq)}",
            )


def check_upper_tree(report: VerificationReport, store: Store, roots: list[bytes]) -> None:
    """Report wrong or missing hashes above the first level, and gaps and foreign rows at any level.

    A row is foreign if its entries do not exist. The problems are of the kind ``tree``. Raise
    LedgerError if the ledger cannot be read.

    Args:
        report: receives the problems.
        store: the store of the ledger.
        roots: roots of the complete subtrees of 256 leaves, computed from the records.
    """
    for level, hashes in enumerate(tile_levels(roots), start=2):
        stored = dict(store.select("SELECT idx, hash FROM tree_hashes WHERE level = ?", (level,)))
        for index, item in enumerate(hashes):
            if as_hash(stored.get(index)) != item:
                report_tree_hash(report, level, index)
    now = store.count()  # entries may have come since
    for level, least, greatest, number in store.select(
        "SELECT level, min(idx), max(idx), count(*) FROM tree_hashes GROUP BY level"
    ):
        if (
            not (type(level) is type(least) is type(greatest) is int and 0 <= level < 8)
            # Level 0 has hashes of archived entries alone.
            or ((least, number) != (0, greatest + 1) if level else least < 0)
            or (greatest + 1) * TILE_WIDTH ** max(level, 1) > now
        ):
            where = f"level {readable(level)}, {readable(least)} to {readable(greatest)}"
            report.add(None, "tree", f"tree_hashes: {where}: a row is of entries that are not "
                                     "there, or is missing")  # fmt: skip
