"""SQLite's form of a ledger: views, text index, and the file itself."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from remit.kernel.durable_files import fsync
from remit.ledger.errors import LedgerError
from remit.ledger.schema import LAYOUT_VERSION, SQLITE, declare

APPLICATION_ID = 0x524D5431
"""``RMT1`` in the file's header distinguishes a ledger from any other SQLite file."""

SEARCH = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS content_search USING fts5"
    "(text, content='', tokenize='unicode61 remove_diacritics 0')"
)
"""Made with the first search: who never searches pays nothing."""

VIEWS = """
CREATE VIEW entry_contents AS
    SELECT e.seq, e.id, e.event_type, e.session_id, j.path AS path,
           (SELECT c.codec FROM shown_contents AS s JOIN contents AS c USING (content_id)
            WHERE s.seq = e.seq AND c.commitment = substr(j.value, 13)) AS codec,
           (SELECT c.value FROM shown_contents AS s JOIN contents AS c USING (content_id)
            WHERE s.seq = e.seq AND c.commitment = substr(j.value, 13)) AS value
    FROM entries AS e, json_tree(e.record) AS j
    WHERE j.key = '$content';
CREATE VIEW entry_messages AS
    WITH RECURSIVE walk(seq, path, step_id) AS (
        SELECT e.seq, j.path, s.step_id
        FROM entries AS e, json_tree(e.record) AS j
        JOIN shown_lists AS l ON l.seq = e.seq
        JOIN message_steps AS s ON s.step_id = l.step_id AND s.step = j.value
        WHERE j.key = '$messages'
        UNION ALL
        SELECT walk.seq, walk.path, s.parent_id FROM walk
        JOIN message_steps AS s ON s.step_id = walk.step_id WHERE s.position > 1
    )
    SELECT walk.seq, e.id, e.event_type, e.session_id, walk.path AS path, s.position, c.codec,
           c.value
    FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    JOIN entries AS e ON e.seq = walk.seq
    LEFT JOIN contents AS c ON c.content_id = s.content_id;
"""

CREATE = f"""{declare(SQLITE)}{VIEWS}
INSERT INTO migrations VALUES ({LAYOUT_VERSION}, strftime('%Y-%m-%dT%H:%M:%fZ'));
"""
"""The statements that make a new ledger."""

_STATISTICS = ("table", "sqlite_stat1"), "CREATE TABLE sqlite_stat1(tbl,idx,stat)"
"""The table that ANALYZE makes. A trigger or a view can have this name, too."""

_WORD = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\w+|[^\s\w]""")
# A name in quotes is the same name. Anything else in them is not what it says: of a column
# ``x TEXT "NOT NULL UNIQUE"`` that is a part of its type's name, and nothing is unique.
_QUOTED_NAME = re.compile(r'^"([a-z_][a-z_0-9]*)"$')


def squeezed(sql: str | None) -> str:
    """Return a statement's words, joined by single spaces, so that spacing and quoted names make no
    difference.

    Only quotes around lower-case names are dropped.

    Args:
        sql: the statement; ``None`` gives an empty text.
    """
    return " ".join(_QUOTED_NAME.sub(r"\1", word) for word in _WORD.findall(sql or ""))


def layout_problems(run: Callable[[str], Iterable[tuple[Any, ...]]]) -> Iterator[str]:
    """Yield a clause for each object that a ledger lacks, does not have, or has in another form.

    Objects that a ledger should have come first, then foreign ones, each sorted by kind and name.
    The text index may be absent. Rows are not checked.

    Args:
        run: runs a statement; its errors are raised.
    """
    there = _objects(run)
    declared, may_be = _documented()
    search = may_be.keys() - declared.keys()
    for key in sorted(declared.keys() | (search if search & there.keys() else set())):
        found = there.get(key)
        if found != may_be[key] and squeezed(found) != squeezed(may_be[key]):
            yield f"the {' '.join(key)} is not the documented one"
    for kind, name in sorted(there.keys() - may_be.keys()):
        yield f"there is a {kind} {name}, which a ledger does not have"


@functools.cache
def _documented() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Return the objects that a ledger must have, and those that it may have."""
    with contextlib.closing(sqlite3.connect(":memory:")) as sound:
        sound.executescript(CREATE)
        declared = _objects(sound.execute)
        sound.execute(SEARCH)
        return declared, _objects(sound.execute)


def _objects(run: Callable[[str], Iterable[tuple[Any, ...]]]) -> dict[tuple[str, str], str]:
    """Return the SQL of each declared object, by kind and name."""
    return {
        (kind, name): sql
        for kind, name, sql in run("SELECT type, name, sql FROM sqlite_schema")
        if not (kind == "index" and sql is None) and ((kind, name), sql) != _STATISTICS
    }


def create_if_absent(path: Path) -> None:
    """Make an empty ledger at ``path`` unless there is one; safe if several processes try at once.

    A non-empty file is left as it is, whatever it holds; an empty one is replaced. Missing
    directories are made. The file has mode 0600; it is created under another name and renamed.
    Other processes wait by a lock on the file. The new ledger has the present layout and WAL mode.

    Raises:
        LedgerError: SQLite cannot make the database; an empty file remains at ``path``.
        OSError: a directory or the file cannot be made, locked or renamed.
    """
    if path.exists() and path.stat().st_size > 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        mine, there = os.fstat(handle), path.stat()
        if mine.st_ino != there.st_ino or there.st_size > 0:
            return  # Another process made the file first.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
        temporary.unlink(missing_ok=True)
        try:
            _create(temporary)
            os.replace(temporary, path)
        except sqlite3.Error as error:
            raise LedgerError(
                f"The ledger {path} cannot be created: {error}.",
                next_step="Check the free space and the permissions of its directory.",
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        fsync(path.parent)
    finally:
        os.close(handle)


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Both must be set before the first table: erased bytes leave the file, and it shrinks.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.executescript(f"BEGIN; {CREATE} PRAGMA user_version={LAYOUT_VERSION}; COMMIT;")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
