"""What SQLite's form of a ledger has beside the tables: views, text index, the file's marks."""

from __future__ import annotations

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
"""All statements that make a new ledger."""


def squeezed(sql: str | None) -> str:
    """A statement without white space and quotes, which earlier versions set in another way."""
    return "".join((sql or "").replace('"', "").split())
