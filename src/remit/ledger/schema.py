"""Every table of the ledger's database, on both engines, and the versions of the layout.

The layout is public and documented in ``docs/ledger-format.md``. Views, statistics and the text
index are written for each engine in its own folder.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping
from string import Template
from typing import NamedTuple

from remit.ledger.errors import LedgerFormatError
from remit.ledger.record import Columns
from remit.ledger.usage import DIMENSIONS, SUMS

LAYOUT_VERSION = 9
"""The layout that this version writes; older ones are migrated, newer ones refused."""

COLUMNS = ("id", "entry_hash", "timestamp", "event_type", "submission_id", *Columns._fields)
"""Columns of ``entries`` between ``seq`` and ``record``."""

NARROWEST_FIRST = (
    "work_order_id",
    "session_id",
    "submission_id",
    "event_type",
)
"""Indexed columns by selectivity: the first of several compared columns drives a search."""

SQLITE = {
    "int": "INTEGER", "blob": "BLOB", "any": "", "clustered": "WITHOUT ROWID", "seq": "",
    "absent": "",
}  # fmt: skip
POSTGRES = {
    "int": "bigint", "blob": "bytea", "any": "text", "clustered": "", "seq": ", seq",
    "absent": "IF NOT EXISTS",
}  # fmt: skip
"""Words of the declarations for each engine. SQLite adds the row id to each index itself."""

_ENTRIES = f"""
CREATE TABLE entries (
    seq $int PRIMARY KEY,
    id TEXT NOT NULL,
    entry_hash TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    event_type TEXT NOT NULL,
    submission_id TEXT NOT NULL,
    {" TEXT, ".join(Columns._fields)} TEXT,
    record TEXT NOT NULL
);
CREATE INDEX entries_timestamp ON entries (timestamp$seq);
CREATE INDEX entries_event_type ON entries (event_type$seq);
CREATE INDEX entries_submission_id ON entries (submission_id$seq);
CREATE INDEX entries_session_event ON entries (session_id, event_type$seq)
    WHERE session_id IS NOT NULL;
CREATE INDEX entries_work_order_id ON entries (work_order_id$seq) WHERE work_order_id IS NOT NULL;
CREATE TABLE erasures (
    commitment TEXT NOT NULL PRIMARY KEY,
    seq $int NOT NULL
) $clustered;
"""

_CONTENT = """
CREATE TABLE contents (
    content_id $int PRIMARY KEY,
    commitment TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest $blob NOT NULL,
    nonce $blob NOT NULL,
    bytes $int NOT NULL,
    codec TEXT NOT NULL,
    value $any NOT NULL,
    UNIQUE (scope, digest)
);
CREATE TABLE message_steps (
    step_id $int PRIMARY KEY,
    step TEXT NOT NULL,
    parent_id $int NOT NULL,
    content_id $int,
    commitment TEXT NOT NULL,
    position $int NOT NULL
);
CREATE INDEX message_steps_content_id ON message_steps (content_id);
CREATE TABLE shown_contents (
    seq $int NOT NULL,
    content_id $int NOT NULL,
    PRIMARY KEY (seq, content_id)
) $clustered;
CREATE INDEX shown_contents_content_id ON shown_contents (content_id);
CREATE TABLE shown_lists (
    seq $int NOT NULL,
    step_id $int NOT NULL,
    PRIMARY KEY (seq, step_id)
) $clustered;
CREATE TABLE content_subjects (
    subject_id TEXT NOT NULL,
    content_id $int NOT NULL,
    PRIMARY KEY (subject_id, content_id)
) $clustered;
CREATE INDEX content_subjects_content_id ON content_subjects (content_id);
CREATE INDEX erasures_seq ON erasures (seq);
CREATE TABLE tree_hashes (
    level $int NOT NULL,
    idx $int NOT NULL,
    hash $blob NOT NULL,
    PRIMARY KEY (level, idx)
) $clustered;
CREATE TABLE checkpoints (
    size $int PRIMARY KEY,
    created TEXT NOT NULL,
    note TEXT NOT NULL
);
CREATE TABLE ledger_info (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) $clustered;
CREATE TABLE IF NOT EXISTS migrations (
    version $int PRIMARY KEY,
    applied TEXT NOT NULL
);
"""

# What gateway, budgets, keys, leases and trails keep beside the record, in its transactions.
# Versions before layout 3 made these tables when they first needed them. This is their newest
# form: a migration brings every older one to it, whatever layout it is of.
_STATE = """
CREATE TABLE IF NOT EXISTS budgets (
    scope TEXT NOT NULL PRIMARY KEY,
    token_limit BIGINT,
    turn_limit BIGINT,
    nano_limit BIGINT,
    requests_per_minute BIGINT,
    tokens_per_minute BIGINT,
    spent_tokens BIGINT NOT NULL DEFAULT 0,
    reserved_tokens BIGINT NOT NULL DEFAULT 0,
    turns BIGINT NOT NULL DEFAULT 0,
    spent_nano BIGINT NOT NULL DEFAULT 0,
    reserved_nano BIGINT NOT NULL DEFAULT 0,
    unpriced_calls BIGINT NOT NULL DEFAULT 0,
    minute BIGINT NOT NULL DEFAULT 0,
    minute_requests BIGINT NOT NULL DEFAULT 0,
    minute_tokens BIGINT NOT NULL DEFAULT 0,
    period TEXT NOT NULL DEFAULT '',
    time_zone TEXT NOT NULL DEFAULT '',
    window_end BIGINT NOT NULL DEFAULT 0,
    window_number BIGINT NOT NULL DEFAULT 0,
    on_short TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS raised_bounds (
    provider_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    percent BIGINT NOT NULL,
    PRIMARY KEY (provider_id, model_id)
);
CREATE TABLE IF NOT EXISTS holds (
    reservation_id TEXT NOT NULL PRIMARY KEY,
    hold TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS in_flight (
    dispatch_entry_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    session_id TEXT NOT NULL,
    work_order_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    contract_id TEXT NOT NULL,
    reserved_tokens BIGINT NOT NULL,
    hold TEXT NOT NULL DEFAULT '',
    key_id TEXT NOT NULL DEFAULT '',
    attempt BIGINT NOT NULL DEFAULT 1
) $clustered;
CREATE TABLE IF NOT EXISTS idempotency (
    caller TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    owner TEXT NOT NULL,
    token TEXT NOT NULL,
    exchange_entry_id TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (caller, idempotency_key)
) $clustered;
CREATE TABLE IF NOT EXISTS session_owners (
    session_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS task_owners (
    task_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS breakers (
    provider_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    failures BIGINT NOT NULL,
    open BIGINT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    trials BIGINT NOT NULL,
    trials_until_ms BIGINT NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    PRIMARY KEY (provider_id, model_id)
);
CREATE TABLE IF NOT EXISTS virtual_keys (
    key_id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    prefix TEXT NOT NULL,
    user_id TEXT NOT NULL,
    team_id TEXT NOT NULL,
    organisation_id TEXT NOT NULL,
    models TEXT NOT NULL,
    agents TEXT NOT NULL,
    tiers TEXT NOT NULL,
    created TEXT NOT NULL,
    expires TEXT NOT NULL,
    rotated TEXT NOT NULL,
    old_until TEXT NOT NULL,
    revoked TEXT NOT NULL,
    revoked_entry TEXT NOT NULL,
    hash TEXT NOT NULL,
    old_hash TEXT NOT NULL,
    changed BIGINT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS virtual_keys_hash ON virtual_keys (hash);
CREATE UNIQUE INDEX IF NOT EXISTS virtual_keys_name ON virtual_keys (name) WHERE revoked = '';
CREATE INDEX IF NOT EXISTS virtual_keys_changed ON virtual_keys (changed);
CREATE TABLE IF NOT EXISTS key_epoch (epoch BIGINT NOT NULL);
INSERT INTO key_epoch SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM key_epoch);
CREATE TABLE IF NOT EXISTS leases (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    stop BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS thoughts (
    seq BIGINT NOT NULL PRIMARY KEY,
    task_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    thought_id TEXT NOT NULL UNIQUE,
    prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (task_id, position)
);
"""

_RESPONSES = """
CREATE TABLE response_ids (
    response_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    entry_id TEXT NOT NULL
);
"""

# Files and batches at providers, with their owners, and the pending lines of batches.
_OBJECTS = """
CREATE TABLE provider_objects (
    object_id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    entry_id TEXT NOT NULL
);
CREATE INDEX provider_objects_owner ON provider_objects (owner, kind);
CREATE TABLE batches (
    batch_id TEXT NOT NULL PRIMARY KEY,
    provider_id TEXT NOT NULL,
    caller TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    dispatch_entry_id TEXT NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE TABLE batch_lines (
    batch_id TEXT NOT NULL,
    custom_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    endpoint TEXT NOT NULL,
    model_id TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    tokens_in BIGINT NOT NULL,
    nano BIGINT NOT NULL,
    PRIMARY KEY (batch_id, custom_id)
);
"""

# From here on the record vouches for each entry's subject.
_SUBJECTS = """
INSERT INTO ledger_info
    SELECT 'subjects_before', CAST((SELECT max(seq) + 1 FROM entries) AS TEXT)
    WHERE EXISTS (SELECT 1 FROM content_subjects);
"""

# What calls used and cost, by quarter of an hour, and whose keys they were made with. A migration
# fills both from the entries.
_USAGE = f"""
CREATE TABLE usage (
    quarter $int NOT NULL,
    {" TEXT NOT NULL, ".join(DIMENSIONS)} TEXT NOT NULL,
    {" $int NOT NULL, ".join(SUMS)} $int NOT NULL,
    PRIMARY KEY (quarter, {", ".join(DIMENSIONS)})
) $clustered;
CREATE TABLE usage_keys (
    key_id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    team_id TEXT NOT NULL,
    organisation_id TEXT NOT NULL
) $clustered;
"""

# Orders in the queue or set aside. Entries record the work and its outcome.
_ORDERS = """
CREATE TABLE orders (
    order_id TEXT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    priority BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    state TEXT NOT NULL,
    due_ms BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    worker TEXT NOT NULL,
    stop BIGINT NOT NULL,
    held_by TEXT NOT NULL,
    waits_for TEXT NOT NULL,
    announced BIGINT NOT NULL
);
CREATE INDEX orders_ready ON orders (queue, priority, seq) WHERE state = 'ready';
CREATE INDEX orders_due ON orders (due_ms) WHERE state = 'delayed';
CREATE INDEX orders_held ON orders (queue, held_by, priority, seq) WHERE state = 'held';
CREATE INDEX orders_running ON orders (worker) WHERE state = 'running';
CREATE INDEX orders_waiting ON orders (seq) WHERE state = 'waiting';
CREATE TABLE order_starts (
    lane TEXT NOT NULL PRIMARY KEY,
    next_ms BIGINT NOT NULL
);
"""

# Paths without a model call that a key may use, and those of them without a price.
_KEYS_PATHS = """
ALTER TABLE virtual_keys ADD COLUMN $absent pass_through TEXT NOT NULL DEFAULT '[]';
ALTER TABLE virtual_keys ADD COLUMN $absent pass_through_unpriced TEXT NOT NULL DEFAULT '[]';
"""

# Each index costs every call a page, and only rare queries compare these columns alone.
_FEWER_INDEXES = "".join(
    f"DROP INDEX IF EXISTS entries_{name};\n"
    for name in ("agent_id", "tier", "contract_id", "framework_id", "model_id", "outcome")
)

_LAYOUTS = {
    1: _ENTRIES, 2: _CONTENT, 3: _STATE, 4: _RESPONSES + _OBJECTS, 5: _SUBJECTS, 6: _USAGE,
    7: _ORDERS, 8: _KEYS_PATHS, 9: _FEWER_INDEXES,
}  # fmt: skip


def declare(words: Mapping[str, str], *layouts: int) -> str:
    """Return the SQL that makes the tables and indexes of ``layouts``; of all if none is given.

    Views, statistics and the text index are not included.

    Args:
        words: the engine's words for the placeholders of the declarations: :data:`SQLITE` or
            :data:`POSTGRES`.
        layouts: versions of the layout, in order; an unknown one raises KeyError.
    """
    return "".join(Template(_LAYOUTS[version]).substitute(words) for version in layouts or _LAYOUTS)


class Column(NamedTuple):
    """A declared column of a table of the ledger's database, for both engines; immutable.

    Attributes:
        name: name of the column.
        postgres_type: ``text``, ``bigint`` or ``bytea``.
        nullable: True if the column may be NULL.
        default: SQL text of the default; empty if there is none.
        is_key: True if the column is part of the primary key.
        other_type: a second type that SQLite stores in the column: ``blob``, or empty for none.
    """

    name: str
    postgres_type: str
    nullable: bool
    default: str
    is_key: bool = False
    other_type: str = ""


_POSTGRES_TYPES = {"INTEGER": "bigint", "BIGINT": "bigint", "BLOB": "bytea"}


def _tables(*layouts: int) -> dict[str, tuple[Column, ...]]:
    """Return the columns of each table, as SQLite reads the declarations."""
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(declare(SQLITE, *layouts))
        names = [name for (name,) in scratch.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"
        )]  # fmt: skip
        return {
            table: tuple(
                Column(
                    name,
                    _POSTGRES_TYPES.get(kind, "text"),
                    not required and not key,
                    default or "",
                    bool(key),
                    "" if kind else "blob",
                )
                for _, name, kind, required, default, key in scratch.execute(
                    f"PRAGMA table_info({table})"
                )
            )
            for table in names
        }


TABLES = _tables(1, 2, 6)
"""The tables of the record, and of content, tree, checkpoints and usage."""

STATE_TABLES = _tables(3, 4, 7, 8)
"""The tables of state next to the record."""


def refuse_views(views: Iterable[str], location: str) -> None:
    """Raise LedgerFormatError if a view has a table's name, in any case: reading it may never end.

    Args:
        views: names of all views of the database.
        location: the place of the ledger, for the message.
    """
    tables = {*TABLES, *STATE_TABLES}
    if found := sorted(tables.intersection(map(str.lower, views))):
        raise LedgerFormatError(
            f"The ledger {location} has a view in the place of the table {found[0]}.",
            next_step="Remit does not read the view. Keep a copy of the database as it is, and "
            "compare it with a backup.",
        )


DROPPED = {"budgets": ("closed",)}
"""Columns of state that an older layout had, by table: a migration drops them."""
