"""Verification is total: whatever is stored, it ends, reports, and names the row that was edited.

Columns that carry no weight are those that ``docs/ledger-format.md`` lists. `make test` edits some
columns once; a soak edits each to every type.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import default_settings
from remit.ledger import (
    STATE_TABLES,
    LedgerClient,
    LedgerEntry,
    Projection,
    audit_tables,
    ledger_key,
)
from remit.runtime.state_tables import NOT_DERIVED, PROJECTIONS, carried_state, check_state
from tests.ledger.mutations import Mutation, found_in, is_wrong, mutations, no_weight, shown
from tests.ledger.rich_root import Rich, make
from tests.ledger.segments.writing import cut_off
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
    wanted = _some(every, 24 if rich.is_sqlite else 8)
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
    ("UPDATE virtual_keys SET role = 'admin' WHERE name = 'given'", "is 'admin'"),
    ("UPDATE virtual_keys SET hash = '" + "ab" * 32 + "' WHERE name = 'given'", "is not that of"),
    ("UPDATE budgets SET spent_nano = 0 WHERE spent_nano > 0", "spent_nano of key:"),
    ("UPDATE budgets SET token_limit = 1000000000000 WHERE token_limit > 500", "token_limit of"),
    ("UPDATE session_owners SET owner = (SELECT min(owner) FROM session_owners)",
     "session_owners: owner of SES-MUT"),
    ("UPDATE session_owners SET owner = (SELECT max(owner) FROM session_owners)",
     "session_owners: owner of order:WO-MUT-"),
    ("UPDATE idempotency SET exchange_entry_id = (SELECT i.exchange_entry_id FROM idempotency i "
     "WHERE i.caller <> idempotency.caller LIMIT 1)",
     r"^idempotency: exchange_entry_id of key:\S+ is 'LED-\w+', which the ledger contradicts"),
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


def test_every_table_of_state_is_declared_as_given_by_entries_or_not() -> None:
    derived = {one.table for one in PROJECTIONS if one.stored}
    with_content = {"batches", "batch_lines", "thoughts"}
    assert not derived & {*NOT_DERIVED}
    assert {*STATE_TABLES, "usage", "usage_keys"} == (
        derived | {*NOT_DERIVED} | with_content | {"key_epoch"}
    )


def _other(value: Any) -> object:
    """A value of the same type as a stored one, and not equal to it."""
    if isinstance(value, str):
        return f"{value}x" if not value.startswith("LED-") else "LED-00000000"
    return 1 if value is None else value + 1


@pytest.mark.soak
def test_each_column_of_a_derived_table_is_compared(rich: Rich, copy: str) -> None:
    """One wrong value is planted in each column that entries give, and the comparer names it."""
    unweighed = no_weight()
    every = [(one, name) for one in PROJECTIONS if one.stored for name in (*one.key, *one.columns)
             if name not in unweighed.get(one.table, ())]  # fmt: skip
    assert len(every) > 80
    missed = []
    with LedgerClient(copy, verifier_key=rich.key) as ledger:
        assert audit_tables(ledger, PROJECTIONS).differences == []
        for one, name in sample(every, 8):
            names = tuple(dict.fromkeys((*one.key, name)))
            where = f" WHERE {one.where}" if one.where else ""
            row = ledger.select(f"SELECT {', '.join(names)} FROM {one.table}{where} LIMIT 1")[0]
            before = dict(zip(names, row, strict=True))
            after = {**before, name: _other(before[name])}
            _set(copy, one, name, before, after)
            found = audit_tables(ledger, PROJECTIONS).differences
            if not {(of.table, of.column) for of in found} & {
                (one.table, name), (one.table, "row"),
            }:  # fmt: skip
                missed.append((one.table, name, found))
            _set(copy, one, name, after, before)
        assert audit_tables(ledger, PROJECTIONS).differences == []
    assert missed == []


def _set(
    store: str, one: Projection, name: str, row: dict[str, object], other: dict[str, object]
) -> None:
    of = " AND ".join(f"{key} = {quoted(row[key])}" for key in one.key)
    outside(store, f"UPDATE {one.table} SET {name} = {quoted(other[name])} WHERE {of}")


def quoted(value: object) -> str:
    """An SQL literal."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def test_attacks_are_named_after_entries_left(rich: Rich, copy: str, tmp_path: Path) -> None:
    """What state adds up to is checked as before: the record carries what the entries came to."""
    signer = ledger_key(Root(rich.root), default_settings().ledger).signer()
    with LedgerClient(copy, signer=signer, checks=(check_state,)) as ledger:
        for cut in (256, 512):
            done = cut_off(ledger, tmp_path / "archive", cut, carried_state)
            assert done.entries > 20
            assert ledger.verify(deep=False).problems == []
            conversation(ledger, "SES-MUT0", 1)
            notes = [LedgerEntry("NOTE", "S", "D", "r") for _ in range(512)]
            ledger.write_many(notes)
        with LedgerClient(copy, verifier_key=signer.verifier_key) as whole:
            whole.attach([tmp_path / "archive"])
            assert whole.verify(deep=False).problems == []
        assert ledger.select("SELECT count(*) FROM thoughts")[0][0] > 0
        for sql, said in (
            *_ATTACKS[:4],
            ("UPDATE usage SET calls = calls + 1 WHERE session_id = 'SES-MUT0'", "^usage of the"),
            ("DELETE FROM usage WHERE session_id = 'SES-MUT1'", "usage of the hour"),
        ):  # fmt: skip
            outside(copy, sql)
            found = [problem.message for problem in ledger.verify(deep=False).problems]
            assert any(re.search(said, one) for one in found), (sql, found)
