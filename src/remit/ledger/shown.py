"""The column ``shown`` of an entry: the numbers of its content.

The column is a JSON array: the ids of the entry's own values and of the messages that it shows
first, ascending; then, as negative numbers, the ids of the last steps of its message lists. The
views ``shown_contents`` and ``shown_lists`` have a row for each number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from remit.ledger.entry_reader import GREATEST, chunks, marks, pages


def shown_text(contents: Iterable[int], lists: Iterable[int]) -> str | None:
    """Return the column of an entry; ``None`` if the entry shows nothing.

    Args:
        contents: ids of its values, in any order.
        lists: ids of the last steps of its message lists.
    """
    numbers = [*map(str, sorted(contents)), *[f"-{step_id}" for step_id in sorted(lists)]]
    return f"[{','.join(numbers)}]" if numbers else None


def read_shown(text: Any) -> tuple[set[int], set[int]]:
    """Return the content ids and the step ids in the column of an entry.

    A damaged column gives the numbers that can be read; its text differs from :func:`shown_text` of
    them.

    Args:
        text: the stored column.
    """
    try:
        stored = orjson.loads(text or "[]")
    except (ValueError, TypeError):
        stored = []
    numbers = {one for one in stored if type(one) is int} if isinstance(stored, list) else set()
    return {one for one in numbers if one > 0}, {-one for one in numbers if one < 0}


def showing(select: Callable[..., Any], content_ids: Iterable[int]) -> dict[int, set[int]]:
    """Return, by entry, which of some values the entry shows by itself or as its new message.

    A value belongs to a session or to an entry, so only entries of its session are read.

    Args:
        select: runs a query; its errors are raised.
        content_ids: ids of the values; unknown ids are ignored.
    """
    wanted = {*content_ids}
    sessions: dict[str, int] = {}  # the first entry of interest
    rows: list[tuple[int, int]] = []
    for part in chunks(sorted(wanted)):
        inside = f"content_id IN ({marks(part)})"
        rows += select(
            "SELECT s.seq, s.content_id FROM shown_contents AS s WHERE s.seq IN "
            f"(SELECT seq FROM contents WHERE {inside})",
            part,
        )
        for scope, first in select(
            f"SELECT scope, min(seq) FROM contents WHERE {inside} GROUP BY scope", part
        ):
            if str(scope).startswith("s:"):
                sessions[scope[2:]] = min(first, sessions.get(scope[2:], first))
    for session_id, first in sessions.items():
        rows += select(
            "SELECT s.seq, s.content_id FROM entries AS e JOIN shown_contents AS s "
            "ON s.seq = e.seq WHERE e.session_id = ? AND e.seq >= ?",
            (session_id, first),
        )
    found: dict[int, set[int]] = defaultdict(set)
    for seq, content_id in rows:
        if content_id in wanted:
            found[seq].add(content_id)
    return found


def change_shown(
    tx: Any, gone: Mapping[int, Collection[int]], new: Mapping[int, Collection[int]]
) -> None:
    """Remove content ids from the columns of entries, and add others.

    Args:
        tx: the transaction.
        gone: ids to remove, by entry.
        new: ids to add, by entry.
    """
    rows: list[tuple[str | None, int]] = []
    for part in chunks(sorted({*gone, *new})):
        for seq, text in tx.execute(
            f"SELECT seq, shown FROM entries WHERE seq IN ({marks(part)})", part
        ):
            contents, lists = read_shown(text)
            contents = contents.difference(gone.get(seq, ())).union(new.get(seq, ()))
            rows.append((shown_text(contents, lists), seq))
    tx.execute_many("UPDATE entries SET shown = ? WHERE seq = ?", rows)


def fill_shown(
    select: Callable[..., Any], execute_many: Callable[[str, Sequence[Sequence[Any]]], object]
) -> None:
    """Set the columns from the tables that an earlier layout had, as a migration does.

    Args:
        select: runs a query; its errors are raised.
        execute_many: runs a statement for several rows.
    """
    sql = "SELECT seq FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq"
    for page in pages(select, sql, 0, GREATEST):
        found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for kind, table in enumerate(("shown_contents", "shown_lists")):
            for seq, number in select(
                f"SELECT * FROM {table} WHERE seq BETWEEN ? AND ?", (page[0][0], page[-1][0])
            ):
                if type(number) is int:  # A damaged number stands for nothing.
                    found[seq][kind].append(number)
        rows = [(shown_text(*both), seq) for seq, both in found.items()]
        execute_many("UPDATE entries SET shown = ? WHERE seq = ?", rows)
