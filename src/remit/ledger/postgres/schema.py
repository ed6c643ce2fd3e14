"""What PostgreSQL's form of a ledger has beside the tables: views, text index, statistics."""

from __future__ import annotations

import re

from remit.ledger.schema import POSTGRES, STATE_TABLES, declare

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

# Samples of content must not get into the planner's statistics, where no erasure finds them.
_NATIVE = f"""
CREATE INDEX entries_session_id ON entries (session_id, seq) WHERE session_id IS NOT NULL;
ALTER TABLE contents ALTER COLUMN value SET STATISTICS 0;
ALTER TABLE contents ALTER COLUMN nonce SET STATISTICS 0;
ALTER TABLE contents ALTER COLUMN digest SET STATISTICS 0;
ALTER TABLE content_subjects ALTER COLUMN subject_id SET STATISTICS 0;
CREATE TABLE content_search (
    content_id bigint PRIMARY KEY,
    words tsvector NOT NULL
);
ALTER TABLE content_search ALTER COLUMN words SET STATISTICS 0;
CREATE INDEX content_search_words ON content_search USING gin (words) WITH (fastupdate = off);
{_VIEWS}
"""

# Tables of state that a version before layout 3 made may lack the columns that came later.
_LATER_COLUMNS = "".join(
    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column.name} {column.postgres_type}"
    + (f" NOT NULL DEFAULT {column.default}" if column.default else "")
    + ";\n"
    for table, columns in STATE_TABLES.items()
    for column in columns
    if column.default or column.nullable
)

MIGRATIONS: dict[int, str] = {
    2: declare(POSTGRES, 1, 2) + _NATIVE,
    3: declare(POSTGRES, 3) + _LATER_COLUMNS,
}
"""By layout version, the statements that lead to it from the one before. The first layout on
PostgreSQL is 2."""

TRIGGERS = """
    SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT r.rulename FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"""
"""What could change rows behind a writer's back: triggers, and rules on tables."""

INDEXES = frozenset(
    re.findall(
        r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+) ON", "".join(MIGRATIONS.values())
    )
)
"""Indexes that must be there, besides those of primary and unique keys."""
