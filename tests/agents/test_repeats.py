"""No effect of a tool is repeated unasked: in the same turn, a later one, or through an agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from remit import Runtime, tool
from remit.agents import WorkFailedError
from remit.agents.supervisor import Plan, PlanStep
from remit.agents.tools import Tool
from remit.agents.workorders import WorkOrderType
from remit.ledger import LedgerWriteError
from remit.providers import ProviderError
from remit.testing import ScriptedModel, ToolUse
from remit_interop import Door
from tests.support.roots import new_root

BROKEN = ProviderError("INVALID_REQUEST", "bad")
PAY = ToolUse("pay", {"order": 7})
LATE = ToolUse("late", {"order": 7})
PAID = "receipt R-77"
TOLD = "The call failed: it timed out, and I do not know whether it was paid."
UNKNOWN = "began, and it is unknown whether it took effect"


class Shop:
    """Tools that note their effects, and a model whose prompts are kept."""

    def __init__(self, on_unknown: str = "ask") -> None:
        self.done: list[int] = []
        self.prompts: list[str] = []

        @tool
        def pay(order: int, currency: str = "EUR") -> str:
            """Pay an order."""
            self.done.append(order)
            return PAID

        @tool(timeout_s=0.3, on_unknown=on_unknown)  # type: ignore[arg-type]
        async def late(order: int) -> str:
            """Pay an order slowly."""
            self.done.append(order)
            await asyncio.Event().wait()
            return PAID

        self.pay, self.late = pay, late

    def look(self, answer: Any = "Well.") -> Callable[[Any], Any]:
        """A step of the script that keeps the prompt."""

        def step(request: Any) -> Any:
            self.prompts.append(json.dumps(request.messages))
            return answer

        return step


@contextmanager
def _runtime(directory: Path, *script: Any, **flags: Any) -> Any:
    root = directory / "root"
    if not root.exists():
        new_root(root)
    with Runtime.open(root, providers={"s": ScriptedModel(*script)}, flags=flags) as runtime:
        yield runtime
        assert runtime.ledger.verify().verified


# -- a sub-agent that ends without an answer -------------------------------------------------------

SUB = ToolUse("payer", {"task": "Pay 7."})
AGAIN = ToolUse("payer", {"task": "Please pay order 7 now."})
ENDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "error": ([BROKEN], {}),
    "refusal": ([{"refusal": "No."}], {}),
    "limit": ([], {"turn_limit": 1}),
    "rejected": (["Sorry."], {"acceptance": {"must_contain": ["R-77"]}}),
    "timeout": ([LATE], {"timeout_s": 2.0}),
}


def _refusal(said: Any) -> Any:
    if isinstance(said, dict) and "refusal" in said:
        return ProviderError("CONTENT_FILTERED", said["refusal"])
    return said


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("depth", [1, 2])
def test_the_caller_reads_what_happened_inside(tmp_path: Path, end: str, depth: int) -> None:
    script, options = ENDS[end]
    shop = Shop()
    slow = Tool("late", "Pay slowly.", shop.late.input_schema, shop.late.function, timeout_s=30)
    inner = [PAY, *map(_refusal, script)]
    path = [SUB] * depth
    failed = [BROKEN] * (depth - 1)
    with _runtime(
        tmp_path, *path, *inner, *failed, shop.look(AGAIN), *path[1:], shop.look(PAY),
        *["It is paid."] * depth, "Done.",
    ) as runtime:  # fmt: skip
        agent = runtime.agent("payer0", tools=[shop.pay, slow], max_retries=0, **options)
        for level in range(depth):
            boss = runtime.agent(f"boss{level}", tools=[agent.as_tool(name="payer")], max_retries=0)
            agent = boss
        result = agent.run("Pay order 7.")
        (call, *_) = runtime.ledger.query(event_type="TOOL_CALL", session_id=result.session_id)
    assert shop.done == ([7, 7] if end == "timeout" else [7])  # pay once, and the slow one once
    assert f"ran. It returned: {PAID}" in call.metadata["tool_error"]
    assert (UNKNOWN in call.metadata["tool_error"]) is (end == "timeout")
    assert PAID in shop.prompts[0]
    assert PAID in shop.prompts[1]  # the second session of the sub-agent reads of it too


OTHER_AGENT = ToolUse("other", {"task": "Pay 7."})


@pytest.mark.parametrize(
    ("script", "options"),
    [
        # Neither by its caller or another agent, nor in another attempt at the answer.
        ([SUB, PAY, BROKEN, PAY, OTHER_AGENT, PAY, "Paid.", "Done."], {}),
        ([SUB, PAY, "It is paid.", "Done.", SUB, "R-77."], {"max_retries": 1}),
        (
            [SUB, PAY, "It is paid.", "Done.", OTHER_AGENT, PAY, "Paid before.", "R-77."],
            {"max_retries": 1},
        ),
    ],
)
def test_an_effect_of_a_sub_agent_is_not_repeated(
    tmp_path: Path, script: list[Any], options: dict[str, Any]
) -> None:
    shop = Shop()
    accept = {"acceptance": {"must_contain": ["R-77"]}} if options else {}
    with _runtime(tmp_path, *script) as runtime:
        tools = [
            runtime.agent(name, tools=[shop.pay], max_retries=0).as_tool()
            for name in ("payer", "other")
        ]
        boss = runtime.agent("boss", tools=[*tools, shop.pay], **accept, **options)
        assert boss.run("Pay order 7.").response == script[-1]
    assert shop.done == [7]


@pytest.mark.parametrize("again", [SUB, AGAIN])
def test_a_sub_agent_is_paid_once_though_its_caller_failed(tmp_path: Path, again: ToolUse) -> None:
    shop = Shop()
    with _runtime(
        tmp_path, SUB, PAY, "It is paid.", BROKEN, again,
        *([PAY, "Paid before."] if again is AGAIN else []), "Done.",
    ) as runtime:  # fmt: skip
        payer = runtime.agent("payer", tools=[shop.pay])
        session = runtime.agent("boss", tools=[payer.as_tool()], max_retries=0).session()
        assert session.turn("Pay order 7.").failed
        assert session.turn("Please try again").response == "Done."
    assert shop.done == [7]


# -- a call that exceeds its own time --------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "when"),
    [
        *(("ask", when) for when in ("same turn", "next turn", "after a failure")),
        *((policy, when) for policy in ("fail", "retry") for when in ("same turn", "next turn")),
    ],
)
def test_a_late_call_follows_the_tools_policy(tmp_path: Path, policy: str, when: str) -> None:
    shop = Shop(policy)
    first = [LATE] if when == "same turn" else [LATE, BROKEN if "failure" in when else TOLD]
    session_id = ""
    if when != "same turn":
        with _runtime(tmp_path, *first) as runtime:
            agent = runtime.agent("clerk", tools=[shop.late], max_retries=0)
            session = agent.session()
            assert session.turn("Pay 7.").failed is (when == "after a failure")
            session_id = session.session_id
            asked = runtime.approvals.pending()
            assert [one.kind for one in asked] == (["unknown_outcome"] if policy == "ask" else [])
            if asked:
                assert "did not end within 0.3 s" in asked[0].unknown_because
        first = []
    with _runtime(tmp_path, *first, LATE, shop.look("I see."), "Well.") as runtime:
        agent = runtime.agent("clerk", tools=[shop.late], max_retries=0)
        session = agent.session(session_id or None)
        result = session.turn("Please try again")
        if policy == "retry":
            assert shop.done == [7, 7]
            return
        assert shop.done == [7]
        if policy == "fail":
            assert result.error_code == "tool_outcome_unknown"
            return
        (request,) = runtime.approvals.pending()
        assert [one.request_id for one in result.waiting_for] == [request.request_id]
        assert "did not end within 0.3 s" in request.unknown_because
        runtime.approvals.decide(request.request_id, granted=False, by="Ada", reason="it was paid")
        resumed = session.resume()
        assert resumed is not None
        assert "It was not run again: Ada said no: it was paid" in shop.prompts[-1]
        assert runtime.approvals.pending() == []
    assert shop.done == [7]


def test_a_no_holds_for_every_repetition_also_in_the_next_process(tmp_path: Path) -> None:
    shop = Shop()
    with _runtime(tmp_path, LATE, LATE, LATE, LATE, BROKEN) as runtime:
        session = runtime.agent("clerk", tools=[shop.late], max_retries=0).session()
        (request,) = session.turn("Pay 7.").waiting_for
        runtime.approvals.decide(request.request_id, granted=False, by="Ada", reason="it was paid")
        resumed = session.resume()
        assert resumed is not None
        assert resumed.failed
    script = [shop.look(LATE), LATE, {"refusal": "No."}]
    with _runtime(tmp_path, *script) as runtime:
        session = runtime.agent("clerk", tools=[shop.late]).session(session.session_id)
        assert not session.turn("Please try again").waiting
    assert "Ada said no: it was paid" in shop.prompts[0]
    assert shop.done == [7]


def test_a_yes_lets_a_late_call_run_once_more(tmp_path: Path) -> None:
    shop = Shop()
    with _runtime(tmp_path, LATE, LATE, LATE, "I see.") as runtime:
        session = runtime.agent("clerk", tools=[shop.late]).session()
        (request,) = session.turn("Pay 7.").waiting_for
        runtime.approvals.decide(request.request_id, granted=True, by="Ada", reason="it was not")
        resumed = session.resume()
        assert resumed is not None
        assert resumed.waiting  # late again, and asked for a third time
    assert shop.done == [7, 7]


def test_a_later_step_of_a_plan_does_not_repeat_a_late_call(tmp_path: Path) -> None:
    shop = Shop("fail")
    pay = PlanStep("pay", wo_type=WorkOrderType.TOOL_CALL, tools=("late",),
                   input={"tool_id": "late", "arguments": {"order": 7}})  # fmt: skip

    def planner(_: Any) -> Plan:
        say = PlanStep.task("say", "Say it.", "late", after=("pay",))
        return Plan((pay, say))

    with _runtime(tmp_path, LATE, "Done.") as runtime:
        agent = runtime.agent("clerk", tools=[shop.late], planner=planner, max_retries=0)
        assert agent.run("Pay 7.").error_code == "tool_outcome_unknown"
    assert shop.done == [7]


# -- calls that mean the same ----------------------------------------------------------------------


class Unit(Enum):
    PIECE = "piece"


class Line(BaseModel):
    item: int
    unit: Unit = Unit.PIECE


@dataclass
class Place:
    city: str
    zip: int = 1010


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"order": 7}, {"order": "7"}),
    ({"order": 7}, {"order": 7.0}),
    ({"order": 7}, {"order": 7, "currency": "EUR"}),
    ({"order": 7, "lines": [{"item": 1}]}, {"order": 7, "lines": [{"item": "1", "unit": "piece"}]}),
    ({"order": 7, "tags": ["a", "b"]}, {"tags": ["b", "a", "a"], "order": 7}),
    ({"order": 7, "usd": "1.10"}, {"order": 7, "usd": 1.1}),
    ({"order": 7, "to": {"city": "Wien"}}, {"order": 7, "to": {"zip": "1010", "city": "Wien"}}),
    ({"order": 7}, {"order": 7, "to": None, "tags": [], "usd": "0", "lines": []}),
    ({"order": 2**70}, {"order": str(2**70)}),
    ({"order": 7, "note": "x" * 5_000}, {"order": "7", "note": "x" * 5_000}),
]
OTHER = [({"order": 7}, {"order": 8}), ({"order": 7}, {"order": 7, "currency": "USD"}),
         ({"order": 7, "usd": 1}, {"order": 7, "usd": "1.01"})]  # fmt: skip


def test_calls_are_compared_as_the_function_takes_them(tmp_path: Path) -> None:
    """Each pair in a session of its own."""
    pairs = [
        *((one, two, 1) for one, two in SAME), *((two, one, 1) for one, two in SAME),
        *((one, two, 2) for one, two in OTHER),
    ]  # fmt: skip
    script: list[Any] = []
    for one, two, _ in pairs:
        script += [ToolUse("pay", one), BROKEN, ToolUse("pay", two), "Done."]
    done: list[int] = []

    @tool
    def pay(
        order: int, currency: str = "EUR", lines: list[Line] = [],  # noqa: B006
        tags: set[str] = set(), usd: Decimal = Decimal(0), to: Place | None = None,  # noqa: B006
        note: str = "",
    ) -> str:  # fmt: skip
        """Pay an order."""
        done.append(order)
        return PAID

    with _runtime(tmp_path, *script) as runtime:
        agent = runtime.agent("clerk", tools=[pay], max_retries=0)
        for one, two, runs in pairs:
            done.clear()
            session = agent.session()
            assert session.turn("Pay.").failed
            assert session.turn("Please try again").response == "Done."
            assert len(done) == runs, (one, two)


def test_defaults_of_a_schema_count_too(tmp_path: Path) -> None:
    done: list[Any] = []
    schema = {
        "type": "object",
        "properties": {
            "order": {"type": "integer"}, "urgent": {"type": "boolean", "default": False},
            "to": {"type": "object", "properties": {"zip": {"default": 1010}}},
        },
    }  # fmt: skip
    pay = Tool("pay", "Pay.", schema, lambda **given: done.append(given))
    one, two = {"order": 7, "to": {}}, {"order": 7.0, "urgent": False, "to": {"zip": 1010}}
    with _runtime(tmp_path, ToolUse("pay", one), BROKEN, ToolUse("pay", two), "Done.") as runtime:
        session = runtime.agent("clerk", tools=[pay], max_retries=0).session()
        session.turn("Pay.")
        session.turn("Please try again")
    assert len(done) == 1


@pytest.mark.parametrize("side_by_side", [True, False])
def test_each_of_two_equal_calls_is_held_back_once(tmp_path: Path, side_by_side: bool) -> None:
    shop = Shop()
    twice: list[Any] = [[PAY, PAY]] if side_by_side else [PAY, PAY]
    with _runtime(tmp_path, *twice, BROKEN, *twice, PAY, "Done.") as runtime:
        session = runtime.agent("clerk", tools=[shop.pay], max_retries=0).session()
        assert session.turn("Pay 7 twice.").failed
        assert shop.done == [7, 7]
        assert session.turn("Please try again").response == "Done."
    assert shop.done == [7, 7, 7]  # the third of the second turn is meant


def test_two_equal_calls_with_unknown_outcome_are_both_held_back(tmp_path: Path) -> None:
    shop = Shop()
    script = [[LATE, LATE], TOLD, [LATE, LATE], "I see."]
    with _runtime(tmp_path, *script) as runtime:
        session = runtime.agent("clerk", tools=[shop.late], max_retries=0).session()
        assert not session.turn("Pay 7 twice.").failed
        assert shop.done == [7, 7]
        result = session.turn("Please try again")
        assert len(result.waiting_for) == 2
        for request, granted in zip(result.waiting_for, (False, True), strict=True):
            runtime.approvals.decide(request.request_id, granted=granted, by="Ada", reason="x")
        session.resume()
    assert shop.done == [7, 7, 7]  # the one that a person granted


# -- other ways to the same effect -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "script"),
    [
        ("fail", [LATE, SUB, LATE, LATE, "Done."]),  # its caller was late before
        ("ask", [SUB, LATE, TOLD, AGAIN, LATE]),  # it answered
        ("ask", [SUB, LATE, TOLD, TOLD, AGAIN, LATE]),  # its caller answered too
    ],
)
def test_a_late_call_is_not_repeated_by_a_sub_agent_or_after_one(
    tmp_path: Path, policy: str, script: list[Any]
) -> None:
    shop = Shop(policy)
    with _runtime(tmp_path, *script[:-2], shop.look(script[-2]), script[-1]) as runtime:
        payer = runtime.agent("payer", tools=[shop.late], max_retries=0)
        boss = runtime.agent("boss", tools=[payer.as_tool(), shop.late], max_retries=0)
        session = boss.session()
        result = session.turn("Pay order 7.")
        if script.count(TOLD) == 2:
            assert not result.failed
            result = session.turn("Please try again")
            assert UNKNOWN in shop.prompts[0]
    assert (
        result.failed
        if policy == "fail"
        else [one.kind for one in result.waiting_for] == ["unknown_outcome"]
    )
    assert shop.done == [7]


def test_a_refused_call_does_not_use_up_what_holds_its_repetition_back(tmp_path: Path) -> None:
    done: list[int] = []

    @tool(max_calls=1)
    def pay(order: int) -> str:
        """Pay an order."""
        done.append(order)
        return PAID

    script = [PAY, BROKEN, PAY, BROKEN, PAY, "Done."]
    with _runtime(tmp_path, *script) as runtime:
        session = runtime.agent("clerk", tools=[pay], max_retries=0).session()
        for message in ("Pay 7.", "Please try again", "Please try again"):
            session.turn(message)
    assert done == [7]


@pytest.mark.parametrize("late", [False, True])
def test_an_attached_run_that_begins_again_repeats_nothing(tmp_path: Path, late: bool) -> None:
    shop = Shop("fail" if late else "ask")
    name = "late" if late else "pay"
    with _runtime(tmp_path, "unused") as runtime, Door(runtime) as door:
        session = runtime.agent("buyer", tools=[shop.pay, shop.late]).session()
        with (
            pytest.raises(LedgerWriteError),
            door.attach(session, "Pay order 7.", key="k") as run,
        ):
            assert run.call(name, {"order": 7}, "c1").status == ("timeout" if late else "ok")
            raise LedgerWriteError("the process ends here")  # the order stays open
        with door.attach(session, "Pay order 7.", key="k") as run:
            if late:
                with pytest.raises(WorkFailedError):
                    run.call(name, {"order": "7"}, "other-1")
            else:
                assert run.call(name, {"order": "7"}, "other-1").output == PAID
                assert run.call(name, {"order": 7}, "c1").output == PAID
            run.finish("Well.")
    assert shop.done == [7]
