"""Processes that are killed, told to read again, told to end: signals, as they come."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tests.server.conftest import QUICK, Serve
from tests.server.running import Events, Served, new_session, prompt, streaming
from tests.server.test_serving import _children
from tests.support.waiting import until

_SLOW = "[[tokens=900 slow=0.1]]"


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def _response_stream(served: Served, text: str, session: str) -> Iterator[Events]:
    body = {"model": "claude-sonnet-4-5", "input": text, "stream": True}
    named = {"authorization": f"Bearer {served.token}", "x-remit-session": session}
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        connection.request("POST", "/v1/responses", json.dumps(body).encode(), named)
        with connection.getresponse() as reply:
            yield Events(reply)


def test_workers_end_with_their_parent(serve: Serve, tmp_path: Path) -> None:
    """``kill -9`` of the parent: its port, root, calls and folders are there for the next."""
    root, session, temporary = tmp_path / "root", new_session(), tmp_path / "temporary"
    temporary.mkdir()
    own = {"TMPDIR": str(temporary)}  # other servers on this machine have folders too
    with serve("--workers", "2", root=root, checked=False, environment=own) as served:
        until(lambda: len(_children(served.process.pid)) == 2)
        workers, port = _children(served.process.pid), str(served.address[1])
        (left,) = temporary.glob("remit-metrics-*")
        with streaming(served, "openai", _SLOW, session=session) as it:
            next(iter(it))
            served.kill()
            until(lambda: not any(map(_alive, workers)), within_s=20)
    with serve("--workers", "2", "--port", port, root=root, environment=own) as again:
        assert again.address[1] == int(port)
        assert again.call("openai", "hi")[0] == 200
        until(lambda: len(again.entries("EXCHANGE_ORPHANED", session)) == 1)
        assert not left.exists()
    assert not [*temporary.glob("remit-metrics-*")]


def _change(served: Served, old: str, new: str) -> None:
    config = served.root / "remit.toml"
    text = config.read_text("utf-8")
    assert old in text
    config.write_text(text.replace(old, new), "utf-8")


def _longest(served: Served) -> int:
    """The status of a body of 8 KiB."""
    return served.call("openai", "x" * 8192)[0]


def test_sighup_reads_the_configuration_again(serve: Serve) -> None:
    toml = QUICK + '\n[server]\nmax_body_bytes = 100000\nlog_level = "warning"\n'
    session = new_session()
    with serve("--workers", "2", toml=toml) as served, ExitStack() as stack:
        until(lambda: len(_children(served.process.pid)) == 2)
        kept = http.client.HTTPConnection(*served.address, timeout=60)
        stack.callback(kept.close)

        def ask() -> int:
            kept.request("POST", "/v1/chat/completions", json.dumps(prompt()),
                         {"authorization": f"Bearer {served.token}"})  # fmt: skip
            with kept.getresponse() as reply:
                reply.read()
                return reply.status

        assert ask() == 200
        sock = kept.sock
        stream = stack.enter_context(streaming(served, "openai", "[[tokens=40 slow=0.1]]",
                                               session=session))  # fmt: skip
        events = iter(stream)
        next(events)
        over = threading.Event()
        statuses: list[int] = []

        def go_on() -> None:
            while not over.is_set():
                statuses.append(served.call("anthropic", "hi")[0])

        caller = threading.Thread(target=go_on)
        caller.start()
        try:
            _change(served, "max_body_bytes = 100000", "max_body_bytes = 4096")
            served.process.send_signal(signal.SIGHUP)
            until(lambda: [_longest(served) for _ in range(8)] == [413] * 8)
            # The next one is for all workers at once: none may still be at the first.
            read = "was read again by process"
            until(lambda: served.errors.read_text().count(read) == 2)
            # A bad one changes nothing.
            _change(served, "max_body_bytes = 4096", 'max_body_bytes = "many"')
            served.process.send_signal(signal.SIGHUP)
            until(lambda: "the new configuration cannot be used" in served.errors.read_text())
            _change(served, 'max_body_bytes = "many"', 'max_body_bytes = 4096\nhost = "127.0.0.2"')
            served.process.send_signal(signal.SIGHUP)
            until(lambda: "server.host takes effect after a restart" in served.errors.read_text())
        finally:
            over.set()
            caller.join()
        assert set(statuses) == {200}
        assert ask() == 200
        assert kept.sock is sock, "the connection was dropped"
        assert [*events][-1] == "[DONE]"
        assert _longest(served) == 413
        *_, changed = served.ledger.read_by_submission("settings")
        assert changed.metadata["settings"] == {"server.max_body_bytes": [100000, 4096]}
        assert changed.metadata["by"]


def test_an_end_refuses_at_once_everywhere_and_tells_streams(serve: Serve) -> None:
    """Each stream that does not end in time ends with its dialect's own error event."""
    toml = QUICK + "\n[server]\ndrain_s = 12\n"
    sessions = {name: new_session() for name in ("openai", "anthropic", "responses")}
    with serve("--workers", "2", toml=toml) as served, ExitStack() as stack:
        until(lambda: len(_children(served.process.pid)) == 2)
        idle = [http.client.HTTPConnection(*served.address, timeout=30) for _ in range(4)]
        for connection in idle:
            stack.callback(connection.close)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        streams = {
            name: stack.enter_context(streaming(served, name, _SLOW, session=sessions[name]))
            for name in ("openai", "anthropic")
        }
        streams["responses"] = stack.enter_context(
            _response_stream(served, _SLOW, sessions["responses"])
        )
        events = {name: iter(stream) for name, stream in streams.items()}
        for data in events.values():
            next(data)
        served.process.send_signal(signal.SIGTERM)
        # Both workers have heard it: not only the one that answered first.
        until(lambda: {served.ask("GET", "/v1/models")[0] for _ in range(6)} == {503}, within_s=10)
        for _ in range(4):
            for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"),
                                 ("GET", "/readyz"), ("POST", "/v1/messages")):  # fmt: skip
                status, body, headers = served.ask(method, path, {} if method == "POST" else None)
                assert status == 503, (path, body)
                if path != "/readyz":
                    assert headers["connection"] == "close"
        for connection in idle:
            assert connection.sock is None or connection.sock.recv(1) == b""
        last: dict[str, Any] = {name: json.loads([*data][-1]) for name, data in events.items()}
        assert last["openai"]["error"]["code"] == "shutting_down"
        assert last["anthropic"]["type"] == "error"
        assert last["responses"]["type"] == "response.failed"
        assert "shutting down" in last["responses"]["response"]["error"]["message"]
        assert served.process.wait(60) == 0
        for session in sessions.values():
            told = served.exchange(session).metadata
            assert told["error_code"] == "CANCELLED"
            assert "the server shut down" in told["error_message"]
            assert (told["cost_certainty"], told["output_tokens"] > 0) == ("estimated", True)


def test_a_second_signal_ends_at_once_and_on_record(serve: Serve) -> None:
    session = new_session()
    with (
        serve("--workers", "2") as served,
        streaming(served, "openai", _SLOW, session=session) as stream,
    ):
        data = iter(stream)
        next(data)
        served.process.send_signal(signal.SIGINT)
        until(lambda: served.call("openai", "hi")[0] == 503, within_s=10)
        assert served.process.poll() is None
        served.process.send_signal(signal.SIGINT)
        assert json.loads([*data][-1])["error"]["code"] == "shutting_down"
        assert served.process.wait(20) == 128 + signal.SIGTERM
        assert served.exchange(session).metadata["error_code"] == "CANCELLED"
        served.killed = True
