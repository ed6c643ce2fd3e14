"""The local model behind ``remit serve``, in three dialects, and llama.cpp's own server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.running import Served, new_session, serving
from tests.support.local_model import local_weights
from tests.support.waiting import until

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(600)]

MODEL = "local/smollm2-135m"
HI = [{"role": "user", "content": "Say hello."}]
STORY = [{"role": "user", "content": "Tell a very long story about a ship."}]
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_WINDOW = 512


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    local_weights()
    root = tmp_path_factory.mktemp("calls") / "root"
    toml = f"[local]\ncontext_tokens = {_WINDOW}\nthreads = 1\n"
    with serving(root, "http://127.0.0.1:9", "--model", "local", toml=toml) as running:
        yield running


def _ask(
    served: Served, dialect: str, *, limit: int | None = 3, session: str = "", **body: Any
) -> tuple[int, bytes]:
    value = {"model": MODEL, **body}
    if dialect == "responses":
        value["input"] = value.pop("messages", HI)
        value["store"] = False
        value |= {"max_output_tokens": limit} if limit else {}
    else:
        value.setdefault("messages", HI)
        value |= {"max_tokens": limit} if limit else {}
    named = {"x-remit-session": session} if session else {}
    status, raw, _ = served.ask("POST", PATHS[dialect], value, headers=named)
    return status, raw


def _events(raw: bytes) -> list[Any]:
    lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("streamed", [False, True])
def test_it_answers_in_each_dialect(served: Served, dialect: str, streamed: bool) -> None:
    session = new_session()
    status, raw = _ask(served, dialect, session=session, stream=streamed)
    assert status == 200, raw
    meta = served.exchange(session).metadata
    assert meta["wire"] == "openai.chat"
    assert meta["response"]
    assert meta["cost_usd"] == 0
    assert meta["cost_certainty"] == "measured"
    assert 0 < meta["output_tokens"] <= 3
    assert _text(dialect, raw, streamed=streamed) == meta["response"]


def _text(dialect: str, raw: bytes, *, streamed: bool) -> str:
    """The answer's text, as a client reads it."""
    if not streamed:
        said = json.loads(raw)
        if dialect == "chat":
            return str(said["choices"][0]["message"]["content"])
        blocks = said["content"] if dialect == "messages" else said["output"][0]["content"]
        return str(blocks[0]["text"])
    events = _events(raw)
    if dialect == "chat":
        pieces = [e["choices"][0]["delta"].get("content") for e in events if e["choices"]]
    elif dialect == "messages":
        pieces = [e["delta"].get("text") for e in events if e["type"] == "content_block_delta"]
    else:
        pieces = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    return "".join(piece or "" for piece in pieces)


def test_what_it_can_do_is_done(served: Served) -> None:
    """Bias, log probabilities, stop words, seeds and grammars reach the model."""
    status, raw = _ask(
        served, "chat", logit_bias={"62": 100}, logprobs=True, top_logprobs=2, seed=7
    )
    assert status == 200, raw
    (choice,) = json.loads(raw)["choices"]
    assert choice["message"]["content"] == "NNN"  # 62 is the letter N
    assert [len(one["top_logprobs"]) for one in choice["logprobs"]["content"]] == [2, 2, 2]
    assert choice["finish_reason"] == "length"
    _, raw = _ask(served, "chat", logit_bias={"62": 100}, stop=["NN"], limit=9)
    (choice,) = json.loads(raw)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    same = [
        json.loads(_ask(served, "chat", seed=11, temperature=1.0, limit=5)[1])["choices"][0]
        for _ in range(2)
    ]
    assert same[0]["message"] == same[1]["message"]


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ("chat", {"n": 2}, "n"),
        ("chat", {"response_format": {"type": "json_schema", "json_schema": {
            "name": "m", "schema": {"$ref": "http://elsewhere/x"}}}}, "response_format"),
        ("messages", {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "tools"),
        ("responses", {"reasoning": {"effort": "high"}}, "reasoning"),
        ("embeddings", {"input": "x"}, "model"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(
    served: Served, dialect: str, body: dict[str, Any], param: str
) -> None:
    for streamed in (False, True):
        if dialect == "embeddings":
            status, raw, _ = served.ask("POST", "/v1/embeddings", {"model": MODEL, **body})
        else:
            status, raw = _ask(served, dialect, stream=streamed, **body)
        assert status == 400
        error = json.loads(raw)["error"]
        if dialect == "messages":
            assert error["message"].startswith(f"{param}: ")
        else:
            assert error["param"] == param


@pytest.mark.parametrize("streamed", [False, True])
def test_a_hang_up_stops_the_model(served: Served, streamed: bool) -> None:
    session = new_session()
    body = {"model": MODEL, "messages": STORY, "stream": streamed, "logit_bias": {"62": 100}}
    with served.connected(served.request(body, f"x-remit-session: {session}")) as connection:
        until(lambda: served.entries("DISPATCH", session))
        if streamed:
            assert connection.recv(10)
        else:
            time.sleep(1.5)  # by then the server listens for it
    until(lambda: served.entries("EXCHANGE", session))
    meta = served.exchange(session).metadata
    assert meta["error_code"] == "CANCELLED"
    assert _ask(served, "chat")[0] == 200
