"""Pages of a session's entries in ledger order, whatever the session's length.

No index has this order: ``entries_session_event`` sorts by event type. A page is merged from the
first entries of each type, so it takes as long in a session of a million entries as in any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KINDS = (
    "WITH RECURSIVE kinds(name) AS ("
    "SELECT min(event_type) FROM entries WHERE session_id = ? UNION ALL "
    "SELECT (SELECT min(event_type) FROM entries WHERE session_id = ? AND event_type > kinds.name) "
    "FROM kinds WHERE kinds.name IS NOT NULL) SELECT name FROM kinds WHERE name IS NOT NULL"
)
"""The event types of a session, each found by one look into the index; takes its id twice."""

MAX_KINDS = 200
"""Maximum number of event types in a statement, a limit of SQLite."""


def page_of_session(
    session_id: str, kinds: Sequence[str], after: int | None, descending: bool, limit: int
) -> tuple[str, list[Any]]:
    """Return an SQL condition on ``entries`` that holds for a single page, and its parameters.

    The rows still have to be sorted.

    Args:
        session_id: the session.
        kinds: its event types, from 1 to :data:`MAX_KINDS`.
        after: sequence number to continue after; ``None`` for the first page.
        descending: True for newest first.
        limit: maximum number of entries.
    """
    order = "DESC" if descending else "ASC"
    behind = "" if after is None else f"AND seq {'<' if descending else '>'} ? "
    parts, parameters = [], []
    for number, kind in enumerate(kinds):
        parts.append(
            f"SELECT seq FROM (SELECT seq FROM entries WHERE session_id = ? AND event_type = ? "
            f"{behind}ORDER BY seq {order} LIMIT ?) AS k{number}"
        )
        parameters += [session_id, kind, *([] if after is None else [after]), limit]
    merged = f"SELECT seq FROM ({' UNION ALL '.join(parts)}) AS merged"
    return f"seq IN ({merged} ORDER BY seq {order} LIMIT ?)", [*parameters, limit]
