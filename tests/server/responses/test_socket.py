"""The Responses API over a WebSocket: same calls, same record, same refusals as over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.strict import CLAUDE, GPT, Strict, client_of
from tests.support import wire
from tests.support.waiting import until

models = pytest.mark.parametrize("model", [GPT, CLAUDE])


@contextmanager
def _socket(
    served: Served, session: str = "", path: str = "/v1/responses", **more: str
) -> Iterator[ClientConnection]:
    headers = {"authorization": f"Bearer {served.token}", **more}
    if session:
        headers["x-remit-session"] = session
    with connect(
        served.url.replace("http", "ws") + path, additional_headers=headers, max_size=2**24
    ) as found:
        yield found


def _ask(connection: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    """Send a ``response.create`` and return the events up to the last one."""
    connection.send(json.dumps({"type": "response.create", **body}))
    events = []
    while True:
        events.append(json.loads(connection.recv(timeout=60)))
        if events[-1]["type"] in ("response.completed", "response.failed", "error"):
            return events


def _text(event: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in event["response"]["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


@models
@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_continues_on_the_connection(
    served: Served, strict: Strict, model: str, store: bool
) -> None:
    session = new_session()
    with _socket(served, session) as connection:
        last = ""
        for word in ("a wren", "an owl", "a kite"):
            more = {"previous_response_id": last} if last else {}
            item = {"role": "user", "content": f"[[say {word}]]"}
            events = _ask(connection, model=model, input=[item], store=store, **more)
            end = events[-1]
            assert end["type"] == "response.completed", end
            assert word in _text(end)
            last = end["response"]["id"]
    assert events[0]["type"] == "response.created"
    assert any(event["type"] == "response.output_text.delta" for event in events)
    *_, third = calls = served.entries("EXCHANGE", session)
    assert [one.metadata["outcome"] for one in calls] == ["success"] * 3
    assert "a kite" in str(third.metadata["response"])
    if not store:
        recorded = json.dumps(third.metadata["prompt"])
        assert recorded.index("a wren") < recorded.index("an owl") < recorded.index("a kite")


@models
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # how the client opens it
def test_the_official_client_holds_a_conversation(served: Served, model: str) -> None:
    texts = []
    with client_of(served) as client, client.responses.connect() as connection:
        last: dict[str, Any] = {}
        for words in ("a wren", "an owl"):
            connection.response.create(
                model=model, input=f"[[say {words}]]", store=False, **last
            )  # fmt: skip
            for event in connection:
                if event.type == "response.completed":
                    texts.append(event.response.output_text)
                    last = {"previous_response_id": event.response.id}
                    break
    assert [words in text for words, text in zip(("a wren", "an owl"), texts, strict=True)]


def test_a_response_that_was_not_stored_is_not_found_elsewhere(served: Served) -> None:
    with _socket(served) as connection:
        *_, end = _ask(connection, model=GPT, input="one", store=False)
        named = end["response"]["id"]
        _ask(connection, model=GPT, input="two", store=False)
        *_, refused = _ask(
            connection, model=GPT, input="3", store=False, previous_response_id=named
        )
    assert refused["type"] == "error"
    assert refused["error"]["code"] == "previous_response_not_found"
    with _socket(served) as connection:
        *_, refused = _ask(connection, model=GPT, input="four", previous_response_id=named)
    assert (refused["type"], refused["status"]) == ("error", 400)


@pytest.mark.parametrize("first", [["You like birds."], []], ids=["items", "none"])
def test_a_warm_up_sends_nothing(served: Served, strict: Strict, first: list[str]) -> None:
    session = new_session()
    before = len(strict.seen())
    with _socket(served, session) as connection:
        *_, end = _ask(
            connection, model=GPT, generate=False, store=False,
            input=[{"role": "developer", "content": text} for text in first],
        )  # fmt: skip
        assert end["response"]["output"] == []
        assert len(strict.seen()) == before
        assert served.entries("DISPATCH", session) == []
        *_, end = _ask(
            connection, model=GPT, store=False, previous_response_id=end["response"]["id"],
            input=[{"role": "user", "content": "[[say a wren]]"}],
        )  # fmt: skip
    assert "a wren" in _text(end)
    sent = strict.seen()[-1]
    assert [item["content"] for item in sent["input"]] == [*first, "[[say a wren]]"]
    assert "generate" not in sent
    assert "type" not in sent


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("{", None),
        ("[]", "type"),
        ('{"type": "session.update"}', "type"),
        ('{"model": "gpt-4o-mini", "input": "hi"}', "type"),
        ('{"type": "response.create", "background": true}', "background"),
        ('{"type": "response.create", "model": "gpt-4o-mini", "input": 7}', "input"),
        ('{"type": "response.create", "model": 7, "input": "hi"}', "model"),
        ('{"type": "response.create", "type": "response.create", "input": "hi"}', None),
        (
            '{"type": "response.create", "generate": false, "previous_response_id": "resp_1"}',
            "generate",
        ),
    ],
)
def test_a_message_that_cannot_be_sent(served: Served, message: str, param: str | None) -> None:
    with _socket(served) as connection:
        connection.send(message)
        refused = json.loads(connection.recv(timeout=30))
        assert refused["type"] == "error"
        assert refused["status"] == 400
        if param:
            assert refused["error"]["param"] == param
        *_, end = _ask(connection, model=GPT, input="[[say a wren]]")
        assert "a wren" in _text(end)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(Opcode.BINARY, b"{}")], 1003),
        ([Frame(Opcode.TEXT, b"\xff")], 1007),
        ([Frame(Opcode.CONT, b"{}")], 1002),
        ([Frame(Opcode.TEXT, b"{", fin=False), Frame(Opcode.TEXT, b"}")], 1002),
        ([Frame(Opcode.TEXT, b"x" * 34_000_000)], 1009),
        (
            [
                Frame(Opcode.TEXT, b"x" * 20_000_000, fin=False),
                Frame(Opcode.CONT, b"x" * 20_000_000),
            ],
            1009,
        ),
        (
            [Frame(Opcode.TEXT, b"{", fin=False)] + [Frame(Opcode.CONT, b" ", fin=False)] * 1100,
            1008,
        ),
        ([Frame(Opcode.TEXT, b"", fin=False)] + [Frame(Opcode.CONT, b"", fin=False)] * 1100, 1008),
    ],
    ids=[
        "binary",
        "not UTF-8",
        "a stray continuation",
        "two starts",
        "too long",
        "too long in parts",
        "short fragments",
        "empty fragments",
    ],
)
def test_a_broken_frame_ends_the_connection(served: Served, frames: list[Frame], code: int) -> None:
    with _socket(served) as connection:
        try:
            for frame in frames:
                connection.socket.sendall(frame.serialize(mask=True))
        except OSError:
            return  # The server has closed the connection already.
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=60)
        assert closed.value.rcvd is None or closed.value.rcvd.code == code
    assert served.process.poll() is None


def test_a_client_that_leaves_cancels_its_call(tmp_path: Path) -> None:
    never = wire.Raw(delay_s=120)
    session = new_session()
    with (
        wire.serve(never) as upstream,
        serving(tmp_path / "root", upstream.url, toml=QUICK) as served,
    ):
        with _socket(served, session) as connection:
            body = {"type": "response.create", "model": GPT, "input": "hi"}
            connection.send(json.dumps(body))
            until(lambda: len(upstream.calls) == 1)
        until(lambda: bool(served.entries("EXCHANGE", session)))
        (exchange,) = served.entries("EXCHANGE", session)
    assert exchange.metadata["error_code"] == "CANCELLED"


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        *(("/v1/responses", {"authorization": f"Bearer {token}"}, 401)
          for token in ("sk-remit-" + "x" * 43, "nothing")),
        *((path, {}, 426) for path in (
            "/v1/realtime", "/v1/chat/completions", "/", "/v1/responses/x", "/v1/models")),
    ],
)  # fmt: skip
def test_refused_handshakes(served: Served, path: str, more: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, _socket(served, path=path, **more):
        pass
    assert refused.value.response.status_code == status
    if status == 401:
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"
    assert served.ask("GET", "/v1/models")[0] == 200


@pytest.mark.parametrize("missing", ["sec-websocket-key", "sec-websocket-version", "connection"])
def test_a_handshake_that_breaks_the_protocol(served: Served, missing: str) -> None:
    fields = {
        "host": "remit", "authorization": f"Bearer {served.token}", "connection": "Upgrade",
        "upgrade": "websocket", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    del fields[missing]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with closing(socket.create_connection(served.address, timeout=30)) as connection:
        connection.sendall(f"GET /v1/responses HTTP/1.1\r\n{head}\r\n".encode())
        answer = connection.recv(65_536)
    assert answer.split()[1] in (b"400", b"426", b"405")


def test_a_budget_holds_and_a_revoked_key_ends_its_connection(served: Served) -> None:
    poor, key = served.key(tokens=9), served.key()
    with _socket(served, authorization=f"Bearer {poor.key}") as connection:
        *_, end = _ask(connection, model=GPT, input="hi")
    assert (end["status"], end["error"]["code"]) == (402, "budget_exhausted")
    with _socket(served, authorization=f"Bearer {key.key}") as connection:
        *_, end = _ask(connection, model=GPT, input="[[say a wren]]")
        assert "a wren" in _text(end)
        served.revoke(key)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)


def test_a_handshake_beyond_the_share_of_its_key(tmp_path: Path, strict: Strict) -> None:
    toml = QUICK + "\n[server]\nmax_connections = 8\n"  # A key may have six of eight.
    with serving(tmp_path / "root", strict.url, toml=toml) as served, ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(_socket(served))
        with pytest.raises(InvalidStatus) as refused, _socket(served):
            pass
    assert refused.value.response.status_code == 429
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "rate_limited"
