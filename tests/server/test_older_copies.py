"""Stores that are put back, fail over or are reached through PgBouncer, under a running server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remit.ledger import LedgerClient
from remit.ledger.postgres.connection import without_settings
from remit.ledger.tlog import SignedCheckpoint
from tests.server.running import Served, new_session, serving
from tests.support.pgbouncer import PROGRAM, PgBouncer
from tests.support.postgres import PostgresServer, run_sql
from tests.support.processes import run_program
from tests.support.roots import new_root
from tests.support.upstream import Upstream
from tests.support.waiting import until


def _remit(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name[:6] != "REMIT_"}
    return run_program("-m", "remit", *arguments, "--root", str(root), environment=variables)


def _assert_refused(served: Served, missing: str) -> str:
    """No call gets through, and everybody is told the same."""
    status, answer, _ = served.call("openai", "once more")
    assert status == 503, answer
    message: str = json.loads(answer)["error"]["message"]
    assert missing in message
    assert "remit ledger fork --reason" in message
    status, answer, _ = served.ask("GET", "/readyz")
    assert status == 503
    assert json.loads(answer)["status"] == "not ready"
    assert missing in json.loads(answer)["reason"]
    return message


def test_a_file_put_back_under_a_server(upstream: Upstream, tmp_path: Path) -> None:
    root = tmp_path / "root"
    older, path = tmp_path / "older.db", root / "ledger.db"
    with serving(root, upstream.url, checked=False) as served:
        assert served.call("openai", "hello")[0] == 200
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(older)) as copy:
            source.backup(copy)
        assert served.call("openai", "this is paid")[0] == 200
        os.replace(older, path)
        for suffix in ("-wal", "-shm"):  # which belong to the newer one
            path.with_name(f"ledger.db{suffix}").unlink()
        _assert_refused(served, "while this process has it open")
        with closing(sqlite3.connect(path)) as file:
            (before,) = file.execute("SELECT count(*), max(size) FROM entries, checkpoints")
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(60)
        served.killed = True
        assert "Traceback" not in served.errors.read_text()
    started = _remit(root, "serve", "--port", "0")
    assert started.returncode != 0
    said = next(line for line in started.stderr.splitlines() if "older copy" in line)
    assert "are missing" in said
    assert "Traceback" not in started.stderr
    sentence = said[said.index("The ledger ") : said.index("are missing.") + 12]
    for command in (
        ("ledger", "verify"),
        ("doctor",),
        ("gate", "check", "--gate", "G6", "--enforce"),
    ):
        found = _remit(root, *command)
        assert found.returncode == 1, (command, found)
        assert sentence in (found.stdout + found.stderr).replace("\n", " "), (command, found)
        assert "Traceback" not in found.stderr
    for command in (("ledger", "checkpoint"), ("key", "create", "--name", "x")):
        found = _remit(root, *command)
        assert found.returncode != 0
        assert sentence in found.stderr.replace("\n", " "), (command, found)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*), max(size) FROM entries, checkpoints").fetchall() == [
            before
        ]
    assert _remit(root, "ledger", "fork", "--reason", "x").returncode != 0  # nobody said yes
    old_key = _remit(root, "ledger", "key").stdout.strip()
    done = _remit(root, "ledger", "fork", "--reason", "the disk burned", "--yes", "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    new_key = _remit(root, "ledger", "key").stdout.strip()
    assert report["verifier_key"] == new_key != old_key
    assert SignedCheckpoint.parse(report["checkpoint"]).checkpoint.origin == new_key.split("+")[0]
    with serving(root, upstream.url) as served:
        assert served.call("openai", "hello again")[0] == 200
        entry = served.ledger.read(report["entry_id"])
        assert entry.reason == "the disk burned"
        assert entry.metadata["fork"]["lost_spend"] == "unknown"


class _Load:
    """Calls without a pause, each in a session of its own, until it is stopped."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._stopped = threading.Event()
        self.statuses: dict[str, int] = {}
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            session = new_session()
            self.statuses[session] = self._served.call("openai", "hello", session=session)[0]

    def count(self, status: int) -> int:
        return list(self.statuses.values()).count(status)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def test_a_standby_takes_over(upstream: Upstream, tmp_path: Path) -> None:
    # Not below pytest's directory: the database's server is another user.
    place = Path(tempfile.mkdtemp(prefix="remit-failover-"))
    servers = [PostgresServer(place / "one")]
    try:
        one = servers[0]
        direct = one.database()
        root = new_root(tmp_path / "root", "\n[ledger]\nlock_timeout_s = 3\n", database=direct)
        servers.append(two := one.standby(place / "two"))
        one.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        one.execute("SELECT pg_reload_conf()")
        hosts = ",".join(str(place / name) for name in ("one", "two", "three"))
        url = f"{direct.partition('?')[0]}?host={hosts}&target_session_attrs=read-write"
        with serving(root, upstream.url, database=url, checked=False) as served:
            load = _Load(served)
            try:
                until(lambda: load.count(200) > 3)
                _kill(one, servers)
                # Who was there waits for its end; who comes after a second is refused at once.
                until(lambda: served.ask("GET", "/readyz")[0] == 503)
                time.sleep(1.2)
                assert served.call("openai", "in between")[0] == 503
                two.execute("SELECT pg_promote()")
                before = load.count(200)
                until(lambda: load.count(200) > before + 3)  # by themselves
            finally:
                load.stop()
            assert set(load.statuses.values()) <= {200, 503}
            answered = {session for session, status in load.statuses.items() if status == 200}
            kept = [
                entry.metadata["session_id"] for entry in served.ledger.query(event_type="EXCHANGE")
            ]
            assert answered <= set(kept)
            assert len(kept) == len(set(kept))
            assert served.ledger.verify().verified
            _assert_a_late_standby_is_not_written(served, two, place, servers)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(place, ignore_errors=True)


def _kill(server: PostgresServer, servers: list[PostgresServer]) -> None:
    server.kill()
    servers.remove(server)


def _assert_a_late_standby_is_not_written(
    served: Served, two: PostgresServer, place: Path, servers: list[PostgresServer]
) -> None:
    """One that does not have what was acknowledged last takes over from ``two``."""
    two.execute("ALTER SYSTEM RESET synchronous_standby_names")
    two.execute("SELECT pg_reload_conf()")
    servers.append(three := two.standby(place / "three"))
    three.execute("ALTER SYSTEM SET primary_conninfo = ''")
    three.execute("SELECT pg_reload_conf()")
    until(lambda: not run_sql(three.url, "SELECT pid FROM pg_stat_wal_receiver"))
    until(lambda: served.call("openai", "this is paid")[0] == 200)
    _kill(two, servers)
    three.execute("SELECT pg_promote()")
    name = urlsplit(served.store).path
    with LedgerClient(three.url.replace("/postgres?", f"{name}?")) as ledger:
        left = ledger.count()
        missing = f"it has {left} entries, and there were "
        until(lambda: missing.encode() in served.call("openai", "once more")[1])
        until(lambda: missing.encode() in served.ask("GET", "/readyz")[1])
        status, answer, _ = served.call("openai", "once more")
        assert status == 503
        assert "remit ledger fork --reason" in json.loads(answer)["error"]["message"]
        assert ledger.count() == left
    served.stop()
    assert "Traceback" not in served.errors.read_text()


_CALLS = 24
_LIMIT, _COST = 200, 4  # tokens; one call reserves 173
_IGNORED = (
    "ignore_startup_parameters = search_path, lock_timeout, idle_in_transaction_session_timeout, "
    "synchronous_commit, bytea_output\n"
)

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


@needs_pgbouncer
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


@needs_pgbouncer
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
