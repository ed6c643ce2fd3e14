"""Rows that no range contains, and the small tables: everything else beside entries and content."""

from __future__ import annotations

from typing import Any

from remit.ledger.archived import ARCHIVED_TO
from remit.ledger.entry import entry_id
from remit.ledger.report import VerificationReport
from remit.ledger.schema import LAYOUT_VERSION
from remit.ledger.store import Store
from remit.ledger.subjects import BEFORE
from remit.ledger.tlog import TILE_WIDTH, VerifierKey
from remit.ledger.tlog.tiles import tile_levels
from remit.ledger.verification.entries import as_hash, erasure_is_sound, report_tree_hash

_INFO = frozenset({"verifier_key", "text_indexed_to", "imported", "clock", ARCHIVED_TO, BEFORE})
_WRITER = "writer "  # begins the name of a PostgreSQL writer's own row


def bounds(store: Store, column: str, table: str) -> tuple[Any, ...]:
    """The least and the greatest id, each found by the index; ``None`` of an empty table."""
    (ends,) = store.select(
        f"SELECT (SELECT min({column}) FROM {table}), (SELECT max({column}) FROM {table})"
    )
    return ends


def check_outliers(report: VerificationReport, store: Store, size: int) -> None:
    """Rows where no writer puts any: no range would contain them."""
    for table, column, lowest in (
        ("entries", "seq", 0),
        ("contents", "content_id", 1),
        ("message_steps", "step_id", 1),
        ("shown_contents", "content_id", 1),
        ("shown_lists", "step_id", 1),
        ("checkpoints", "size", 0),
    ):
        least, _ = bounds(store, column, table)
        if least is not None and not (isinstance(least, int) and least >= lowest):
            report.add(None, "store", f"{table} has a row with {column} {least!r}")
    for table in ("shown_contents", "shown_lists", "erasures"):
        low, high = bounds(store, "seq", table)
        if low is not None and not (
            isinstance(low, int) and isinstance(high, int) and low >= 0
            # An entry written since is not read.
            and (high < size or store.select("SELECT 1 FROM entries WHERE seq = ?", (high,)))
        ):  # fmt: skip
            report.add(None, "store", f"{table} speaks of an entry that is not there")


def check_info(report: VerificationReport, store: Store, key: VerifierKey | None) -> None:
    """What the ledger says of itself: whose it is, and which layout it has."""
    info: dict[Any, Any] = dict(store.select("SELECT name, value FROM ledger_info"))
    for name in info:
        if name not in _INFO and not str(name).startswith(_WRITER):
            report.add(
                None, "store", f"ledger_info has a row {name!r}, which a ledger does not have"
            )
    before = info.get(BEFORE, "0")
    if not str(before).isdecimal() or int(before) > store.count():
        report.add(None, "store", f"ledger_info says {BEFORE} {before!r}")
    end = str(info.get(ARCHIVED_TO, "0"))
    if not end.isdecimal() or int(end) % TILE_WIDTH or int(end) > store.count():
        report.add(None, "store", f"ledger_info says {ARCHIVED_TO} {end!r}")
    owner = info.get("verifier_key")
    if owner is None and not store.select("SELECT 1 FROM checkpoints LIMIT 1"):
        owner = str(key)  # nothing was ever signed here
    if key is not None and owner != str(key):
        report.add(None, "store", "ledger_info names another key than this ledger's")
    versions = [row[0] for row in store.select("SELECT version FROM migrations ORDER BY version")]
    if not versions or versions[0] < 1 or versions[-1] != LAYOUT_VERSION:
        report.add(None, "store", f"migrations does not end at layout {LAYOUT_VERSION}")


def check_unnamed_steps(
    report: VerificationReport, store: Store, first_step: int, first_seq: int
) -> None:
    """Message steps that neither end a list nor lead to one; earlier ones than ``first_step`` and
    lists of earlier entries than ``first_seq`` were checked."""
    for (step_id,) in store.select(
        "SELECT step_id FROM message_steps WHERE step_id >= ? "
        "EXCEPT SELECT parent_id FROM message_steps WHERE step_id >= ? "
        "EXCEPT SELECT step_id FROM shown_lists WHERE seq >= ?",
        (first_step, first_step, first_seq),
    ):
        report.add(None, "messages", f"message step {step_id} belongs to no entry's list")


def check_erasures(report: VerificationReport, store: Store, known: int) -> None:
    """Whether each ``ERASURE`` accounts for what is erased under it; of those before ``known``,
    that was checked."""
    for seq, number in store.select("SELECT seq, count(*) FROM erasures GROUP BY seq ORDER BY seq"):
        if isinstance(seq, int) and (seq < known or erasure_is_sound(store, seq)):
            report.erasures[entry_id(seq)] = number
        else:
            report.add(
                seq if isinstance(seq, int) else None,
                "erasure",
                "no ERASURE entry accounts for what is erased here",
            )


def check_upper_tree(report: VerificationReport, store: Store, roots: list[bytes]) -> None:
    """Stored hashes above the first level, and that there are no others on any."""
    for level, hashes in enumerate(tile_levels(roots), start=2):
        stored = dict(store.select("SELECT idx, hash FROM tree_hashes WHERE level = ?", (level,)))
        for index, item in enumerate(hashes):
            if as_hash(stored.get(index)) != item:
                report_tree_hash(report, index, TILE_WIDTH**level)
    now = store.count()  # entries may have come since
    for level, least, greatest, number in store.select(
        "SELECT level, min(idx), max(idx), count(*) FROM tree_hashes GROUP BY level"
    ):
        if (
            not (isinstance(level, int) and isinstance(greatest, int) and 0 <= level < 8)
            # Level 0 is there of what was archived.
            or ((least, number) != (0, greatest + 1) if level else least < 0)
            or (greatest + 1) * TILE_WIDTH ** max(level, 1) > now
        ):
            report.add(None, "tree", "there is a tree hash of entries that are not there")
