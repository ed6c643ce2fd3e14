"""Rows of the ledger's own tables that are not what a writer leaves: each is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remit.ledger import Content, LedgerClient, LedgerEntry
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, outside

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


def _fill(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        conversation(client, "SES-A", 3)
        conversation(client, "SES-B", 2)
        for text in (b'{"a":1,"a":2}', b'{"a":1,"a":"%s"}' % (b"x" * 20_000)):
            client.write(LedgerEntry("E", "S", "D", "r", metadata={"x": Content.exact(text)}))
        client.checkpoint()


def _problems(target: str) -> list[str]:
    with LedgerClient(target, create=False, verifier_key=SIGNER.verifier_key) as client:
        return [str(problem) for problem in client.verify().problems]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "ledger.db"
    _fill(str(path))
    assert _problems(str(path)) == []
    return path


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    url = postgres.database()
    _fill(url)
    assert _problems(url) == []
    return url


@pytest.mark.parametrize("what", [*BOTH, *FILE])
def test_a_row_of_a_file_is_found(file: Path, tmp_path: Path, what: str) -> None:
    path = str(shutil.copy(file, tmp_path / "ledger.db"))
    outside(path, *(BOTH | FILE)[what].replace("{blob}", "zeroblob(32)").split(";; "))
    assert _problems(path)


@pytest.mark.parametrize("what", BOTH)
def test_a_row_of_a_database_is_found(postgres: PostgresServer, database: str, what: str) -> None:
    url = postgres.database(database)
    try:
        outside(url, *BOTH[what].replace("{blob}", "''::bytea").split(";; "))
        assert _problems(url)
    finally:
        postgres.drop(url)
