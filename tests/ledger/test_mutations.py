"""Verification is total: whatever is stored, it ends, reports, and names the row that was edited.

Columns that carry no weight are those that ``docs/ledger-format.md`` lists. `make test` edits some
columns once; a soak edits each to every type.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerEntry, ledger_key
from remit.ledger.archive import archive, check_archive
from remit.runtime.state import carried_state, check_state
from tests.ledger.archive.writing import unguarded
from tests.ledger.mutations import Mutation, found_in, is_wrong, mutations, no_weight, shown
from tests.ledger.rich_root import Rich, make
from tests.support.postgres import PostgresServer
from tests.support.soak import SEED, is_soak, sample
from tests.support.stores import conversation, outside


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def rich(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rich:
    root = tmp_path_factory.mktemp("rich") / "root"
    if request.param == "sqlite":
        return make(root)
    server: PostgresServer = request.getfixturevalue("postgres")
    return make(root, server.database())


def _some(every: list[Mutation], count: int) -> list[Mutation]:
    """Edits of so many columns, one of each; every edit in a soak."""
    if is_soak():
        return every
    rng = random.Random(SEED)
    wanted: dict[tuple[str, str], list[Mutation]] = {}
    for mutation in every:
        wanted.setdefault((mutation.table, mutation.column), []).append(mutation)
    return sample([rng.choice(of) for of in wanted.values()], count)


@pytest.mark.soak
def test_every_verification_ends_and_names_the_row(
    rich: Rich, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = None if rich.is_sqlite else request.getfixturevalue("postgres")
    every = mutations(rich.store, rows=1)
    if not rich.is_sqlite and not is_soak():  # each of a declaration has a database of its own
        every = [one for one in every if one.column != "declared"]
    wanted = _some(every, 120 if rich.is_sqlite else 40)
    listed = no_weight()
    found = found_in(rich, wanted, tmp_path, server)
    if is_soak():
        print("\n".join(shown(found)))
    assert [one for one in found if is_wrong(one, listed)] == []


def test_only_what_carries_no_weight_is_listed(rich: Rich) -> None:
    """Each row of the list names a column or an edit that there is."""
    known = {(one.table, one.column) for one in mutations(rich.store, rows=1)}
    for table, columns in no_weight().items():
        for column in columns - {"*", "clock", "rows swapped"}:
            assert (table, column.partition("=")[0]) in known


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
     "WHERE i.caller <> idempotency.caller LIMIT 1)",
     r"^idempotency: '[^']+' of key:\S+ leads to another call's answer"),
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
            assert any(re.search(said, one) for one in found), (sql, found)


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
            assert any(re.search(said, one) for one in found), (sql, found)
