"""The ordered upstream refuses wrong orders, sends the garbage it names, and keeps its log.

That its answers are a provider's, tests/server/test_official_sdks.py shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.upstream import Upstream, upstream


@pytest.fixture(scope="module")
def running() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture
def server(running: Upstream) -> Upstream:
    running.reset()
    return running


def _turn(text: str) -> Any:
    return [{"role": "user", "content": text}]


def _say(server: Upstream, text: str, *, path: str = "/v1/messages", **more: Any) -> bytes:
    """Ask for an answer to a text, with a key; return the body."""
    body = {"model": "m", "messages": _turn(text), **more}
    return _raw(server, path, body, authorization="Bearer sk-one")[1]


def _raw(server: Upstream, path: str, body: Any, **headers: str) -> tuple[int, bytes, Any]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as reply:
            return reply.status, reply.read(), reply.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


@pytest.mark.parametrize(
    "text",
    ["[[colour=red]]", "[[status=200]]", "[[delay=x]]", "[[delay]]", "[[hang=1]]", "[[hang",
     "[[cut=1 cut=2]]", "[[tool=f:{]]", "[[fail_first=1]]", "[[garbage=soup]]", "[[usage=some]]"],
)  # fmt: skip
def test_what_is_no_order_is_refused(server: Upstream, text: str) -> None:
    assert b"directive: " in _say(server, text)
    assert server.count() == 1


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"\xff", b"[" * 100_000, {"model": "m"}, {"messages": [], "model": 1},
     {"messages": [1], "model": "m"}],
)  # fmt: skip
def test_what_is_no_request_is_refused(server: Upstream, body: Any) -> None:
    status, said, _ = _raw(server, "/v1/messages", body)
    assert (status, json.loads(said)["error"]["type"]) == (400, "invalid_request_error")
    assert _raw(server, "/v1/nothing", {"model": "m", "messages": []})[0] == 404
    assert server.count() == 2


_SHAPES = {
    "json": rb'\A\{"id": nothing, \Z',
    "html": rb"\A<html>",
    "empty": rb"\A\Z",
    "truncated": rb'\A\{"(id|model)"[^\0]*[^}]\Z',
    "wrong_shape": rb'\A\{"answer": \[1, 2, 3\]\}\Z',
    "invalid_utf8": b"\xed\xa0\x80You said",
    "huge_usage": rb"1000000000000000000, .*100000000000000000000",
    "negative_usage": rb"-5, .*-7",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("garbage", _SHAPES)
def test_garbage_in_a_whole_answer(server: Upstream, path: str, garbage: str) -> None:
    text = f"[[garbage={garbage}]]"
    status, sent, headers = _raw(server, path, {"model": "m", "messages": _turn(text)})
    assert (status, headers["content-length"]) == (200, str(len(sent)))
    assert headers.get_content_type() == ("text/html" if garbage == "html" else "application/json")
    if garbage == "invalid_utf8":
        assert sent.find(_SHAPES[garbage]) >= 0
        with pytest.raises(UnicodeDecodeError):
            sent.decode()
    else:
        assert re.search(_SHAPES[garbage], sent)
    if garbage in ("json", "html", "empty", "truncated"):
        with pytest.raises(ValueError):
            json.loads(sent)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("garbage", _SHAPES)
def test_garbage_in_a_stream(server: Upstream, path: str, garbage: str) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}, "model": "m"}
    body = {**asked, "messages": _turn(f"[[garbage={garbage}]]")}
    status, sent, headers = _raw(server, path, body)
    assert status == 200
    page = headers.get_content_type() == "text/html"
    assert page == (garbage == "html")
    datas = re.findall(rb"^data: (.*)$", sent, re.MULTILINE)
    done = b"[DONE]" in sent or b"message_stop" in sent
    assert done == (garbage not in ("html", "empty", "truncated"))
    wrong = {"json": b'{"id": nothing, ', "wrong_shape": b'{"answer": [1, 2, 3]}'}
    if garbage in wrong:
        assert datas.count(wrong[garbage]) == 1
    elif garbage == "truncated":
        assert len(datas) > 1
        assert not sent.endswith(b"\n")
        with pytest.raises(ValueError):
            json.loads(datas[-1])
    elif garbage == "invalid_utf8":
        with pytest.raises(UnicodeDecodeError):
            sent.decode()
    elif garbage in ("html", "empty"):
        assert datas == []
    else:
        assert re.search(rb"100000000000000000000|-7", sent)


# -- the process and its log ---------------------------------------------------------------


def test_the_log_says_who_asked_what(server: Upstream) -> None:
    before = time.time()
    _say(server, "[[tag=a]]", path="/v1/chat/completions")
    _say(server, "[[tag=b]]", stream=True)
    _raw(server, "/v1/models", None)
    secret = hashlib.sha256(b"sk-one").hexdigest()
    calls = server.calls()
    assert all(before <= call.pop("at") <= time.time() for call in calls)
    assert calls == [
        {"n": 1, "path": "/v1/chat/completions", "model": "m", "stream": False, "tag": "a",
         "authorization_sha": secret},
        {"n": 2, "path": "/v1/messages", "model": "m", "stream": True, "tag": "b",
         "authorization_sha": secret},
        {"n": 3, "path": "/v1/models", "model": None, "stream": False, "tag": None,
         "authorization_sha": None},
    ]  # fmt: skip
    server.reset()
    assert server.count() == 0
    _say(server, "again")
    assert [call["n"] for call in server.calls()] == [1]


def test_a_body_that_never_arrived_whole_is_not_counted(server: Upstream) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 10) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    _raw(server, "/v1/models", None)
    assert [call["path"] for call in server.calls()] == ["/v1/models"]


_CLIENT = """
import sys, urllib.request, json
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": sys.argv[2]}]}
data = json.dumps(body).encode()
with urllib.request.urlopen(urllib.request.Request(sys.argv[1], data=data)) as reply:
    while True:
        print(reply.readline(), flush=True)
"""


@pytest.mark.parametrize("order", ["[[slow=0.05 tokens=1000]]", "[[tokens=50000]]"])
def test_it_survives_kill_9_of_its_clients(server: Upstream, order: str) -> None:
    command = [sys.executable, "-c", _CLIENT, f"{server.url}/v1/chat/completions", order]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        client.kill()
    assert b"You said: hello" in _say(server, "hello")
    assert server.count() == 2


def test_its_log_outlives_it_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    with upstream(log) as server:
        _raw(server, "/v1/models", None)
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        server.stop()
        assert server.count() == 1
    with upstream(log) as server:
        _raw(server, "/v1/models", None)
        assert [call["n"] for call in server.calls()] == [1, 2]


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys; from tests.support.upstream import upstream\n"
        "with upstream() as server: print(server.url, flush=True); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
    port = int(done.stdout.rsplit(":", 1)[1])
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    pytest.fail("the upstream lives on")
