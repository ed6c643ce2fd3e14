"""What is sent together to PostgreSQL: cut anywhere, refused anywhere, with whatever in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.settings import default_settings
from remit.ledger import (
    LedgerClient,
    LedgerConnectionError,
    LedgerEntry,
    LedgerWriteError,
    Transaction,
)
from tests.support.cutting import CuttingProxy, Side
from tests.support.postgres import PostgresServer, run_sql

_QUICK = default_settings().ledger.model_copy(update={"lock_timeout_s": 0.6})


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    new = postgres.database()
    yield new
    postgres.drop(new)


def _entry(number: int) -> LedgerEntry:
    messages = [{"role": "user", "content": f"{place}"} for place in range(number % 3 + 1)]
    return LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-A", "prompt": messages})


@pytest.mark.parametrize("sender", ["client", "server"])
def test_a_connection_cut_at_any_message_of_a_batch(url: str, tmp_path: Path, sender: Side) -> None:
    with CuttingProxy(url, tmp_path / "p") as proxy, LedgerClient(proxy.url) as client:
        client.transact(lambda tx: tx.execute("CREATE TABLE counter (n BIGINT)"))
        client.transact(lambda tx: tx.execute("INSERT INTO counter VALUES (0)"))
        done = 0

        def count(tx: Transaction) -> None:
            tx.execute_many("UPDATE counter SET n = n + ?", [(1,)])

        def both(tx: Transaction) -> str:
            tx.execute("SELECT n FROM counter")
            count(tx)
            return tx.append(_entry(done))

        uncut = 0
        while uncut < 2:  # until the cut would come after everything of the batch
            proxy.cut(sender, done)
            before = proxy.cuts
            assert client.transact(both) == f"LED-{done:08x}"
            done += 1
            uncut = uncut + 1 if proxy.cuts == before else 0
        assert done > 20
        for place in range(12):  # nothing but state, whose commit only a mark shows
            proxy.cut(sender, place * 2)
            client.transact(count)
        proxy.cut("client", 1 << 30)
        assert client.select("SELECT n FROM counter") == [(done + 12,)]
        assert client.count() == done
        client.transact(lambda tx: tx.execute("DROP TABLE counter"))  # not a ledger's
        assert client.verify().verified


def test_a_server_that_says_nothing_is_given_up(url: str, tmp_path: Path) -> None:
    with (
        CuttingProxy(url, tmp_path / "p") as proxy,
        LedgerClient(proxy.url, settings=_QUICK) as client,
    ):
        client.write(_entry(0))
        proxy.stall(True)
        started = time.monotonic()
        with pytest.raises(LedgerConnectionError):
            client.write(_entry(1))
        assert time.monotonic() - started < 30
        proxy.stall(False)
        client.write(_entry(2))
        assert client.verify().verified


_REFUSED: list[tuple[str, tuple[Any, ...]]] = [
    ("INSERT INTO kept VALUES (?, 'x')", (1 << 70,)),
    ("INSERT INTO kept VALUES (?, 'x')", ("no number",)),
    ("INSERT INTO kept VALUES (1, ?)", ("a\x00b",)),
    ("INSERT INTO kept VALUES (1, ?)", ("a\ud800b",)),
    ("INSERT INTO kept VALUES (1, ?)", (object(),)),
    ("INSERT INTO kept VALUES (0, 'twice')", ()),
    ("INSERT INTO kept VALUES (1, ?", ("x",)),
    ("SELECT 1 / n FROM kept", ()),
    ("SELECT nothing FROM nowhere", ()),
]


@pytest.mark.parametrize("waits", [True, False])
def test_a_refused_statement_undoes_its_own_unit_alone(url: str, waits: bool) -> None:
    with LedgerClient(url) as client:
        client.transact(lambda tx: tx.execute("CREATE TABLE kept (n BIGINT PRIMARY KEY, t TEXT)"))
        client.transact(lambda tx: tx.execute("INSERT INTO kept VALUES (0, '')"))
        for done, (sql, parameters) in enumerate(_REFUSED, 1):

            def refused(
                tx: Transaction, sql: str = sql, parameters: tuple[Any, ...] = parameters
            ) -> None:
                tx.append(_entry(1))
                tx.execute_many("INSERT INTO kept VALUES (?, ?)", [(7, "undone")])
                if waits:
                    tx.execute(sql, parameters)
                else:
                    tx.execute_many(sql, [parameters])

            for _ in range(2):  # the second time, what was prepared is known
                with pytest.raises(LedgerWriteError, match="refused a statement"):
                    client.transact(refused)
                client.write(_entry(2))
            assert client.select("SELECT * FROM kept") == [(0, "")], sql
            assert client.count() == 2 * done, sql
        client.transact(lambda tx: tx.execute("DROP TABLE kept"))  # not a ledger's
        assert client.verify().verified


def test_statements_without_end_are_not_kept_without_end(url: str) -> None:
    with LedgerClient(url) as client:
        for number in range(3):
            rows = client.transact(
                lambda tx, first=number * 400: [
                    tx.execute(f"SELECT {first + place}") for place in range(400)
                ]
            )
            assert rows == [[(number * 400 + place,)] for place in range(400)]
        kept = client.transact(lambda tx: tx.execute("SELECT count(*) FROM pg_prepared_statements"))
        assert kept[0][0] < 1000


def test_a_commit_without_an_answer_is_not_said_to_have_failed(
    url: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    role = f"writer_{tmp_path.name}".lower()
    postgres.execute(f'CREATE ROLE "{role}" LOGIN SUPERUSER')
    most = 1 << 30
    try:
        with CuttingProxy(url, tmp_path / "p") as proxy:
            for before_end in (1, 2):  # the server is ready again; the commit is done
                postgres.execute(f'ALTER ROLE "{role}" LOGIN')
                given = f"postgresql://{role}@/{proxy.url.partition('@/')[2]}"
                with LedgerClient(given, settings=_QUICK) as client:
                    for _ in range(2):  # from then on every write takes as many messages
                        client.write(_entry(0))
                    proxy.cut("server", most)
                    client.write(_entry(0))
                    said = most - proxy._left["server"]
                    postgres.execute(f'ALTER ROLE "{role}" NOLOGIN')
                    proxy.cut("server", said - before_end)
                    count = run_sql(url, "SELECT count(*) FROM entries")[0][0]
                    with pytest.raises(LedgerConnectionError, match="while a commit was under way"):
                        client.write(_entry(0))
                    assert run_sql(url, "SELECT count(*) FROM entries") == [(count + 1,)]
    finally:
        postgres.drop(url)
        postgres.execute(f'DROP ROLE "{role}"')
        postgres.execute(f"CREATE DATABASE {url.partition('@/')[2].partition('?')[0]}")


def test_what_a_query_sets_or_locks_ends_with_it(url: str) -> None:
    with LedgerClient(url) as client:
        client.write(_entry(0))
        client.select("SELECT set_config('search_path', 'nowhere', false)")
        client.select("SELECT pg_advisory_lock(7)")
        assert client.select("SELECT count(*) FROM entries") == [(1,)]
        assert run_sql(url, "SELECT pg_try_advisory_lock(7)") == [(True,)]
