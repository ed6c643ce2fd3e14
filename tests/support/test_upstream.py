"""The ordered upstream, held to the official SDKs: what they read is what was ordered."""

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

import anthropic
import openai
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock

from tests.support.upstream import Upstream, upstream

_ASK = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]


@pytest.fixture(scope="module")
def running() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture(scope="module")
def sdks(running: Upstream) -> Iterator[tuple[openai.OpenAI, anthropic.Anthropic]]:
    shared: Any = {"api_key": "sk-one", "max_retries": 0, "timeout": 10}
    with (
        openai.OpenAI(base_url=f"{running.url}/v1", **shared) as chat,
        anthropic.Anthropic(base_url=running.url, **shared) as claude,
    ):
        yield chat, claude


@pytest.fixture
def server(running: Upstream) -> Upstream:
    running.reset()
    return running


@pytest.fixture
def chat(server: Upstream, sdks: tuple[openai.OpenAI, anthropic.Anthropic]) -> openai.OpenAI:
    return sdks[0]


@pytest.fixture
def claude(
    server: Upstream, sdks: tuple[openai.OpenAI, anthropic.Anthropic]
) -> anthropic.Anthropic:
    return sdks[1]


def _turn(text: str) -> Any:
    return [{"role": "user", "content": text}]


def _complete(client: openai.OpenAI, text: str, **more: Any) -> Any:
    return client.chat.completions.create(**{"model": "m", "messages": _turn(text), **more})


def _message(client: anthropic.Anthropic, text: str, **more: Any) -> Any:
    asked = {"model": "m", "max_tokens": 64, "messages": _turn(text), **more}
    return client.messages.create(**asked)


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


def _words(stream: Any) -> list[str]:
    """The text pieces of either dialect's stream."""
    said = []
    for event in stream:
        if getattr(event, "choices", None):
            said.append(event.choices[0].delta.content or "")
        elif getattr(event, "type", "") == "content_block_delta":
            said.append(getattr(event.delta, "text", ""))
    return [word for word in said if word]


# -- well-behaved --------------------------------------------------------------------------


def test_a_completion(chat: openai.OpenAI) -> None:
    answer = _complete(chat, "hello there", model="gpt-x")
    assert answer.model == "gpt-x"
    assert answer.choices[0].message.content == "You said: hello there"
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 4, 7)
    openai.types.chat.ChatCompletion.model_validate(answer.to_dict())


def test_a_streamed_completion(chat: openai.OpenAI) -> None:
    with _complete(chat, "hello there", stream=True) as stream:
        chunks = list(stream)
    assert _words(chunks) == ["You", " said:", " hello", " there"]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    for chunk in chunks:
        openai.types.chat.ChatCompletionChunk.model_validate(chunk.to_dict())


def test_usage_comes_last_on_a_stream_that_asks(chat: openai.OpenAI) -> None:
    options = {"include_usage": True}
    with _complete(chat, "hello there", stream=True, stream_options=options) as stream:
        *before, last = stream
    assert all(chunk.usage is None for chunk in before)
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 4)


def test_a_message(claude: anthropic.Anthropic) -> None:
    answer = _message(claude, "hello there", system="x" * 10, model="claude-x")
    assert answer.model == "claude-x"
    assert [block.text for block in answer.content] == ["You said: hello there"]
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (6, 4)
    anthropic.types.Message.model_validate(answer.to_dict())


def test_a_streamed_message(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="m", max_tokens=9, messages=_turn("hello there")) as stream:
        assert list(stream.text_stream) == ["You", " said:", " hello", " there"]
        answer = stream.get_final_message()
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 4)


def test_the_last_user_text_of_a_conversation_is_what_counts(chat: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "a" * 150}, {"type": "text", "text": "b" * 150}]
    turns = [*_turn("[[status=500]]"), {"role": "assistant", "content": "x"}]
    answer = _complete(chat, "", messages=[*turns, {"role": "user", "content": parts}])
    assert answer.choices[0].message.content == f"You said: {'a' * 150}\n{'b' * 49}"


def test_tokens_are_counted_without_an_answer(
    server: Upstream, claude: anthropic.Anthropic
) -> None:
    counted = claude.messages.count_tokens(model="m", messages=_turn("hello [[status=500]]"))
    assert counted.input_tokens == 5
    assert [call["path"] for call in server.calls()] == ["/v1/messages/count_tokens"]


def test_models_in_both_dialects(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [model.id for model in chat.models.list()] == ["gpt-test-1", "claude-test-1"]
    page = claude.models.list()
    assert [model.id for model in page.data] == ["gpt-test-1", "claude-test-1"]
    anthropic.types.ModelInfo.model_validate(page.data[0].to_dict())


# -- ordered answers -----------------------------------------------------------------------


def test_two_tool_calls_until_their_results_come(chat: openai.OpenAI) -> None:
    text = '[[tool=get_weather:{"city": "Paris", "near": [[1]]} parallel=2]]'
    turn = _complete(chat, text, tools=_ASK).choices[0]
    assert turn.finish_reason == "tool_calls"
    assert turn.message.content is None
    calls = turn.message.tool_calls
    assert len({call.id for call in calls}) == 2
    for call in calls:
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris", "near": [[1]]}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
    after = [*_turn(text), turn.message.to_dict(), *results]
    answer = _complete(chat, "", messages=after).choices[0]
    assert answer.message.content.startswith("You said: ")


def test_streamed_tool_calls(chat: openai.OpenAI) -> None:
    with _complete(chat, '[[tool=f:{"a": 1, "b": 2} parallel=2]]', stream=True) as stream:
        chunks = list(stream)
    arguments: dict[int, str] = {}
    opened = []
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or ():
            opened += [call.id] if call.id else []
            arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
    assert len(set(opened)) == 2
    assert {i: json.loads(text) for i, text in arguments.items()} == {
        0: {"a": 1, "b": 2},
        1: {"a": 1, "b": 2},
    }
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("streamed", [False, True])
def test_tool_use_until_its_result_comes(claude: anthropic.Anthropic, streamed: bool) -> None:
    text = '[[tool=get_weather:{"city": "Paris"}]]'
    if streamed:
        with claude.messages.stream(model="m", max_tokens=9, messages=_turn(text)) as stream:
            answer = stream.get_final_message()
    else:
        answer = _message(claude, text)
    (block,) = answer.content
    assert isinstance(block, ToolUseBlock)
    assert (block.name, block.input, answer.stop_reason) == (
        "get_weather",
        {"city": "Paris"},
        "tool_use",
    )
    result = [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]
    turns = [
        *_turn(text),
        {"role": "assistant", "content": [block.to_dict()]},
        {"role": "user", "content": result},
    ]
    again = _message(claude, "", messages=turns)
    assert again.content[0].text == f"You said: {text}"


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_comes_first(
    chat: openai.OpenAI, claude: anthropic.Anthropic, streamed: bool
) -> None:
    if streamed:
        with claude.messages.stream(model="m", max_tokens=9, messages=_turn("[[thinking]]")) as s:
            blocks = s.get_final_message().content
        with _complete(chat, "[[thinking]]", stream=True) as stream:
            deltas = [chunk.choices[0].delta.to_dict() for chunk in stream]
        reasoned = "".join(delta.get("reasoning_content", "") for delta in deltas)
    else:
        blocks = _message(claude, "[[thinking]]").content
        reasoned = _complete(chat, "[[thinking]]").choices[0].message.reasoning_content
    thought, said = blocks
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(said, TextBlock)
    assert thought.thinking == reasoned == "Let me think."
    assert thought.signature


def test_length_finish_and_size_are_ordered(
    chat: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    answer = _complete(chat, "[[tokens=50 finish=length]]")
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (50, "length")
    assert len(answer.choices[0].message.content.split()) == 50
    assert _message(claude, "[[finish=length]]").stop_reason == "max_tokens"
    refused = _message(claude, "[[finish=content_filter big=300000]]")
    assert (refused.stop_reason, len(refused.content[0].text)) == ("refusal", 300_000)
    with _complete(chat, "[[big=5000]]", stream=True) as stream:
        assert sum(map(len, _words(stream))) == 5000
    with _complete(chat, "[[tokens=0]]", stream=True) as stream:
        assert _words(stream) == []


def test_usage_details_are_ordered(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    usage = _complete(chat, "[[tokens=5 cached=100 reasoning=7]]").usage
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (100, 100)
    assert (usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens) == (12, 7)
    other = _message(claude, "[[tokens=5 cached=3 reasoning=7]]").usage
    assert (other.input_tokens, other.cache_read_input_tokens) == (6, 3)
    assert (other.output_tokens, other.output_tokens_details.thinking_tokens) == (12, 7)


def test_no_usage_is_ordered(
    server: Upstream, chat: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    assert _complete(chat, "[[usage=none]]").usage is None
    options = {"include_usage": True}
    with _complete(chat, "[[usage=none]]", stream=True, stream_options=options) as stream:
        assert all(chunk.usage is None for chunk in stream)
    assert "usage" not in _message(claude, "[[usage=none]]").to_dict()
    body = {"model": "m", "messages": _turn("[[usage=none]]"), "stream": True}
    _, sent, _ = _raw(server, "/v1/messages", body)
    assert b"message_stop" in sent
    assert b'usage":' not in sent


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_status_with_its_retry_after(
    chat: openai.OpenAI, claude: anthropic.Anthropic, streamed: bool
) -> None:
    with pytest.raises(openai.RateLimitError) as first:
        _complete(chat, "[[status=429 retry_after=1]]", stream=streamed)
    assert first.value.response.headers["retry-after"] == "1"
    assert (first.value.code, first.value.type) == ("rate_limit_exceeded", "requests")
    with pytest.raises(anthropic.RateLimitError) as second:
        _message(claude, "[[status=429 retry_after=0.5]]", stream=streamed)
    assert second.value.response.headers["retry-after"] == "0.5"
    assert second.value.type == "rate_limit_error"
    with pytest.raises(anthropic.APIStatusError) as third:
        _message(claude, "[[status=529]]", stream=streamed)
    assert third.value.type == "overloaded_error"


def test_the_first_with_a_key_fail(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            _complete(chat, "[[fail_first=2 key=a]]")
    assert _complete(chat, "[[fail_first=2 key=a]]").choices[0].finish_reason == "stop"
    with pytest.raises(anthropic.RateLimitError):
        _message(claude, "[[fail_first=1 key=b status=429]]")
    assert _message(claude, "[[fail_first=1 key=b status=429]]").stop_reason == "end_turn"


def test_once_misbehaves_once_for_a_key_or_a_text(chat: openai.OpenAI) -> None:
    for text in ("[[status=503 once]]", "other [[status=503 once]]"):
        with pytest.raises(openai.InternalServerError):
            _complete(chat, text)
        assert _complete(chat, text).choices[0].message.content == f"You said: {text}"


def test_the_model_name_orders_too_and_the_text_wins(server: Upstream, chat: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError):
        _complete(chat, "hello", model="gpt-x@delay=0.01,status=500,tag=one")
    answer = _complete(chat, "[[tokens=2]]", model="gpt-x@tokens=9,finish=length")
    assert answer.model == "gpt-x@tokens=9,finish=length"
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (2, "length")
    assert [call["tag"] for call in server.calls()] == ["one", None]


@pytest.mark.parametrize(
    "text",
    ["[[colour=red]]", "[[status=200]]", "[[delay=x]]", "[[delay]]", "[[hang=1]]", "[[hang",
     "[[cut=1 cut=2]]", "[[tool=f:{]]", "[[fail_first=1]]", "[[garbage=soup]]", "[[usage=some]]"],
)  # fmt: skip
def test_what_is_no_order_is_refused(server: Upstream, chat: openai.OpenAI, text: str) -> None:
    with pytest.raises(openai.BadRequestError, match="directive"):
        _complete(chat, text)
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


# -- broken answers ------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_stream_is_cut_after_its_words(
    chat: openai.OpenAI, claude: anthropic.Anthropic, dialect: str, count: int
) -> None:
    text = f"one two [[cut={count}]]"
    said: list[str] = []
    with pytest.raises(Exception, match=r"(?i)incomplete|peer closed|connection"):
        for word in (
            _complete(chat, text, stream=True)
            if dialect == "openai"
            else _message(claude, text, stream=True)
        ):
            said += _words([word])
    assert said == ["You", " said:", " one", " two", f" [[cut={count}]]"][:count]


def test_a_stream_shorter_than_its_cut_ends_well(chat: openai.OpenAI) -> None:
    with _complete(chat, "[[cut=9 tokens=2]]", stream=True) as stream:
        assert _words(stream) == ["word", " word"]


def test_a_whole_body_is_cut_at_its_half(server: Upstream, claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIConnectionError):
        _message(claude, "[[cut=0]]")
    with pytest.raises(anthropic.APIConnectionError):
        _message(claude, "[[cut=0 status=500]]")
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


@pytest.mark.parametrize(
    ("garbage", "streamed"), [("json", False), ("json", True), ("invalid_utf8", True)]
)
def test_the_sdks_fail_on_garbage(
    chat: openai.OpenAI, claude: anthropic.Anthropic, garbage: str, streamed: bool
) -> None:
    with pytest.raises((ValueError, openai.APIError)):
        list(_complete(chat, f"[[garbage={garbage}]]", stream=streamed))
    with pytest.raises((ValueError, anthropic.APIError)):
        list(_message(claude, f"[[garbage={garbage}]]", stream=streamed))


# -- time ----------------------------------------------------------------------------------


def test_delay_comes_before_the_headers_and_slow_between_words(chat: openai.OpenAI) -> None:
    start = time.monotonic()
    with _complete(chat, "[[delay=0.3 slow=0.05 tokens=4]]", stream=True) as stream:
        opened = time.monotonic() - start
        assert len(_words(stream)) == 4
    assert opened >= 0.3
    assert time.monotonic() - start - opened >= 0.2


@pytest.mark.parametrize("streamed", [False, True])
def test_bytes_drip(server: Upstream, streamed: bool) -> None:
    text = "é [[slow=0.001 drip tokens=2]]"
    body = json.dumps({"model": "m", "messages": _turn(text), "stream": streamed}).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 10) as client:
        client.sendall(
            b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        reads, last = 0, b""
        while piece := client.recv(65536):
            reads, last = reads + 1, last + piece
    assert (b"1\r\nw\r\n1\r\no\r\n1\r\nr\r\n" if streamed else b"word word") in last
    assert reads > 50


def test_a_hung_request_is_counted_and_never_answered(
    server: Upstream, chat: openai.OpenAI
) -> None:
    with pytest.raises(openai.APITimeoutError):
        _complete(chat, "[[hang tag=stuck]]", timeout=0.3)
    assert [call["tag"] for call in server.calls()] == ["stuck"]
    assert _complete(chat, "still there").choices[0].finish_reason == "stop"


# -- the process and its log ---------------------------------------------------------------


def test_the_log_says_who_asked_what(
    server: Upstream, chat: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    before = time.time()
    _complete(chat, "[[tag=a]]")
    list(_message(claude, "[[tag=b]]", stream=True))
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
    _complete(chat, "again")
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
def test_it_survives_kill_9_of_its_clients(
    server: Upstream, chat: openai.OpenAI, order: str
) -> None:
    command = [sys.executable, "-c", _CLIENT, f"{server.url}/v1/chat/completions", order]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        client.kill()
    assert _complete(chat, "hello").choices[0].message.content == "You said: hello"
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
