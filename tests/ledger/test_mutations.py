"""No edit of a ledger's database past Remit goes unnoticed, but of what carries no weight.

A representative part, each column once: ``python -m tests.ledger.mutations --all`` is the whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerEntry, ledger_key
from remit.ledger.archive import archive, check_archive
from remit.runtime.state import carried_state, check_state
from tests.ledger.archive.writing import unguarded
from tests.ledger.mutations import Mutation, found_in, is_listed, mutations, no_weight
from tests.ledger.rich_root import Rich, make
from tests.support.postgres import PostgresServer
from tests.support.stores import conversation, outside


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def rich(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rich:
    root = tmp_path_factory.mktemp("rich") / "root"
    if request.param == "sqlite":
        return make(root)
    server: PostgresServer = request.getfixturevalue("postgres")
    return make(root, server.database())


def _each_column_once(store: str) -> list[Mutation]:
    """One edit of each column, row and declaration, but of what nobody relies on."""
    listed, rng = no_weight(), random.Random(7)
    wanted: dict[tuple[str, str], list[Mutation]] = {}
    for mutation in mutations(store, rows=1):
        wanted.setdefault((mutation.table, mutation.column), []).append(mutation)
    # An engine refuses some of them; another column's null or number says nothing.
    told = {"one character", "another row's", "+1", "one bit", "one", "a copy", "two", "case"}
    return [
        rng.choice([one for one in of if one.kind in told] or of)
        for of in wanted.values()
        if not all(is_listed(one, listed) for one in of)
    ]


def test_every_column_is_watched(
    rich: Rich, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = None if rich.is_sqlite else request.getfixturevalue("postgres")
    wanted = _each_column_once(rich.store)
    if not rich.is_sqlite:  # a database for each takes its time; all of it is the command's work
        wanted = [one for one in wanted if one.column not in ("declared", "rows swapped")][::8]
    listed = no_weight()
    missed = [
        found.mutation
        for found in found_in(rich, wanted, tmp_path, server)
        if found.outcome == "undetected" and not is_listed(found.mutation, listed)
    ]
    assert missed == []


_ATTACKS = (
    ("UPDATE virtual_keys SET role = 'admin' WHERE name = 'given'", "role is 'admin'"),
    ("UPDATE virtual_keys SET hash = '" + "ab" * 32 + "' WHERE name = 'given'", "hash is not"),
    ("UPDATE budgets SET spent_nano = 0 WHERE spent_nano > 0", "spent_nano of key:"),
    ("UPDATE budgets SET token_limit = 1000000000000 WHERE token_limit > 500", "token_limit of"),
    ("UPDATE session_owners SET owner = (SELECT min(owner) FROM session_owners)",
     "session_owners: SES-MUT"),
    ("UPDATE session_owners SET owner = (SELECT max(owner) FROM session_owners)",
     "session_owners: order:WO-MUT-"),
    ("UPDATE idempotency SET exchange_entry_id = (SELECT i.exchange_entry_id FROM idempotency i "
     "WHERE i.caller <> idempotency.caller LIMIT 1)", "idempotency: 'i0' of key:"),
)  # fmt: skip


@pytest.fixture
def copy(rich: Rich, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if rich.is_sqlite:
        place = tmp_path / "copy.db"
        outside(rich.store, "PRAGMA wal_checkpoint(TRUNCATE)")
        place.write_bytes(Path(rich.store).read_bytes())
        yield str(place)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.database(rich.store)
        yield url
        server.drop(url)


def test_attacks_are_named(rich: Rich, copy: str) -> None:
    with LedgerClient(copy, verifier_key=rich.key, checks=(check_state,)) as ledger:
        assert ledger.verify(deep=False).problems == []
        for sql, said in _ATTACKS:
            outside(copy, sql)
            found = [problem.message for problem in ledger.verify(deep=False).problems]
            assert any(said in one for one in found), (sql, found)


def test_attacks_are_named_after_entries_left(rich: Rich, copy: str, tmp_path: Path) -> None:
    """What state adds up to is checked as before: the record carries what the entries came to."""
    signer = ledger_key(Root(rich.root), default_settings().ledger).signer()
    with LedgerClient(copy, signer=signer, checks=(check_state,)) as ledger:
        for cut in (256, 512):
            done = archive(
                ledger,
                cut,
                tmp_path / "archive",
                by="ann",
                carry=carried_state,
                guard=unguarded,
                kind="jsonl",
            )
            assert done.entries > 20
            assert ledger.verify(deep=False).problems == []
            conversation(ledger, "SES-MUT0", 1)
            notes = [LedgerEntry("NOTE", "S", "D", "r") for _ in range(512)]
            ledger.write_many(notes)
        assert check_archive(ledger, [tmp_path / "archive"]).problems == []
        assert ledger.select("SELECT count(*) FROM thoughts")[0][0] > 0
        for sql, said in (
            *_ATTACKS[:4],
            ("UPDATE usage SET calls = calls + 1 WHERE session_id = 'SES-MUT0'", "usage of the"),
            ("DELETE FROM usage WHERE session_id = 'SES-MUT1'", "usage of the hour"),
        ):  # fmt: skip
            outside(copy, sql)
            found = [problem.message for problem in ledger.verify(deep=False).problems]
            assert any(said in one for one in found), (sql, found)
