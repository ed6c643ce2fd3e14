"""The PostgreSQL layout of a ledger: public, documented in ``docs/ledger-format.md``."""

from __future__ import annotations

import re

from remit.ledger.record import INDEXED

__all__ = ["COLUMN_TYPES", "INDEXES", "MIGRATIONS", "NULLABLE", "TRIGGERS"]

COLUMN_TYPES: dict[str, str] = {
    "seq": "bigint",
    "content_id": "bigint",
    "step_id": "bigint",
    "parent_id": "bigint",
    "position": "bigint",
    "bytes": "bigint",
    "level": "bigint",
    "idx": "bigint",
    "size": "bigint",
    "version": "bigint",
    "digest": "bytea",
    "nonce": "bytea",
    "hash": "bytea",
}
"""Types of columns; all others are text."""

NULLABLE = frozenset({("message_steps", "content_id"), *(("entries", name) for name in INDEXED)})
"""Columns that may be NULL."""

_INDEXES = "\n".join(
    f"CREATE INDEX entries_{name} ON entries ({name}, seq) WHERE {name} IS NOT NULL;"
    for name in INDEXED
    if name != "session_id"
)

_VIEWS = """
CREATE VIEW entry_commitments AS
    SELECT e.seq, e.id, e.event_type, e.session_id, w.path, w.node ->> '$content' AS content,
           w.node ->> '$messages' AS messages
    FROM entries AS e CROSS JOIN LATERAL (
        WITH RECURSIVE walk(path, node) AS (
            SELECT '$'::text, e.record::json
            UNION ALL
            SELECT inner_walk.path, inner_walk.node FROM walk CROSS JOIN LATERAL (
                SELECT walk.path || '.' || key AS path, value AS node
                FROM json_each(CASE json_typeof(walk.node) WHEN 'object' THEN walk.node END)
                UNION ALL
                SELECT walk.path || '[' || (number - 1) || ']', value
                FROM json_array_elements(
                    CASE json_typeof(walk.node) WHEN 'array' THEN walk.node END
                ) WITH ORDINALITY AS item(value, number)
            ) AS inner_walk
        )
        SELECT path, node FROM walk WHERE json_typeof(node) = 'object'
    ) AS w
    WHERE w.node ->> '$content' IS NOT NULL OR w.node ->> '$messages' IS NOT NULL;
CREATE VIEW entry_contents AS
    SELECT e.seq, e.id, e.event_type, e.session_id, e.path, c.codec, c.value
    FROM entry_commitments AS e
    LEFT JOIN (shown_contents AS s JOIN contents AS c ON c.content_id = s.content_id)
        ON s.seq = e.seq AND c.commitment = substr(e.content, 13)
    WHERE e.content IS NOT NULL;
CREATE VIEW entry_messages AS
    WITH RECURSIVE walk(seq, path, step_id) AS (
        SELECT e.seq, e.path, s.step_id FROM entry_commitments AS e
        JOIN shown_lists AS l ON l.seq = e.seq
        JOIN message_steps AS s ON s.step_id = l.step_id AND s.step = e.messages
        UNION ALL
        SELECT walk.seq, walk.path, s.parent_id FROM walk
        JOIN message_steps AS s ON s.step_id = walk.step_id WHERE s.position > 1
    )
    SELECT walk.seq, e.id, e.event_type, e.session_id, walk.path, s.position, c.codec, c.value
    FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    JOIN entries AS e ON e.seq = walk.seq
    LEFT JOIN contents AS c ON c.content_id = s.content_id;
"""

_CREATE = f"""
CREATE TABLE entries (
    seq bigint PRIMARY KEY,
    id text NOT NULL,
    entry_hash text NOT NULL,
    timestamp text NOT NULL,
    event_type text NOT NULL,
    submission_id text NOT NULL,
    {" text, ".join(INDEXED)} text,
    record text NOT NULL
);
CREATE INDEX entries_timestamp ON entries (timestamp, seq);
CREATE INDEX entries_event_type ON entries (event_type, seq);
CREATE INDEX entries_submission_id ON entries (submission_id, seq);
CREATE INDEX entries_session_event ON entries (session_id, event_type, seq)
    WHERE session_id IS NOT NULL;
CREATE INDEX entries_session_id ON entries (session_id, seq) WHERE session_id IS NOT NULL;
{_INDEXES}
CREATE TABLE contents (
    content_id bigint PRIMARY KEY,
    commitment text NOT NULL,
    scope text NOT NULL,
    digest bytea NOT NULL,
    nonce bytea NOT NULL,
    bytes bigint NOT NULL,
    codec text NOT NULL,
    value text NOT NULL,
    UNIQUE (scope, digest)
);
-- Samples of content must not get into the planner's statistics, where no erasure finds them.
ALTER TABLE contents ALTER COLUMN value SET STATISTICS 0;
ALTER TABLE contents ALTER COLUMN nonce SET STATISTICS 0;
ALTER TABLE contents ALTER COLUMN digest SET STATISTICS 0;
CREATE TABLE message_steps (
    step_id bigint PRIMARY KEY,
    step text NOT NULL,
    parent_id bigint NOT NULL,
    content_id bigint,
    commitment text NOT NULL,
    position bigint NOT NULL
);
CREATE INDEX message_steps_content_id ON message_steps (content_id);
CREATE TABLE shown_contents (
    seq bigint NOT NULL,
    content_id bigint NOT NULL,
    PRIMARY KEY (seq, content_id)
);
CREATE INDEX shown_contents_content_id ON shown_contents (content_id);
CREATE TABLE shown_lists (
    seq bigint NOT NULL,
    step_id bigint NOT NULL,
    PRIMARY KEY (seq, step_id)
);
CREATE TABLE content_subjects (
    subject_id text NOT NULL,
    content_id bigint NOT NULL,
    PRIMARY KEY (subject_id, content_id)
);
ALTER TABLE content_subjects ALTER COLUMN subject_id SET STATISTICS 0;
CREATE INDEX content_subjects_content_id ON content_subjects (content_id);
CREATE TABLE erasures (
    commitment text PRIMARY KEY,
    seq bigint NOT NULL
);
CREATE INDEX erasures_seq ON erasures (seq);
CREATE TABLE tree_hashes (
    level bigint NOT NULL,
    idx bigint NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (level, idx)
);
CREATE TABLE checkpoints (
    size bigint PRIMARY KEY,
    created text NOT NULL,
    note text NOT NULL
);
CREATE TABLE ledger_info (
    name text PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE content_search (
    content_id bigint PRIMARY KEY,
    words tsvector NOT NULL
);
ALTER TABLE content_search ALTER COLUMN words SET STATISTICS 0;
CREATE INDEX content_search_words ON content_search USING gin (words) WITH (fastupdate = off);
{_VIEWS}
"""

MIGRATIONS: dict[int, str] = {2: _CREATE}
"""By layout version, the statements that lead to it from the one before. The first layout on
PostgreSQL is 2."""

TRIGGERS = """
    SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT r.rulename FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"""
"""What could change rows behind a writer's back: triggers, and rules on tables."""

INDEXES = frozenset(name for name in re.findall(r"CREATE INDEX (\w+) ON", _CREATE))
"""Indexes that must be there, besides those of primary and unique keys."""
