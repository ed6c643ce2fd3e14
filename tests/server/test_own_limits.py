"""What this machine lacks is never the provider's failure."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from remit.providers import HttpUpstream, ProviderError, Timeouts
from remit.providers.upstream_errors import own_cause
from tests.server.conftest import QUICK, Serve
from tests.server.events import streaming
from tests.server.running import Served, new_session, prompt, serving
from tests.support.upstream import Upstream
from tests.support.waiting import until

_CALLS = 8  # more than open a circuit


@contextmanager
def _no_more_files(process: int) -> Iterator[None]:
    """Let a process open no file descriptor more than it has."""
    before = resource.prlimit(process, resource.RLIMIT_NOFILE)
    taken: set[int] = set()
    while taken != (found := {int(name) for name in os.listdir(f"/proc/{process}/fd")}):
        taken = found  # connections of calls that have just ended are still being closed
        time.sleep(0.5)
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_NOFILE, before)


def _ask(
    connection: http.client.HTTPConnection, served: Served, session: str
) -> tuple[int, bytes, str]:
    body = prompt(model="claude-sonnet-4-5")
    connection.request("POST", "/v1/messages", json.dumps(body).encode(),
                       {"x-api-key": served.token, "x-remit-session": session})  # fmt: skip
    reply = connection.getresponse()
    return reply.status, reply.read(), reply.headers.get("retry-after", "")


def test_spent_file_descriptors_are_ours(serve: Serve) -> None:
    session = new_session()
    with (
        serve() as served,
        ExitStack() as stack,
        closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection,
    ):
        for _ in range(3):  # connections that were kept are in use
            stream = streaming(served, "anthropic", "[[tokens=900 slow=0.1]]",
                               model="claude-sonnet-4-5")  # fmt: skip
            next(iter(stack.enter_context(stream)))
        assert served.call("openai", "hi")[0] == 200  # what is opened once is open now
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        with _no_more_files(served.process.pid):
            for _ in range(_CALLS):
                status, body, wait = _ask(connection, served, session)
                assert (status, wait) == (503, "1"), body
                assert json.loads(body)["error"]["code"] != "circuit_open"
        assert _ask(connection, served, session)[0] == 200
        codes = {entry.metadata.get("error_code") for entry in served.entries("EXCHANGE", session)}
        assert codes == {"LOCAL_ERROR", None}
        assert served.ledger.select("SELECT count(*) FROM breakers WHERE failures > 0") == [(0,)]
        assert served.entries("PROMPT_REJECTED", session) == []


def _list(connection: http.client.HTTPConnection, key: str) -> tuple[int, str]:
    """Ask for what each answer reads from files."""
    connection.request("GET", "/api/packages", headers={"authorization": f"Bearer {key}"})
    reply = connection.getresponse()
    reply.read()
    return reply.status, reply.headers.get("retry-after", "")


def _processor_s(process: int) -> float:
    told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def test_sockets_that_take_every_descriptor_harm_no_kept_connection(
    database: str, upstream: Upstream, tmp_path: Path
) -> None:
    with (
        serving(tmp_path / "root", upstream.url, toml=QUICK, database=database) as served,
        ExitStack() as stack,
    ):
        process, session, admin = served.process.pid, new_session(), served.key(role="admin").key
        kept = [
            stack.enter_context(closing(http.client.HTTPConnection(*served.address, timeout=60)))
            for _ in range(6)
        ]
        for connection in kept:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        before = resource.prlimit(process, resource.RLIMIT_NOFILE)
        most = max(map(int, os.listdir(f"/proc/{process}/fd"))) + 8
        resource.prlimit(process, resource.RLIMIT_NOFILE, (most, before[1]))
        strangers = [socket.create_connection(served.address, timeout=60) for _ in range(60)]
        until(lambda: len(os.listdir(f"/proc/{process}/fd")) >= most)
        used = _processor_s(process)
        time.sleep(1)
        assert _processor_s(process) - used < 0.5  # nobody asks again and again
        if database:  # the ledger has to open a connection, too
            served.ledger.select(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        with ThreadPoolExecutor(len(kept)) as threads:
            ask = [threads.submit(_ask, one, served, session) for one in kept]
            answers = [each.result() for each in ask]
        assert {(status, wait) for status, _, wait in answers} <= {(200, ""), (503, "1")}, answers
        # The connections that the database ended may have left descriptors for the files.
        expected = {(503, "1"), (200, "")} if database else {(503, "1")}
        assert _list(kept[0], admin) in expected
        for one in strangers:
            one.close()
        until(lambda: _list(kept[0], served.token)[0] == 403)  # it may call, not read
        for connection in kept:
            assert _ask(connection, served, session)[0] == 200
        resource.prlimit(process, resource.RLIMIT_NOFILE, before)
        paid = [one for one in served.entries("EXCHANGE", session) if one.decision == "SUCCESS"]
        assert len(paid) == len(kept) + sum(status == 200 for status, _, _ in answers)
        assert "Traceback" not in served.errors.read_text()


def test_what_the_machine_lacks_is_its_own_and_what_the_provider_does_is_not() -> None:
    for number in (errno.EMFILE, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ENETUNREACH):
        assert own_cause(OSError(number, "said"), None)
    for error in (ConnectionRefusedError(111, "refused"), ConnectionResetError(104, "reset"),
                  OSError("no number"), ValueError("a value")):  # fmt: skip
        assert own_cause(error, None) == ""
    assert own_cause(socket.gaierror(-3, "Temporary failure"), None)
    with_authorities = ssl.create_default_context()
    failed = ssl.SSLCertVerificationError(1, "unable to get local issuer certificate")
    if with_authorities.cert_store_stats()["x509_ca"]:
        assert own_cause(failed, with_authorities) == ""


def test_missing_authorities_are_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    failed = ssl.SSLCertVerificationError(1, "unable to get local issuer certificate")
    assert "SSL_CERT_FILE" in own_cause(failed, ssl.create_default_context())


@contextmanager
def _silent() -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(listening.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1], held
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


def test_a_handshake_that_is_never_answered_ends_in_time_and_leaves_nothing_open() -> None:
    async def call(port: int, held: list[socket.socket]) -> None:
        upstream = HttpUpstream(f"https://127.0.0.1:{port}", {})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(ProviderError) as raised:
                await asyncio.wait_for(
                    upstream.send("POST", "/", b"{}", {}, Timeouts(0.2, 60, 60)), timeout=30
                )
            assert raised.value.code == "TIMEOUT"
        await asyncio.sleep(0.1)
        assert len(os.listdir("/proc/self/fd")) == before + len(held)

    with _silent() as (port, held):
        asyncio.run(call(port, held))


def test_a_hanging_handshake_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(silent: int, refusing: int) -> str:
        loop = asyncio.get_running_loop()

        async def both(*_: object, **__: object) -> list[object]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.1", silent)), (*kind, ("127.0.0.1", refusing))]

        monkeypatch.setattr(loop, "getaddrinfo", both)
        upstream = HttpUpstream("https://127.0.0.1:443", {})
        with pytest.raises(ProviderError) as raised:
            await upstream.send("POST", "/", b"{}", {}, Timeouts(0.2, 60, 60))
        return raised.value.code

    with _silent() as (silent, _), closing(socket.create_server(("127.0.0.1", 0))) as second:
        refusing = second.getsockname()[1]
        second.close()
        assert asyncio.run(call(silent, refusing)) == "SERVER_ERROR"  # the second was asked
