"""Odd answers of models: what the agent does with them, what the model reads, what is recorded."""

from __future__ import annotations

import gc
import json
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from remit import Runtime, tool
from remit.agents.workorders import TextDelta
from remit.providers.dialects import read_answer
from remit.providers.wire import answer_facts
from remit.runtime import TurnEnded
from remit.testing import ScriptedModel, ToolUse
from remit.tools import Tool
from tests.support.agents import Scripted
from tests.support.roots import new_root
from tests.support.wire import (
    Raw,
    Step,
    WireServer,
    completion,
    completion_stream,
    function_call,
    message,
    serve,
    tool_use,
)  # fmt: skip

HALF = "\ud83d"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for all tests of the module: each makes sessions of its own."""
    place = tmp_path_factory.mktemp("odd") / "root"
    new_root(place)
    return place


@contextmanager
def chat_runtime(root: Path, *script: Step, **more: Any) -> Iterator[tuple[Runtime, WireServer]]:
    """A runtime that speaks Chat Completions to a scripted server."""
    with serve(*script) as server:
        flags = {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{server.url}/v1",
            "providers.odd.default_model": "m", "model.default": "odd", **more,
        }  # fmt: skip
        with Runtime.open(root, flags=flags) as runtime:
            yield runtime, server


class Calls:
    """A tool without parameters, and what it was called with."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.ping = Tool("ping", "Ping.", {"type": "object"}, self._note)

    def _note(self, **arguments: Any) -> str:
        self.made.append(arguments)
        return "done"


_CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_END = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": _USAGE}]  # fmt: skip


def _stream(*chunks: dict[str, Any]) -> Raw:
    lines = [b"data: " + json.dumps({**_CHUNK, **each}).encode() + b"\n\n" for each in chunks]
    return Raw(content_type="text/event-stream", chunks=[*lines, b"data: [DONE]\n\n"])


def _delta(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **more}]}


def _halves(*texts: str) -> Raw:
    """A stream whose pieces of text are these, written as JSON escapes them."""
    return _stream(*(_delta({"content": text}) for text in texts), *_END)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_halves("a " + HALF, "\ude00 b"), "a 😀 b"),
        (_halves("x " + HALF + " y"), "x \ufffd y"),
        (_halves("x ", HALF), "x \ufffd"),
        (completion(f"x {HALF} y"), "x \ufffd y"),
        (completion(f"x {HALF}\ude00 y"), "x 😀 y"),
    ],
)
def test_half_an_emoji_does_not_end_a_session(root: Path, answer: Step, text: str) -> None:
    with chat_runtime(root, answer, completion("second")) as (runtime, server):
        session = runtime.agent("a").session()
        streamed: list[str] = []
        for event in session.stream("x"):
            if isinstance(event, TextDelta):
                streamed.append(event.text)
            elif isinstance(event, TurnEnded):
                assert event.result.output == text
        assert not isinstance(answer, Raw) or "".join(streamed) == text
        assert session.turn("and?").output == "second"
        assert server.calls[-1].body["messages"][-2]["content"] == text
        exchange = next(iter(runtime.ledger.query(
            event_type="EXCHANGE", session_id=session.session_id)))  # fmt: skip
        assert exchange.metadata["response"] == text
        if "\ufffd" in text:  # the exact text is recorded too
            choice = exchange.metadata["answer"]["choices"][0]
            assert choice["message"]["content"] == text.replace("\ufffd", HALF)
        assert runtime.ledger.verify().verified


class Both(BaseModel):
    op: Literal["both"]
    left: Condition
    right: Condition | None = None


class Not(BaseModel):
    op: Literal["not"]
    left: Condition
    right: Condition | None = None


class Name(BaseModel):
    op: Literal["name"]
    name: str


class Left(BaseModel):
    op: Literal["left"]
    left: Plain


class Right(BaseModel):
    op: Literal["right"]
    left: Plain


Condition = Annotated[Both | Not | Name, Field(discriminator="op")]
Plain = Left | Right | Name  # pydantic checks each branch anew
for model in (Both, Not, Left, Right):
    model.model_rebuild()


def _nested(levels: int, ops: tuple[str, str], end: dict[str, Any]) -> dict[str, Any]:
    value = end
    for level in range(levels):
        value = {"op": ops[level % 2], "left": value}
    return {**value, "op": ops[0]}


@tool
def search(query: Both) -> str:
    """Search."""
    return "found"


@tool
async def search_plainly(query: Left) -> str:
    """Search."""
    return "found"


@pytest.mark.parametrize(
    ("used", "ops"), [(search, ("both", "not")), (search_plainly, ("left", "right"))]
)
def test_a_problem_deep_in_a_union_is_told_once(used: Tool, ops: tuple[str, str]) -> None:
    # 2**60 readings, if each branch were checked anew.
    value = _nested(60, ops, {"op": "name"})
    with pytest.raises(Exception, match=r"left.*('name' is a required|Field required)") as told:
        used.prepared({"query": value})
    assert len(str(told.value)) < 1_000


def test_a_value_that_fits_too_many_alternatives_is_refused() -> None:
    fitting = _nested(60, ("left", "right"), {"op": "name", "name": "a"})
    with pytest.raises(Exception, match="cannot be checked in 200,000 steps"):
        search_plainly.prepared({"query": fitting})
    assert search_plainly.prepared({"query": _nested(8, ("left", "right"), fitting["left"] and {
        "op": "name", "name": "a"})})  # fmt: skip


class _UnsayableError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("lost"), "raised KeyError"),
        (AttributeError("no name"), "raised AttributeError: no name"),
        (SystemExit(3), "raised SystemExit: 3"),
        (RecursionError("too deep"), "raised RecursionError: too deep"),
        (KeyError("\ud800"), "raised KeyError"),
        (_UnsayableError(), "a check of its type"),
        (ValueError("bad \ud800"), "a check of its type"),
    ],
    ids=repr,
)
def test_an_error_of_a_types_own_check_is_told_to_the_model(
    root: Path, error: BaseException, said: str
) -> None:
    ran: list[object] = []

    class Checked(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def check(cls, value: int) -> int:
            if value == 1:
                raise error
            return value

    @tool
    def use(what: Checked) -> str:
        """Use."""
        ran.append(what)
        return "used"

    model = ScriptedModel(ToolUse("use", {"what": {"number": 1}}), '{"number": 1}', '{"number": 2}')
    with Runtime.open(root, providers={"s": model}) as runtime:
        agent = runtime.agent("a", tools=[use], output_type=Checked, model="s")
        result = agent.run("go")
    assert (result.output.number, ran) == (2, [])
    _, of_tool, of_answer = (str(request.messages[-1]) for request in model.requests)
    assert said in of_tool
    assert "use raised" not in of_tool  # The tool was not run.
    assert said in of_answer


def test_arguments_and_typed_answers_are_checked_off_the_event_loop(root: Path) -> None:
    threads: list[str] = []

    class Noted(BaseModel):
        kind: Annotated[str, Field(min_length=1)]

        def model_post_init(self, _: Any) -> None:
            threads.append(threading.current_thread().name)

    @tool
    async def find(what: Noted) -> str:
        """Find."""
        return "found"

    model = ScriptedModel(ToolUse("find", {"what": {"kind": "a"}}), '{"kind": "b"}')
    with Runtime.open(root, providers={"s": model}) as runtime:
        result = runtime.agent("a", tools=[find], output_type=Noted, model="s").run("go")
    assert not result.failed
    assert threads[0] == "remit-tool-find"
    assert "remit-answer" in threads


class Recipe(BaseModel):
    name: str


def _stopped(reason: str, text: str | None = None, refusal: str | None = None) -> dict[str, Any]:
    answer = completion(text or "")
    answer["choices"][0]["finish_reason"] = reason
    answer["choices"][0]["message"] |= {"content": text, "refusal": refusal}
    return answer


@pytest.mark.parametrize(
    ("answer", "wanted", "code", "words"),
    [
        (_stopped("stop", refusal="No, never."), kind, "refusal", "No, never.")
        for kind in (None, Recipe)
    ]
    + [
        (_stopped("content_filter"), kind, "content_filter", "content filter")
        for kind in (None, Recipe)
    ]
    + [
        (_stopped("content_filter", "The first"), None, "content_filter", "The first"),
        (_stopped("length", '{"name": "sou'), Recipe, "length", '{"name": "sou'),
        (_stopped("length", ""), None, "length", "cut"),
        (_stopped("length", " "), Recipe, "length", "cut"),
    ],
)
def test_a_model_that_stopped_is_asked_once_and_its_reason_is_the_error(
    root: Path, answer: Step, wanted: Any, code: str, words: str
) -> None:
    with chat_runtime(root, answer) as (runtime, server):
        result = runtime.agent("a", output_type=wanted).run("go")
    assert (result.failed, result.error_code) == (True, code)
    assert words in (result.error_detail or "")
    assert len(server.calls) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_no_tool_runs_of_an_answer_ended_by_an_error(root: Path, streamed: bool) -> None:
    calls, word = Calls(), "network_error"
    answer = completion("I will ", calls=[function_call("ping", "{}")])
    answer["choices"][0]["finish_reason"] = word
    step: Step = completion_stream(answer) if streamed else answer
    with chat_runtime(root, step, **{"gateway.max_retries": 1}) as (runtime, server):
        session = runtime.agent("a", tools=[calls.ping], max_retries=0).session()
        result = session.turn("go") if not streamed else _last(session.stream("go"))
        exchanges = runtime.ledger.query(event_type="EXCHANGE", session_id=session.session_id)
        ended = {(each.metadata["finish_reason"], each.metadata["error_code"],
                  each.metadata["response"]) for each in exchanges}  # fmt: skip
        asked = len(server.calls)
        server.script = [completion("fine")]
        assert session.turn("and?").output == "fine"
        assert calls.made == []
    assert (result.failed, result.error_code) == (True, "SERVER_ERROR")
    assert f"{word!r}; received so far: I will" in result.error_detail
    assert ended == {("error", "SERVER_ERROR", "I will ")}
    assert asked == 1  # A failed answer that is paid is not asked again.


@pytest.mark.parametrize(
    ("reason", "code"),
    [("max_tokens", "length"), ("refusal", "content_filter"),
     ("model_context_window_exceeded", "length"), ("pause_turn", "length")],
)  # fmt: skip
def test_no_tool_runs_of_an_unfinished_message(scripted: Scripted, reason: str, code: str) -> None:
    calls = Calls()
    step = message("I will ", tool_use("ping", {}), stop=reason)
    with scripted(step) as (runtime, server):
        result = runtime.agent("a", tools=[calls.ping]).run("go")
    assert (result.failed, result.error_code) == (True, code)
    assert calls.made == []
    assert len(server.calls) == 1


@pytest.mark.parametrize("read", [answer_facts, read_answer])
@pytest.mark.parametrize(
    ("details", "finish"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content_filter"),
     ({"reason": "unheard of"}, "length"), (None, "length"), ({}, "length")],
)  # fmt: skip
def test_an_incomplete_response_is_no_call_of_a_tool(read: Any, details: Any, finish: str) -> None:
    call = {"type": "function_call", "call_id": "c", "id": "f", "name": "ping", "arguments": "{}"}
    answer = {"id": "r", "object": "response", "model": "m", "status": "incomplete",
              "incomplete_details": details, "output": [call]}  # fmt: skip
    found = read("openai.responses", answer)
    assert found.finish_reason == finish


def _last(events: Iterable[Any]) -> Any:
    *_, ended = events
    return ended.result


def test_calls_of_one_id_get_distinct_ids(root: Path) -> None:
    calls = Calls()
    ask = completion(calls=[function_call("ping", "{}", "c"), function_call("ping", "{}", "c")])
    ask["choices"][0]["finish_reason"] = "STOP"  # as some servers write it
    nameless = completion(calls=[function_call("no such tool!", "{}", "c")])
    with chat_runtime(root, ask, nameless, completion("fine")) as (runtime, server):
        assert runtime.agent("a", tools=[calls.ping]).run("go").output == "fine"
    sent = server.calls[-1].body["messages"]
    asked = [call for message in sent for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert [call["id"] for call in asked] == answered == ["c", "c_2", "c_3"]
    assert asked[-1]["function"]["name"] == "no_such_tool_"  # servers refuse other names
    assert len(calls.made) == 2


@pytest.mark.parametrize("name", ["", None])
def test_a_call_without_a_name_is_refused_and_the_model_told(root: Path, name: Any) -> None:
    calls = Calls()
    nameless = {"id": "n", "type": "function", "function": {"name": name, "arguments": "{}"}}
    ask = completion(calls=[nameless, function_call("ping", "{}", "c")])
    with chat_runtime(root, ask, completion("fine")) as (runtime, server):
        assert runtime.agent("a", tools=[calls.ping]).run("go").output == "fine"
    assert len(server.calls) == 2  # the answer counts; it is not requested again
    assert len(calls.made) == 1
    told = {m["tool_call_id"]: m["content"] for m in server.calls[-1].body["messages"]
            if m["role"] == "tool"}  # fmt: skip
    assert told["c"] == "done"
    assert "may use ping, not ''" in told["n"]


GREAT = [2**53, 1917043659912705297, 2**63, -(2**64) - 1, 10**300]


@pytest.mark.parametrize("number", GREAT)
def test_a_great_integer_travels_exactly(root: Path, number: int) -> None:
    class Order(BaseModel):
        order_id: int

    made: list[int] = []

    @tool
    def find(order_id: int) -> dict[str, int]:
        """Find an order."""
        made.append(order_id)
        return {"order_id": order_id}

    call = completion(calls=[function_call("find", f'{{"order_id": {number}}}')])
    last = completion(f'{{"order_id": {number}}}')
    with chat_runtime(root, call, last) as (runtime, server):
        result = runtime.agent("a", tools=[find], output_type=Order).run("go")
        assert result.output == Order(order_id=number)
        *_, asked, read = server.calls[-1].body["messages"]
        assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"order_id": number}
        assert json.loads(read["content"]) == {"order_id": number}
        recorded = next(iter(runtime.ledger.query(
            event_type="TOOL_CALL", session_id=result.session_id))).metadata  # fmt: skip
        assert recorded["arguments"] == recorded["result"] == {"order_id": number}
        assert runtime.ledger.verify().verified
    assert made == [number]


# -- Nothing is printed that no caller asked for: no warning of a log, no error of a lost task ---


@pytest.fixture
def own_root(tmp_path: Path) -> Path:
    """A root of its own."""
    return new_root(tmp_path / "root")


class _Heard(logging.Handler):
    """Notes what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture
def heard() -> Iterator[_Heard]:
    """Listen to every logger."""
    handler = _Heard()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def _call(index: int, given: str, **function: str) -> dict[str, Any]:
    part = {"index": index, "function": {"arguments": given, **function}}
    return _delta({"tool_calls": [{**part, "id": f"c{index}"} if function else part]})


STREAMS = {
    "a text that is a number": [_delta({"content": 5})],
    "a call that is no object": [_delta({"tool_calls": ["x"]})],
    "a call without a name": [_call(0, "{}", kind="x")],
    "arguments behind their end": [
        _call(0, "{}", name="a"), _call(1, "{}", name="a"), _call(0, "x"),
    ],
    "an error": [_delta({"content": "hi"}), {"error": {"message": "overloaded"}}],
    "an end without its finish": [_delta({"content": "hi"}), _delta({"content": None})],
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_an_unreadable_answer_is_an_error_alone(own_root: Path, heard: _Heard, name: str) -> None:
    answers = _stream(*STREAMS[name], *_END), completion_stream(completion("fine"))
    with chat_runtime(own_root, *answers, **{"gateway.max_retries": 0}) as (runtime, _):
        *_, last = runtime.agent("a", max_retries=0).session().stream("go")
        gc.collect()
    assert last.result.failed or last.result.output in ("fine", "hi")  # type: ignore[union-attr]
    assert heard.said == []
