"""``output_type``: a value of the type, asked for with tools beside, repaired once, resumed."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from remit import Runtime, TurnFailedError, tool
from remit.agents.workorders import AnswerRejected, PartialOutput, ToolStarted
from remit.kernel.errors import InvalidInputError
from remit.runtime import TurnEnded
from tests.support.agents import anthropic_runtime
from tests.support.processes import run_forked
from tests.support.roots import new_root
from tests.support.wire import (
    anthropic_answer,
    completion,
    function_call,
    message,
    serve,
    tool_use,
)


class Tea(BaseModel):
    name: str
    minutes: int = Field(gt=0)


class Green(BaseModel):
    kind: Literal["green"]
    steamed: bool


class Black(BaseModel):
    kind: Literal["black"]
    region: str


class Node(BaseModel):
    name: str
    below: list[Node] = []


@dataclass
class Order:
    tea: Tea
    due: datetime.date


class Line(TypedDict):
    tea: str
    packets: int


TREE = Node(name="a", below=[Node(name="b")])
OOLONG = {"name": "oolong", "minutes": 3}


@tool(on_unknown="retry")
def stock(tea: str) -> int:
    """How many packets of a tea there are."""
    return 3


CASES: list[tuple[Any, Any, Any]] = [
    (Tea, OOLONG, Tea(name="oolong", minutes=3)),
    (
        Order,
        {"tea": OOLONG, "due": "2026-11-27"},
        Order(Tea(name="oolong", minutes=3), datetime.date(2026, 11, 27)),
    ),
    (Line, {"tea": "oolong", "packets": 2}, {"tea": "oolong", "packets": 2}),
    (list[Tea], {"result": [OOLONG]}, [Tea(name="oolong", minutes=3)]),
    (Green | Black, {"result": {"kind": "black", "region": "X"}}, Black(kind="black", region="X")),
    (Node, {"result": {"name": "a", "below": [{"name": "b"}]}}, TREE),
    (int, {"result": 3}, 3),
    (bool | None, {"result": None}, None),
    (Annotated[int, Field(ge=3)], {"result": 3}, 3),
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for all tests of the module: each makes sessions of its own."""
    place = tmp_path_factory.mktemp("typed") / "root"
    new_root(place)
    return place


def test_every_kind_of_type_gives_its_value(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [message(json.dumps(data)) for _, data, _ in CASES]
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, server):
        agent = runtime.agent("guide")
        for wanted, data, value in CASES:
            result = agent.run("Which?", output_type=wanted)
            assert result.output == value
            assert type(result.output) is type(value)
            assert json.loads(result.response) == data
        for call in server.calls:
            schema = call.body["output_config"]["format"]["schema"]
            assert schema["type"] == "object"
            assert schema["additionalProperties"] is False


def test_the_type_belongs_to_the_agent_and_a_turn_may_have_another(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [message(json.dumps(OOLONG)), message('{"result":true}'), message("Three minutes.")]
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, _):
        agent = runtime.agent("guide", output_type=Tea)
        with agent.session() as session:
            assert session.turn("Which?").output.minutes == 3
            assert session.turn("Sure?", output_type=bool).output is True
            result = session.turn("How long?", output_type=str)
    assert result.output == result.response == "Three minutes."


def test_tools_are_offered_beside_the_schema_in_both_dialects(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = message(tool_use("stock", {"tea": "oolong"}))
    answer = message(json.dumps(OOLONG))
    with anthropic_runtime(root, monkeypatch, use, answer) as (runtime, server):
        agent = runtime.agent("seller", tools=[stock], output_type=Tea)
        result = agent.run("Any oolong?")
    assert result.output == Tea(name="oolong", minutes=3)
    assert result.tool_results[0]["output"] == 3
    assert all("tools" in call.body and "output_config" in call.body for call in server.calls)

    calls = [function_call("stock", '{"tea": "oolong"}')]
    with serve(completion("", calls), completion(json.dumps(OOLONG))) as openai:
        monkeypatch.setenv("OPENAI_BASE_URL", openai.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        with Runtime.open(root, model="openai/gpt-test-1") as runtime:
            agent = runtime.agent("seller", tools=[stock], output_type=Tea)
            assert agent.run("Any oolong?").output == Tea(name="oolong", minutes=3)
    for call in openai.calls:
        assert call.body["response_format"]["json_schema"]["schema"]["required"] == [
            "name", "minutes",
        ]  # fmt: skip
        assert call.body["tools"]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("It is six.", "it is not JSON"),
        ('{"number": "many"}', "number: Input should be a valid integer"),
        ('{"number": 3}', "number: Value error, must be even"),
        ('{"number"', "it is not JSON"),
        ("{}", "number: Field required"),
    ],
)
def test_an_answer_that_does_not_fit_is_repaired_once_with_the_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch, first: str, reason: str
) -> None:
    script = [message(first), message('```json\n{"number": 6}\n```')]
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, server):
        heard: list[object] = []
        result = runtime.agent("guide", output_type=Even).run("Which?", on_event=heard.append)
    assert result.output.number == 6
    assert result.cost_summary["llm_calls"] == 2
    *_, before, last = server.calls[1].body["messages"]
    assert before["role"] == "assistant"
    assert reason in json.dumps(last["content"])
    assert [reason in event.reasons[0] for event in heard if isinstance(event, AnswerRejected)]


def test_a_model_that_never_fits_is_asked_twice_and_the_turn_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anthropic_runtime(root, monkeypatch, message("Tea.")) as (runtime, server):
        result = runtime.agent("guide", output_type=Tea).run("Which?")
        assert runtime.ledger.verify().verified
    assert len(server.calls) == 2
    assert result.failed
    assert result.error_code == "output_schema_invalid"
    assert "it is not JSON" in result.error_detail
    with pytest.raises(TurnFailedError, match="output_schema_invalid") as raised:
        _ = result.output
    assert raised.value.next_step


class Callback(BaseModel):
    call: Callable[[], int]


@pytest.mark.parametrize(
    "wanted", [Callable[[], int], Callback, type(iter([])), "Missing", list["Missing"]]  # type: ignore[name-defined]  # noqa: F821
)  # fmt: skip
def test_a_type_that_json_schema_cannot_say_is_refused_when_the_agent_is_made(
    root: Path, monkeypatch: pytest.MonkeyPatch, wanted: Any
) -> None:
    with anthropic_runtime(root, monkeypatch, message("x")) as (runtime, server):
        with pytest.raises(InvalidInputError, match="cannot be described") as raised:
            runtime.agent("guide", output_type=wanted)
        assert raised.value.next_step
        with pytest.raises(InvalidInputError, match="cannot be described"):
            runtime.agent("guide").run("Which?", output_type=wanted)
        assert not server.calls


def test_partial_outputs_grow_to_the_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teas = {"result": [OOLONG, {"name": "sencha", "minutes": 2}]}
    steps = [anthropic_answer(tool_use("stock", {"tea": "x"})), anthropic_answer(json.dumps(teas))]
    with (
        anthropic_runtime(root, monkeypatch, *steps) as (runtime, _),
        runtime.agent("guide", tools=[stock]).session() as session,
    ):
        events = list(session.stream("Which?", output_type=list[Tea]))
    parts = [event.data for event in events if isinstance(event, PartialOutput)]
    assert any(isinstance(event, ToolStarted) for event in events)
    assert [] in parts
    assert any(part and len(part) == 1 and part[0].get("name") for part in parts)
    assert parts[-1] == teas["result"]
    assert isinstance(events[-1], TurnEnded)
    assert [tea.name for tea in events[-1].result.output] == ["oolong", "sencha"]


def _killed_in_a_turn(root: str, at: str) -> None:
    """A process that kills itself as soon as its turn comes to an event of that name."""

    def listen(event: object) -> None:
        if type(event).__name__ == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with Runtime.open(root) as runtime:
        session = runtime.agent("seller", tools=[stock]).session()
        print(session.session_id, flush=True)
        session.turn("Any oolong?", output_type=Tea, on_event=listen)


@pytest.mark.parametrize("at", ["AnswerRejected"])
def test_a_killed_turn_resumes_to_the_same_typed_value(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    script = [
        message(tool_use("stock", {"tea": "oolong"})),
        message("Three."),
        message(json.dumps(OOLONG)),
    ]
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, server):
        died = run_forked(_killed_in_a_turn, str(root), at, environment=dict(os.environ))
        assert died.returncode == -signal.SIGKILL, died.stderr
        session = runtime.agent("seller", tools=[stock]).session(died.stdout.split()[0])
        with pytest.raises(InvalidInputError, match="another output type"):
            session.resume(output_type=int)
        result = session.resume(output_type=Tea)
        assert result is not None
        assert result.output == Tea(name="oolong", minutes=3)
        assert result.tool_results[0]["output"] == 3
    assert len(server.calls) == 3  # none was made twice


def test_a_waiting_turn_gives_its_type_or_without_it_the_data(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [message(tool_use("stock", {"tea": "oolong"})), message('{"result":[1,2]}')]
    for resumed_as, value in ((list[int], [1, 2]), (None, {"result": [1, 2]})):
        with anthropic_runtime(root, monkeypatch, *script) as (runtime, _):
            session = runtime.agent("seller", tools=[stock], approve=["stock"]).session()
            result = session.turn("Any oolong?", output_type=list[int])
            assert result.waiting
            with pytest.raises(TurnFailedError, match="waits for a person"):
                _ = result.output
            runtime.approvals.decide(result.waiting_for[0].request_id, granted=True, by="Ada")
            ended = session.resume(output_type=resumed_as)
            assert ended is not None
            assert ended.output == value


def test_a_provider_without_structured_output_is_shown_the_schema(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"providers.anthropic.structured_output": False}
    with anthropic_runtime(root, monkeypatch, message(json.dumps(OOLONG)), flags=flags) as (
        runtime,
        server,
    ):
        result = runtime.agent("guide", tools=[stock], output_type=Tea).run("Which?")
    assert result.output == Tea(name="oolong", minutes=3)
    (call,) = server.calls
    assert "output_config" not in call.body
    assert "minutes" in json.dumps(call.body["messages"][-1])


def test_the_schema_is_on_record(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with anthropic_runtime(root, monkeypatch, message(json.dumps(OOLONG))) as (runtime, _):
        result = runtime.agent("guide", output_type=Tea).run("Which?")
        (plan,) = runtime.ledger.query(session_id=result.session_id, event_type="WO_PLANNED")
        (start,) = runtime.ledger.query(session_id=result.session_id, event_type="SESSION_START")
        (done,) = runtime.ledger.query(session_id=result.session_id, event_type="WO_COMPLETED")
    text = plan.metadata["constraints"]["output_schema"]
    assert start.metadata["output_schema_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    schema = json.loads(text)
    assert schema["required"] == ["name", "minutes"]
    assert done.metadata["output_result"]["output"] == OOLONG
