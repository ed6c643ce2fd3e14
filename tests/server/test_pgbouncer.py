"""Gateways that reach PostgreSQL through the real PgBouncer, in transaction mode."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.ledger.postgres.connection import without_settings
from tests.server.running import new_session, serving
from tests.support.pgbouncer import PROGRAM, PgBouncer
from tests.support.postgres import PostgresServer, run_sql
from tests.support.roots import new_root
from tests.support.upstream import Upstream
from tests.support.waiting import until

_CALLS = 24
_LIMIT, _COST = 200, 4  # tokens; one call reserves 173
_IGNORED = (
    "ignore_startup_parameters = search_path, lock_timeout, idle_in_transaction_session_timeout, "
    "synchronous_commit, bytea_output\n"
)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


def test_processes_append_through_it_and_outlive_its_restart(
    upstream: Upstream, postgres: PostgresServer, tmp_path: Path
) -> None:
    direct = postgres.database()
    root = new_root(tmp_path / "root", database=direct)
    with (
        PgBouncer(direct) as bouncer,
        serving(root, upstream.url, database=bouncer.url) as one,
        serving(root, upstream.url, database=bouncer.url) as two,
        ThreadPoolExecutor(4) as threads,
    ):
        key = one.key(tokens=_LIMIT)  # for a part of the calls
        until(lambda: two.ask("GET", "/v1/models", token=key.key)[0] == 200)

        def call(number: int) -> int:
            time.sleep(number % 3 * 0.01)
            if number == _CALLS // 3:
                bouncer.kill()
                time.sleep(0.3)
                bouncer.start()
            served = (one, two)[number % 2]
            return served.call("openai", "hi", session=new_session(), token=key.key)[0]

        statuses = list(threads.map(call, range(_CALLS)))
        assert {200, 402} <= set(statuses) <= {200, 402, 503}, statuses
        assert one.call("openai", "it is back")[0] == two.call("openai", "it is back")[0] == 200
        ((spent, reserved),) = run_sql(
            direct,
            "SELECT spent_tokens, reserved_tokens FROM budgets "
            f"WHERE scope LIKE '%{key.key_id}%' AND token_limit = {_LIMIT}",
        )
        assert statuses.count(200) * _COST <= spent <= _LIMIT
        assert reserved == 0
    with LedgerClient(direct) as ledger:
        assert ledger.verify().verified


@pytest.mark.parametrize("settings", ["", _IGNORED])
def test_every_transaction_has_its_settings(postgres: PostgresServer, settings: str) -> None:
    """Also where PgBouncer drops what it does not know instead of refusing it."""
    direct = postgres.database()
    run_sql(direct, "CREATE SCHEMA tenant1")
    asked = ("search_path", "lock_timeout", "idle_in_transaction_session_timeout",
             "synchronous_commit", "bytea_output", "timezone")  # fmt: skip
    with PgBouncer(direct, sessions=2, settings=settings) as bouncer:
        url = f"{bouncer.url}&search_path=tenant1"
        with LedgerClient(url) as ledger, LedgerClient(bouncer.url) as other:
            for client, schema in ((ledger, "tenant1"), (other, '"$user", public')):
                found = client.transact(
                    lambda tx: [tx.execute(f"SHOW {name}")[0][0] for name in asked]
                )
                assert found == [schema, "30s", "4s", "on", "hex", "UTC"]
                assert client.select("SELECT current_setting('transaction_read_only')") == [("on",)]
                assert client.verify().verified
                assert client.compact() == ""
    postgres.drop(direct)


def test_settings_are_taken_out_of_a_url() -> None:
    assert without_settings("postgresql://u@h1,h2/d?sslmode=require&search_path=a%2C%20b") == (
        "postgresql://u@h1,h2/d?sslmode=require",
        {"search_path": "a, b"},
    )
    assert without_settings("postgresql://u:p%25:@s@h:1/?database=d&ssl=require") == (
        "postgresql://u:p%25%3A%40s@h:1/?dbname=d&sslmode=require",
        {},
    )
    assert without_settings("postgresql://h/d") == ("postgresql://h/d", {})
