"""What there is in the database that a ledger does not have, or has otherwise, is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remit.ledger import Content, LedgerClient, LedgerEntry
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, outside

SQLITE = {
    "ALTER TABLE entries ADD COLUMN extra TEXT": "table entries",
    "ALTER TABLE leases ADD COLUMN extra TEXT": "table leases",
    "CREATE TABLE extra (x)": "table extra",
    "CREATE TABLE sqlitextra (x)": "table sqlitextra",
    "CREATE VIEW extra AS SELECT * FROM entries": "view extra",
    "CREATE INDEX extra ON contents (codec)": "index extra",
    "CREATE TRIGGER extra AFTER INSERT ON entries BEGIN SELECT 1; END": "trigger extra",
    "DROP INDEX entries_tier": "index entries_tier",
    "DROP INDEX virtual_keys_name": "index virtual_keys_name",
    "DROP VIEW entry_messages": "view entry_messages",
    "DROP VIEW entry_contents;; CREATE VIEW entry_contents AS SELECT 1": "view entry_contents",
    "DROP TABLE raised_bounds": "table raised_bounds",
    "DROP TABLE raised_bounds;; CREATE TABLE raised_bounds (provider_id TEXT NOT NULL, model_id "
    "TEXT NOT NULL, percent BIGINT NOT NULL DEFAULT 7, PRIMARY KEY (provider_id, model_id))":
        "table raised_bounds",
    "DROP TABLE leases;; CREATE TABLE leases (name TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, "
    "until_ms BIGINT NOT NULL, stop BIGINT NOT NULL DEFAULT ' 0')": "table leases",
    "DROP TABLE session_owners;; CREATE TABLE session_owners (session_id TEXT "
    '"NOT NULL PRIMARY KEY", owner TEXT NOT NULL)': "table session_owners",
    "DROP TABLE session_owners;; CREATE TABLE session_owners (session_id TEXT "
    '"not" "null" "primary" "key", owner TEXT NOT NULL)': "table session_owners",
    "CREATE INDEX extra ON contents (value);; PRAGMA writable_schema=ON;; UPDATE sqlite_schema SET "
    "name = 'sqlite_extra', sql = replace(sql, 'extra', 'sqlite_extra') WHERE name = 'extra'":
        "index sqlite_extra",
    "CREATE TABLE extra (x);; PRAGMA writable_schema=ON;; UPDATE sqlite_schema SET "
    "name = 'sqlite_extra', tbl_name = 'sqlite_extra', sql = 'CREATE TABLE sqlite_extra(x)' "
    "WHERE name = 'extra'": "table sqlite_extra",
    "CREATE TABLE content_search_more (x)": "table content_search_more",
    "DROP TABLE content_search": "",
    "PRAGMA journal_mode=DELETE": "its journal is no write-ahead log",
}  # fmt: skip

POSTGRES = {
    "ALTER TABLE entries ADD COLUMN extra text": "column extra",
    "ALTER TABLE entries DROP COLUMN outcome": "column outcome",
    "ALTER TABLE contents ALTER COLUMN codec DROP NOT NULL": "column contents.codec",
    "ALTER TABLE batches ALTER COLUMN caller TYPE varchar(400)": "column batches.caller",
    "ALTER TABLE budgets ALTER COLUMN turns SET DEFAULT 5": "column budgets.turns",
    'ALTER TABLE leases ALTER COLUMN owner TYPE text COLLATE "C"': "column leases.owner",
    "ALTER TABLE leases DROP COLUMN stop, ADD COLUMN stop bigint NOT NULL GENERATED ALWAYS AS (0) "
    "STORED": "column leases.stop",
    "ALTER TABLE leases SET UNLOGGED": "table leases is not kept for good",
    "ALTER TABLE leases ENABLE ROW LEVEL SECURITY": "row security on leases",
    "ALTER TABLE leases REPLICA IDENTITY FULL": "replica identity of leases",
    "CREATE POLICY extra ON entries USING (true)": "policy extra",
    "CREATE RULE extra AS ON UPDATE TO entries DO INSTEAD NOTHING": "rule extra",
    "CREATE TABLE extra () INHERITS (entries)": "inheritance of extra from entries",
    "CREATE SCHEMA away;; CREATE TABLE away.extra () INHERITS (entries)": "inheritance of extra",
    "ALTER TABLE leases ADD CONSTRAINT extra CHECK (stop >= 0)": "constraint extra",
    "CREATE FUNCTION extra() RETURNS int LANGUAGE sql AS 'SELECT 1'": "function extra",
    "CREATE FUNCTION extra() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';; "
    "CREATE TRIGGER extra BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION extra()":
        "trigger extra",
    "ALTER TABLE thoughts DROP CONSTRAINT thoughts_thought_id_key;; ALTER TABLE thoughts ADD "
    "CONSTRAINT thoughts_thought_id_key UNIQUE (thought_id) DEFERRABLE":
        "constraint thoughts_thought_id_key",
    "CREATE SCHEMA away;; CREATE TABLE away.extra (k text REFERENCES virtual_keys "
    "ON DELETE CASCADE)": "foreign key extra_k_fkey",
    "CREATE STATISTICS extra (mcv) ON scope, value FROM contents": "statistics object extra",
    "ALTER TABLE contents ALTER value SET STATISTICS 100": "sample of contents.value",
    "CREATE SCHEMA away;; CREATE FUNCTION away.yes(text, varchar) RETURNS boolean LANGUAGE sql "
    "AS 'SELECT true';; CREATE OPERATOR = (leftarg = text, rightarg = varchar, "
    "function = away.yes)": "operator =",
    "CREATE TABLE extra (x int)": "table extra",
    "CREATE MATERIALIZED VIEW extra AS SELECT 1": "materialized view extra",
    "CREATE SEQUENCE extra": "sequence extra",
    "CREATE VIEW extra AS SELECT 1": "view extra",
    "CREATE INDEX extra ON contents (codec)": "index extra",
    "DROP INDEX entries_tier": "index entries_tier",
    "DROP INDEX entries_tier;; CREATE INDEX entries_tier ON entries (outcome, seq) "
    "WHERE tier IS NOT NULL": "index entries_tier",
    "DROP INDEX entries_tier;; CREATE INDEX entries_tier ON entries (tier, seq)":
        "index entries_tier",
    "ALTER TABLE thoughts DROP CONSTRAINT thoughts_thought_id_key": "thoughts_thought_id_key",
    "ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_pkey": "checkpoints_pkey",
    "DROP INDEX content_search_words": "index content_search_words",
    "DROP VIEW entry_messages": "view entry_messages",
    "CREATE OR REPLACE VIEW entry_contents AS SELECT e.seq, e.id, e.event_type, e.session_id, "
    "e.path, 'text'::text AS codec, 'x'::text AS value FROM entry_commitments AS e":
        "view entry_contents",
}  # fmt: skip


@pytest.fixture(scope="module")
def sqlite_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layout") / "ledger.db"
    _fill(str(path))
    return path


@pytest.fixture(scope="module")
def postgres_ledger(postgres: PostgresServer) -> str:
    url = postgres.database()
    _fill(url)
    return url


def _fill(target: str) -> None:
    with LedgerClient(target) as client:
        conversation(client, "SES-AAAAAAAA", 2)
        assert len(list(client.query(text="question"))) == 2  # makes the text index
        assert client.verify().problems == []


def _problems(target: str) -> list[str]:
    with LedgerClient(target, create=False) as client:
        return [str(problem) for problem in client.verify().problems]


@pytest.mark.parametrize("sql", SQLITE)
def test_a_changed_file_is_named(sqlite_ledger: Path, tmp_path: Path, sql: str) -> None:
    path = shutil.copy(sqlite_ledger, tmp_path / "ledger.db")
    outside(str(path), *sql.split(";; "))
    found = _problems(str(path))
    if SQLITE[sql]:
        assert any(SQLITE[sql] in problem for problem in found), found
    else:
        assert found == []  # made again by the next search


@pytest.mark.parametrize("sql", POSTGRES)
def test_a_changed_store_is_named(postgres: PostgresServer, postgres_ledger: str, sql: str) -> None:
    url = postgres.database(postgres_ledger)
    try:
        outside(url, *sql.split(";; "))
        found = _problems(url)
        assert any(POSTGRES[sql] in problem for problem in found), found
    finally:
        postgres.drop(url)


# -- Rows of the ledger's own tables that are not what a writer leaves: each is found ------------


BOTH = {
    "a step that no entry names": "INSERT INTO message_steps SELECT 900, step, parent_id, "
        "content_id, commitment, position FROM message_steps WHERE step_id = 3",
    "a checkpoint of less than nothing":
        "INSERT INTO checkpoints SELECT -1, created, note FROM checkpoints WHERE size = 7",
    "a checkpoint under another size": "UPDATE checkpoints SET size = 5 WHERE size = 7",
    "another ledger's key": "UPDATE ledger_info SET value = value || 'x' "
        "WHERE name = 'verifier_key'",
    "no key": "DELETE FROM ledger_info WHERE name = 'verifier_key'",
    "something else that the ledger says of itself": "INSERT INTO ledger_info VALUES ('x', 'y')",
    "a tree hash before the first": "INSERT INTO tree_hashes VALUES (1, -1, {blob})",
    "a text as JSON": "UPDATE contents SET codec = 'json', value = '\"' || value || '\"' "
        "WHERE value = 'answer 1 of SES-A'",
    "an exact text as JSON": "UPDATE contents SET codec = 'json' WHERE codec = 'exact'",
    "a value noted twice": "INSERT INTO contents SELECT 900, commitment, 's:other', digest, nonce, "
        "bytes, codec, value FROM contents WHERE content_id = 1;; "
        "INSERT INTO shown_contents VALUES (0, 900)",
}  # fmt: skip
FILE = {
    "a layout of another version": "UPDATE migrations SET version = version + 90",
    "no layout": "DELETE FROM migrations",
    "a text as bytes": "UPDATE contents SET value = CAST(value AS BLOB) WHERE content_id = 2",
    "JSON as bytes": "UPDATE contents SET value = CAST(value AS BLOB) WHERE content_id = 1",
    "a value shown between two entries": "INSERT INTO shown_contents VALUES (2.5, 1)",
    "a list shown between two entries": "INSERT INTO shown_lists VALUES (2.5, 1)",
    "a value shown after the last": "INSERT INTO shown_contents VALUES (6.5, 1)",
    "a tree hash between two": "INSERT INTO tree_hashes VALUES (1, 0.5, zeroblob(32))",
    "white space in stored JSON": "UPDATE contents SET value = ' ' || value WHERE content_id = 1",
    "a key twice in stored JSON":
        "UPDATE contents SET value = '{\"role\":\"x\",' || substr(value, 2) WHERE content_id = 1",
    "bytes after a compressed value": "UPDATE contents SET value = value || x'00' "
        "WHERE codec = 'exact+zlib'",
}  # fmt: skip


def _fill_rows(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        conversation(client, "SES-A", 3)
        conversation(client, "SES-B", 2)
        for text in (b'{"a":1,"a":2}', b'{"a":1,"a":"%s"}' % (b"x" * 20_000)):
            client.write(LedgerEntry("E", "S", "D", "r", metadata={"x": Content.exact(text)}))
        client.checkpoint()


def _problems_rows(target: str) -> list[str]:
    with LedgerClient(target, create=False, verifier_key=SIGNER.verifier_key) as client:
        return [str(problem) for problem in client.verify().problems]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "ledger.db"
    _fill_rows(str(path))
    assert _problems_rows(str(path)) == []
    return path


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    url = postgres.database()
    _fill_rows(url)
    assert _problems_rows(url) == []
    return url


@pytest.mark.parametrize("what", [*BOTH, *FILE])
def test_a_row_of_a_file_is_found(file: Path, tmp_path: Path, what: str) -> None:
    path = str(shutil.copy(file, tmp_path / "ledger.db"))
    outside(path, *(BOTH | FILE)[what].replace("{blob}", "zeroblob(32)").split(";; "))
    assert _problems_rows(path)


@pytest.mark.parametrize("what", BOTH)
def test_a_row_of_a_database_is_found(postgres: PostgresServer, database: str, what: str) -> None:
    url = postgres.database(database)
    try:
        outside(url, *BOTH[what].replace("{blob}", "''::bytea").split(";; "))
        assert _problems_rows(url)
    finally:
        postgres.drop(url)
