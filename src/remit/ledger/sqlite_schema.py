"""The SQLite layout of a ledger: public, documented in ``docs/ledger-format.md``."""

from __future__ import annotations

from remit.ledger.record import INDEXED

__all__ = ["APPLICATION_ID", "COLUMNS", "CREATE", "SCHEMA_VERSION"]

APPLICATION_ID = 0x524D5431
"""``RMT1`` in the file's header: how a ledger is told from any other SQLite file."""

SCHEMA_VERSION = 1
"""``PRAGMA user_version`` of the files this version writes."""

COLUMNS = ("id", "entry_hash", "timestamp", "event_type", "submission_id", *INDEXED)

_CREATE_INDEXES = "\n".join(
    f"CREATE INDEX entries_{name} ON entries({name}) WHERE {name} IS NOT NULL;"
    for name in INDEXED
    if name != "session_id"
)

CREATE = f"""
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    entry_hash TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    event_type TEXT NOT NULL,
    submission_id TEXT NOT NULL,
    {" TEXT, ".join(INDEXED)} TEXT,
    record TEXT NOT NULL
);
CREATE INDEX entries_timestamp ON entries(timestamp);
CREATE INDEX entries_event_type ON entries(event_type);
CREATE INDEX entries_submission_id ON entries(submission_id);
CREATE INDEX entries_session_event ON entries(session_id, event_type) WHERE session_id IS NOT NULL;
{_CREATE_INDEXES}

CREATE TABLE contents (
    content_id INTEGER PRIMARY KEY,
    commitment TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    digest BLOB NOT NULL,
    nonce BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    codec TEXT NOT NULL,
    value NOT NULL,
    UNIQUE (scope, digest)
);

CREATE TABLE message_steps (
    step TEXT NOT NULL PRIMARY KEY,
    parent TEXT NOT NULL,
    commitment TEXT NOT NULL,
    position INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE content_subjects (
    subject_id TEXT NOT NULL,
    commitment TEXT NOT NULL,
    PRIMARY KEY (subject_id, commitment)
) WITHOUT ROWID;

CREATE TABLE erasures (
    commitment TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL
) WITHOUT ROWID;

CREATE VIEW entry_contents AS
    SELECT e.seq, e.id, e.event_type, e.session_id, j.path AS path, c.codec, c.value
    FROM entries AS e, json_tree(e.record) AS j
    LEFT JOIN contents AS c ON c.commitment = substr(j.value, 13)
    WHERE j.key = '$content';

CREATE VIEW entry_messages AS
    WITH RECURSIVE walk(seq, path, step) AS (
        SELECT e.seq, j.path, j.value FROM entries AS e, json_tree(e.record) AS j
        WHERE j.key = '$messages'
        UNION ALL
        SELECT walk.seq, walk.path, s.parent FROM walk
        JOIN message_steps AS s ON s.step = walk.step WHERE s.position > 1
    )
    SELECT walk.seq, e.id, e.event_type, e.session_id, walk.path AS path, s.position, c.codec,
           c.value
    FROM walk JOIN message_steps AS s ON s.step = walk.step
    JOIN entries AS e ON e.seq = walk.seq
    LEFT JOIN contents AS c ON c.commitment = s.commitment;
"""
