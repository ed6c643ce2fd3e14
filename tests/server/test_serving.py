"""Beginning, ending and being many: dev mode, drain, workers, health."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from remit.kernel.errors import RemitError
from remit.runtime import Runtime
from remit.server.app import App
from remit.server.listener import require_loopback
from tests.server.conftest import QUICK, Serve
from tests.server.running import PATHS, Served, ended_well, new_session, said, streaming
from tests.server.sdks import MODELS
from tests.support.processes import Program, run_program
from tests.support.roots import new_root
from tests.support.upstream import Upstream
from tests.support.waiting import until

RECOVERS = QUICK + "recover_every_s = 0.5\n"


def _children(process: int) -> set[int]:
    """The worker processes of a server."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            told = (place / "cmdline").read_bytes()
            if int(fields[1]) == process and fields[0] != "Z" and b"spawn_main" in told:
                found.add(int(place.name))
    return found


def _owners(served: Served) -> dict[int, list[str]]:
    """The calls that are out, by the process that sent them."""
    found: dict[int, list[str]] = {}
    for owner, entry_id in served.ledger.select("SELECT owner, dispatch_entry_id FROM in_flight"):
        found.setdefault(int(str(owner).split("|")[3]), []).append(str(entry_id))
    return found


def _metric(served: Served, token: str, pattern: str) -> int:
    """The sum of the samples of ``/metrics`` whose lines begin so."""
    status, body, _ = served.ask("GET", "/metrics", token=token)
    assert status == 200
    lines = [line for line in body.decode().splitlines() if re.match(pattern, line)]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def _answered(served: Served, token: str) -> int:
    """Calls that ended well."""
    return _metric(served, token, r'remit_calls_total\{.*outcome="success"')


def test_dev_mode_asks_nobody_for_a_key(serve: Serve) -> None:
    with serve("--dev") as served:
        assert served.address[0] == "127.0.0.1"
        for dialect, model in itertools.product(PATHS, MODELS):
            session = new_session()
            status, body, _ = served.call(dialect, "hi", session=session, model=model)
            assert status == 200, body
            assert served.exchange(session).metadata["response"] == "You said: hi"
        assert "DEV MODE" in served.errors.read_text()


def test_dev_mode_is_for_loopback_only_and_a_taken_address_is_said(served: Served) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(RemitError, match="loopback"):
            require_loopback(host)
    for arguments, said_of_it in (
        (("--dev", "--host", "0.0.0.0", "--port", "0"), "loopback"),
        (("--port", str(served.address[1])), "is in use"),
    ):
        line = ("-m", "remit", "serve", "--root", str(served.root), *arguments)
        done = run_program(*line, environment=os.environ)
        assert (done.returncode, done.stdout) == (1, "")
        assert said_of_it in done.stderr
        assert "Traceback" not in done.stderr


def test_everywhere_it_listens_with_keys_only(serve: Serve) -> None:
    with serve("--host", "0.0.0.0") as served:
        served.url = served.url.replace("0.0.0.0", "127.0.0.1")
        for headers in ({}, {"authorization": "Bearer x"}):
            status = served.ask("GET", "/v1/models", token="", headers=headers)[0]
            assert status == 401


def test_calls_end_before_the_server_does(serve: Serve) -> None:
    text = "[[tokens=60 slow=0.1]]"
    sessions = {dialect: (new_session(), new_session()) for dialect in PATHS}
    with serve() as served, ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        others = [
            pool.submit(served.call, dialect, "late [[delay=2]]", session=whole)
            for dialect, (_, whole) in sessions.items()
        ]
        streams = [
            iter(stack.enter_context(streaming(served, dialect, text, session=session)))
            for dialect, (session, _) in sessions.items()
        ]
        for data in streams:
            next(data)
        for _, whole in sessions.values():
            until(lambda session=whole: len(served.entries("DISPATCH", session)) == 1)
        served.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(served), within_s=5)
        for data in streams:
            values = [v if v == "[DONE]" else json.loads(v) for v in data]
            assert ended_well(values)
            assert len(said(values).split()) >= 59
        assert [other.result()[0] for other in others] == [200, 200]
        assert served.process.wait(60) == 0
        for session in itertools.chain(*sessions.values()):
            assert served.exchange(session).metadata["outcome"] == "success"


def test_calls_are_taken_while_it_says_that_it_is_not_ready(serve: Serve) -> None:
    toml = QUICK + "\n[server]\nnotice_s = 1.5\n"
    with (
        serve("--workers", "2", toml=toml) as served,
        closing(HTTPConnection(*served.address)) as kept,
    ):
        kept.request("GET", "/readyz")
        assert kept.getresponse().read() == b'{"status":"ready"}'
        session = new_session()
        with streaming(served, "openai", "[[tokens=20 slow=0.1]]", session=session) as stream:
            data = iter(stream)
            next(data)
            served.process.send_signal(signal.SIGTERM)
            until(lambda: served.ask("GET", "/readyz")[0] == 503, within_s=5)
            until(lambda: served.call("openai", "late")[2].get("connection") == "close")
            assert served.call("openai", "late")[0] == 200
            until(lambda: _closes(kept))  # what a proxy keeps is used up
            until(lambda: _is_refused(served), within_s=5)  # before anything is sent
            assert ended_well([v if v == "[DONE]" else json.loads(v) for v in data])
        assert served.process.wait(60) == 0
        assert served.exchange(session).metadata["outcome"] == "success"


def _closes(kept: HTTPConnection) -> bool:
    kept.request("GET", "/healthz")
    answer = kept.getresponse()
    assert answer.read() == b'{"status":"ok"}'
    return answer.getheader("connection") == "close"


def _is_refused(served: Served) -> bool:
    try:
        served.call("openai", "hi")
    except ConnectionRefusedError:
        return True
    return False


def _refuses(served: Served) -> bool:
    status, body, headers = served.call("openai", "one more")
    if status == 503:
        assert json.loads(body)["error"]["code"] == "shutting_down"
        assert headers["connection"] == "close"
        assert int(headers["retry-after"]) >= 1
    return status == 503


def test_killed_in_the_midst_of_calls(serve: Serve, tmp_path: Path) -> None:
    root = tmp_path / "root"
    sessions = {dialect: new_session() for dialect in PATHS}
    with serve(root=root, checked=False) as served:
        with ExitStack() as stack:
            for dialect, session in sessions.items():
                text = "[[tokens=900 slow=0.1]]"
                it = stack.enter_context(streaming(served, dialect, text, session=session))
                next(iter(it))
            served.process.kill()
            served.process.wait(60)
        assert len(served.ledger.orphans()) == 2
        served.stop = lambda: None  # type: ignore[method-assign]
    with serve(root=root, toml="") as again:
        for dialect, session in sessions.items():
            until(lambda name=session: len(again.entries("EXCHANGE_ORPHANED", name)) == 1)
            assert again.entries("EXCHANGE", session) == []
            assert again.call(dialect, "hi")[0] == 200


def test_two_workers(serve: Serve) -> None:
    with serve("--workers", "2", toml=RECOVERS) as served:
        operator = served.key(role="operator").key
        until(lambda: len(_children(served.process.pid)) == 2)
        workers = _children(served.process.pid)
        until(lambda: _answering(served) == workers)  # a process is there before it listens
        with ThreadPoolExecutor(40) as pool:
            sent = [pool.submit(served.call, "openai", "hi [[delay=2]]") for _ in range(40)]
            until(lambda: sum(map(len, _owners(served).values())) == 40)
            assert [one.result()[0] for one in sent] == [200] * 40
        calls = len(list(served.ledger.query(event_type="EXCHANGE")))
        assert calls >= 40 + 16
        # Whoever is asked tells of both, each within a second of the other's calls.
        until(lambda: [_answered(served, operator) for _ in range(6)] == [calls] * 6)
        killed = _kill_one(served)
        until(lambda: len(_children(served.process.pid) - workers) == 1)
        assert _children(served.process.pid) >= workers - {killed}
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: served.call("anthropic", "hi")[0], range(20)))
        assert answers == [200] * 20


def _answering(served: Served) -> set[int]:
    """The processes that take calls, as far as some calls at once show them."""
    with ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(served.call, "openai", "hi [[delay=1]]") for _ in range(16)]
        until(lambda: sum(map(len, _owners(served).values())) == 16)
        found = set(_owners(served))
        assert [one.result()[0] for one in sent] == [200] * 16
    return found


def _kill_one(served: Served) -> int:
    """``kill -9`` of a worker with calls out: its calls are settled by the other, once."""

    def call(_: int) -> None:
        with suppress(OSError):
            served.call("openai", "hi [[delay=8]]")

    threads = [threading.Thread(target=call, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    until(lambda: sum(map(len, _owners(served).values())) == 16)
    victim, lost = next(iter(_owners(served).items()))
    os.kill(victim, signal.SIGKILL)

    def settled() -> bool:
        found = served.ledger.query(event_type="EXCHANGE_ORPHANED")
        return sorted(e.metadata["dispatch_entry_id"] for e in found) == sorted(lost)

    until(settled)
    for thread in threads:
        thread.join(30)
    assert settled()
    return victim


def test_metrics_are_for_who_may_read_and_count_refused_keys(served: Served) -> None:
    assert served.ask("GET", "/metrics", token="")[0] == 401
    assert served.ask("GET", "/metrics")[0] == 403
    operator, refused = served.key(role="operator").key, "remit_refused_keys_total"
    before = _answered(served, operator), _metric(served, operator, refused)
    assert served.call("openai", "hi", token=operator)[0] == 200
    for token in ("sk-wrong", "", "rat1.a.b"):
        assert served.ask("GET", "/v1/models", token=token)[0] == 401
    after = _answered(served, operator), _metric(served, operator, refused)
    assert after == (before[0] + 1, before[1] + 3)
    _, body, headers = served.ask("GET", "/metrics", token=operator)
    assert headers["content-type"].startswith("text/plain")
    assert served.token not in body.decode()


def test_a_ledger_that_cannot_be_written_or_is_newer_lets_nothing_out(
    serve: Serve, upstream: Upstream
) -> None:
    """Without a record there is no call."""
    toml, session = QUICK + "\n[ledger]\nlock_timeout_s = 1.0\n", new_session()
    with (
        serve(toml=toml) as served,
        closing(sqlite3.connect(served.store, isolation_level=None)) as other,
    ):
        ((layout,),) = other.execute("PRAGMA user_version")
        with streaming(served, "openai", "[[tokens=5 slow=0.1]]", session=session) as stream:
            data = iter(stream)
            next(data)
            other.execute(f"PRAGMA user_version = {layout + 1}")  # a newer version migrates it
            before = upstream.count()
            for dialect in PATHS:
                assert served.call(dialect, "hi")[0] == 503
            status, body, _ = served.ask("GET", "/readyz")
            assert (status, b"another version of Remit has opened it" in body) == (503, True)
            assert upstream.count() == before
            other.execute(f"PRAGMA user_version = {layout}")  # it was put back as it was
            assert ended_well([v if v == "[DONE]" else json.loads(v) for v in data])
        assert served.exchange(session).metadata["outcome"] == "success"
        until(lambda: served.call("openai", "hi")[0] == 200)
        before = upstream.count()
        other.execute("BEGIN IMMEDIATE")
        for dialect in PATHS:
            status, body, headers = served.call(dialect, "hi")
            assert status == 503, body
            assert int(headers["retry-after"]) >= 1
        assert upstream.count() == before
        other.execute("ROLLBACK")
        time.sleep(int(headers["retry-after"]))
        status, body, headers = served.call("openai", "hi")  # the first to ask is let through
        assert status == 200, body


def test_a_server_names_its_console_and_how_to_add_a_provider(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    line, errors = ("-m", "remit", "serve", "--root", str(root), "--port", "0"), tmp_path / "errors"
    with Program(*line, environment=environment, errors=errors) as process:
        line = process.stdout.readline()
        assert line.startswith("Remit listens on ")
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert f"Console: {line.split()[-1]}/\n" in errors.read_text()
        assert "remit setup" in errors.read_text()


def test_recovery_continues_after_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def recover() -> None:
        tries.append(len(tries))
        raise RuntimeError("can't start new thread")

    async def run(app: App) -> None:
        await app.start()
        async with asyncio.timeout(60):
            while len(tries) < 3:
                await asyncio.sleep(0.05)
        await app.stop()

    root = new_root(tmp_path / "root", "[gateway]\nrecover_every_s = 0.1\n")
    runtime = Runtime.open(root)
    monkeypatch.setattr(runtime.gateway, "recover", recover)
    asyncio.run(run(App(runtime)))
