"""The SQLite layout of a ledger: public, documented in ``docs/ledger-format.md``."""

from __future__ import annotations

from remit.ledger.layout import LAYOUT_VERSION
from remit.ledger.record import INDEXED

__all__ = ["APPLICATION_ID", "CONTENT_TABLES", "CREATE", "VIEWS"]

APPLICATION_ID = 0x524D5431
"""``RMT1`` in the file's header: how a ledger is told from any other SQLite file."""

_CREATE_INDEXES = "\n".join(
    f"CREATE INDEX entries_{name} ON entries({name}) WHERE {name} IS NOT NULL;"
    for name in INDEXED
    if name != "session_id"
)

_ENTRIES = f"""
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
CREATE TABLE erasures (
    commitment TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
"""

CONTENT_TABLES = """
CREATE TABLE contents (
    content_id INTEGER PRIMARY KEY,
    commitment TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest BLOB NOT NULL,
    nonce BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    codec TEXT NOT NULL,
    value NOT NULL,
    UNIQUE (scope, digest)
);
CREATE TABLE message_steps (
    step_id INTEGER PRIMARY KEY,
    step TEXT NOT NULL,
    parent_id INTEGER NOT NULL,
    content_id INTEGER,
    commitment TEXT NOT NULL,
    position INTEGER NOT NULL
);
CREATE INDEX message_steps_content_id ON message_steps(content_id);
CREATE TABLE shown_contents (
    seq INTEGER NOT NULL,
    content_id INTEGER NOT NULL,
    PRIMARY KEY (seq, content_id)
) WITHOUT ROWID;
CREATE INDEX shown_contents_content_id ON shown_contents(content_id);
CREATE TABLE shown_lists (
    seq INTEGER NOT NULL,
    step_id INTEGER NOT NULL,
    PRIMARY KEY (seq, step_id)
) WITHOUT ROWID;
CREATE TABLE content_subjects (
    subject_id TEXT NOT NULL,
    content_id INTEGER NOT NULL,
    PRIMARY KEY (subject_id, content_id)
) WITHOUT ROWID;
CREATE INDEX content_subjects_content_id ON content_subjects(content_id);
CREATE INDEX erasures_seq ON erasures(seq);
CREATE TABLE tree_hashes (
    level INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (level, idx)
) WITHOUT ROWID;
CREATE TABLE checkpoints (
    size INTEGER PRIMARY KEY,
    created TEXT NOT NULL,
    note TEXT NOT NULL
);
CREATE TABLE ledger_info (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE migrations (
    version INTEGER PRIMARY KEY,
    applied TEXT NOT NULL
);
"""
"""What layout 2 has that layout 1 had not, or otherwise."""

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

CREATE = f"""{_ENTRIES}{CONTENT_TABLES}{VIEWS}
INSERT INTO migrations VALUES ({LAYOUT_VERSION}, strftime('%Y-%m-%dT%H:%M:%fZ'));
"""
"""A new ledger, whole."""
