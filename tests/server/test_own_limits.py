"""What this machine lacks is never the provider's failure."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from tests.server.conftest import QUICK, Serve
from tests.server.running import Served, new_session, prompt, serving, streaming
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
