"""Entries of one session in the order of the ledger, whatever its length.

No index holds them so: ``entries_session_event`` has them by event type. A page is merged of the
first ones of each type, so that it takes as long in a session of a million entries as in any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["KINDS", "MAX_KINDS", "page_of_session"]

KINDS = (
    "WITH RECURSIVE kinds(name) AS ("
    "SELECT min(event_type) FROM entries WHERE session_id = ? UNION ALL "
    "SELECT (SELECT min(event_type) FROM entries WHERE session_id = ? AND event_type > kinds.name) "
    "FROM kinds WHERE kinds.name IS NOT NULL) SELECT name FROM kinds WHERE name IS NOT NULL"
)
"""The event types of a session, each found by one look into the index; takes its id twice."""

MAX_KINDS = 200
"""Of more event types SQLite makes no statement."""


def page_of_session(
    session_id: str, kinds: Sequence[str], after: int | None, descending: bool, limit: int
) -> tuple[str, list[Any]]:
    """A condition that holds of the entries of one page, and its parameters.

    Args:
        session_id: of the session.
        kinds: its event types, at least one.
        after: the sequence number to go on behind.
        descending: newest first.
        limit: most entries.
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
