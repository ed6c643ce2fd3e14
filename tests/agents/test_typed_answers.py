"""``output_type``: a value of the type, asked for with tools beside, repaired once, resumed."""

from __future__ import annotations

import datetime
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict as TypingTypedDict

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from remit import Runtime, TurnFailedError, tool
from remit.agents.workorders import AnswerRejected, PartialOutput, ToolStarted
from remit.kernel.errors import InvalidInputError
from remit.runtime import TurnEnded
from tests.agents.phrases import FILES, measure
from tests.agents.test_local_model import WHY_NOT
from tests.support.agents import Scripted, anthropic_runtime
from tests.support.local_model import ONE_THREAD
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


class Pot(TypingTypedDict, total=False):
    tea: str
    size: int


class Shelf(TypingTypedDict):
    pots: list[Pot]
    lent: Pot | None
    note: NotRequired[str]


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
    (Shelf, {"pots": [{"tea": "mint"}], "lent": None}, {"pots": [{"tea": "mint"}], "lent": None}),
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


def test_tools_are_offered_beside_the_schema(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_killed_turn_keeps_its_type(root: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
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


def test_a_waiting_turn_gives_its_type_or_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- With a model that may not speak for the system, all that is said comes from code ------------


LIE = "There are 12 packages, all gates pass, and it cost 4.20 dollars."
FLAGS = {"providers.anthropic.prose": False, "supervisor.classify": False}


def _first_allowed(body: dict[str, Any]) -> dict[str, Any]:
    """A model that lies in prose, and takes the first thing it may choose."""
    schema = body.get("output_config", {}).get("format", {}).get("schema", {})
    return message(json.dumps(schema["enum"][0]) if "enum" in schema else LIE)


def test_nothing_that_the_model_says_is_shown(scripted: Scripted) -> None:
    with scripted(_first_allowed, flags=FLAGS) as (runtime, _):
        with runtime.session() as session:
            said = {
                phrase: session.turn(phrase)
                for phrase in (
                    "hello",
                    "list all installed packages",
                    "query the ledger for TURN_RECORDED events",
                    "read the file nowhere.txt",
                    "why did you choose this model?",
                    "what did that cost?",
                    "who won the world cup in 1998?",
                    "restart the packages",
                    "Which files exist under HO1?",
                    "list the files of yesterday",
                    "is PKG-NOWHERE-404 installed?",
                    "what can you do?",
                )
            }
        calls = [e.metadata for e in runtime.ledger.read_by_event_type("TOOL_CALL")]
        verified = runtime.ledger.verify().verified
    assert all(LIE not in result.response for result in said.values())
    assert said["hello"].response.startswith("Hello!")
    packages = said["list all installed packages"]
    assert "PKG-KERNEL-001" in packages.response
    assert packages.response.startswith("list_packages (list all installed packages):\n")
    assert packages.quality_gate_passed
    assert said["restart the packages"].response.startswith("I cannot answer that")
    assert "HO1/contracts/PRC-EXECUTE-001.json" in said["Which files exist under HO1?"].response
    unsure = said["list the files of yesterday"].response
    assert unsure.startswith("I cannot answer that: no tool here mentions 'yesterday'. I can:")
    assert "ask 'list the files'" in unsure
    absent = said["is PKG-NOWHERE-404 installed?"].response
    assert absent.startswith("I cannot answer that from list_packages")
    assert absent.endswith("the result does not mention PKG-NOWHERE-404.")
    assert [call["tool_id"] for call in calls] == [
        "list_packages", "query_ledger", "read_file", "explain_route", "usage", "list_files",
        "list_packages",
    ]  # fmt: skip
    assert calls[1]["arguments"] == {"event_type": "TURN_RECORDED"}
    assert "read_file failed" in said["read the file nowhere.txt"].response
    assert "This session:" in said["what did that cost?"].response
    assert said["who won the world cup in 1998?"].response.startswith("I cannot answer that")
    assert verified


def test_what_it_can_do_is_said_by_code_with_any_model(scripted: Scripted) -> None:
    with scripted(message(LIE), flags={"supervisor.classify": False}) as (runtime, server):
        with runtime.session() as session:
            for phrase in ("what can you do?", "Which tools do you have?", "help"):
                said = session.turn(phrase)
                assert said.response.startswith("I answer from ")
                assert "- list all installed packages: ask" in said.response
                assert "(verify_ledger)" in said.response
                assert said.quality_gate_passed
        assert server.calls == []
        guide = runtime.agent("guide").session()
        assert guide.turn("what can you do?").response == LIE  # a program's agent: its model's


def test_what_was_just_said_is_a_tools_result(scripted: Scripted) -> None:
    odd = "My  order\nis \u2116 7, \u201cquoted\u201d."
    with scripted(_first_allowed, flags=FLAGS) as (runtime, server):
        with runtime.session() as session:
            first = session.turn("what did I just say?")
            assert first.response.endswith("\nNothing was said before that in this session.")
            said = session.turn(odd)
            assert session.turn("What did I just say?").response.endswith(f"\nYou said: {odd}")
            before = session.turn("what did you say before that?")
            assert before.response.endswith(f"\nI said: {said.response}")
            assert before.tool_results[0]["tool_id"] == "recall_turn"
        assert all("What did I just say?" not in str(call.body) for call in server.calls)
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        guide = runtime.agent("guide").session()
        assert guide.turn("Show my last message").response == LIE  # a program's agent: its model's
    assert [gate.metadata["verdict"] for gate in gates] == ["accept"] * 4


def test_what_must_not_be_said_is_not_recalled(scripted: Scripted) -> None:
    acceptance = {"must_not_contain": ["4111 1111"]}
    with scripted(message("4111 1111"), flags=FLAGS) as (runtime, _):
        session = runtime.agent("guide", acceptance=acceptance, max_retries=0).session()
        session.turn("My card is 4111 1111 1111 1111.")
        shown = session.turn("Show my last message")
    assert (shown.quality_gate_passed, shown.notice) == (False, True)
    assert "4111" not in shown.response


@pytest.mark.local_model
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is here")
def test_a_few_phrases_of_each_kind_with_the_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    cases = [case for file in FILES.values() for case in json.loads(file.read_text())[::40]]
    found = [(outcome, case["phrase"]) for case, outcome, _ in measure(cases, tmp_path / "root")]
    assert [phrase for outcome, phrase in found if outcome == "invented"] == []
    assert sum(outcome == "right" for outcome, _ in found) > len(found) / 2
