"""A standby of PostgreSQL takes over from a primary that was killed (docs/operations/backup.md)."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from remit.ledger import LedgerClient
from tests.server.running import Served, new_session, serving
from tests.support.postgres import PostgresServer, run_sql
from tests.support.roots import new_root
from tests.support.upstream import Upstream
from tests.support.waiting import until


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
