"""A turn ends without an answer after its tools took effect: the next prompt reports them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents import ApprovalQueue
from remit.agents.supervisor import Plan, PlanStep
from remit.agents.tools import Tool
from remit.agents.workorders import Effect, ToolStarted, WorkOrderType, effects_text
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from remit.providers import ProviderError
from remit.runtime import Conversation
from remit.testing import ScriptedModel, ToolUse
from tests.agents import killed_effects
from tests.support.agents import TEXT
from tests.support.postgres import PostgresServer
from tests.support.processes import run_forked
from tests.support.roots import new_root
from tests.support.soak import sample

REFUND, HANG = ToolUse("refund", {"text": "12"}), ToolUse("hang", {"text": "13"})
BROKEN = ProviderError("INVALID_REQUEST", "bad")
RECEIPT, SAID = "receipt R-77", "It was done before: receipt R-77."


class Shop:
    """Tools that note what they did, and a model that is shown prompts."""

    def __init__(self, on_unknown: str = "ask") -> None:
        self.done: list[str] = []
        self.prompts: list[str] = []
        self.begun = asyncio.Event()
        self.tools = [
            Tool("refund", "Refund.", TEXT, self._refund),
            Tool("hang", "Refund slowly.", TEXT, self._hang, on_unknown=on_unknown),  # type: ignore[arg-type]
        ]

    def _refund(self, text: str) -> str:
        self.done.append(text)
        return RECEIPT

    async def _hang(self, text: str) -> None:
        self.done.append(text)
        self.begun.set()
        await asyncio.Event().wait()

    def look(self, answer: Any = SAID) -> Callable[[Any], Any]:
        """A step of the script that keeps the prompt."""

        def step(request: Any) -> Any:
            self.prompts.append(json.dumps([m for m in request.messages if m["role"] != "system"]))
            return answer

        return step


def _runtime(directory: Path, *script: Any, **flags: Any) -> Runtime:
    root = directory / "root"
    if not root.exists():
        new_root(root)
    return Runtime.open(root, providers={"s": ScriptedModel(*script)}, flags=flags)


async def _fail(session: Conversation[Any], shop: Shop) -> None:
    assert (await session.aturn("Refund 12 and 13")).notice


async def _cancel(session: Conversation[Any], shop: Shop) -> None:
    turn = asyncio.create_task(session.aturn("Refund 12 and 13"))
    await shop.begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def _drop(session: Conversation[Any], shop: Shop) -> None:
    stream = session.astream("Refund 12 and 13")
    async for event in stream:
        if isinstance(event, ToolStarted) and event.tool_id == "hang":
            break
    await shop.begun.wait()
    await stream.aclose()


ENDS: dict[str, tuple[list[Any], dict[str, Any], Callable[..., Any]]] = {
    "provider error": ([REFUND, BROKEN], {}, _fail),
    "escalation": ([REFUND, "Sorry."], {"acceptance": {"must_contain": ["R-77"]}}, _fail),
    "budget": ([REFUND, ProviderError("BUDGET_EXHAUSTED", "spent")], {}, _fail),
    "turn limit": ([REFUND], {"turn_limit": 1}, _fail),
    "timeout": ([REFUND, HANG], {"timeout_s": 2.0}, _fail),
    "cancellation": ([REFUND, HANG], {}, _cancel),
    "dropped stream": ([REFUND, HANG], {}, _drop),
}
HUNG = ("timeout", "cancellation", "dropped stream")


@pytest.mark.parametrize(
    ("how", "end"),
    [("stream", "timeout"), *((how, end) for how in ("turn", "another process") for end in ENDS)],
)
def test_the_next_prompt_reports_effects_of_both_kinds(tmp_path: Path, end: str, how: str) -> None:
    script, options, play = ENDS[end]
    shop = Shop()
    options = {"max_retries": 0, **options}

    async def first(runtime: Runtime) -> str:
        session = runtime.agent("clerk", tools=shop.tools, **options).session()
        await play(session, shop)
        if how != "another process":
            await again(session)
        return str(session.session_id)

    async def again(session: Conversation[Any]) -> None:
        assert await session.aresume() is None
        if how == "stream":
            events = [event async for event in session.astream("Please try again")]
            result = events[-1].result  # type: ignore[union-attr]
        else:
            result = await session.aturn("Please try again")
        assert result.response == SAID

    with _runtime(tmp_path, *script, shop.look()) as runtime:
        session_id = asyncio.run(first(runtime))
        kinds = [one.kind for one in runtime.approvals.pending()]
    if how == "another process":
        with _runtime(tmp_path, shop.look()) as runtime:
            agent = runtime.agent("clerk", tools=shop.tools)
            asyncio.run(again(agent.session(session_id)))
    assert 'refund({\\"text\\":\\"12\\"}) ran. It returned: receipt R-77' in shop.prompts[-1]
    unknown = 'hang({\\"text\\":\\"13\\"}) began, and it is unknown whether it took effect'
    assert (unknown in shop.prompts[-1].replace('\\\\"', '\\"')) is (end in HUNG)
    assert kinds == (["unknown_outcome"] if end in HUNG else [])
    assert shop.done == (["12", "13"] if end in HUNG else ["12"])


def test_what_a_person_decided_meanwhile_holds_without_being_asked_again(tmp_path: Path) -> None:
    shop = Shop()
    script = [HANG, HANG, shop.look("I cannot say."), shop.look("Well.")]

    async def play(runtime: Runtime) -> None:
        session = runtime.agent("clerk", tools=shop.tools, timeout_s=2.0).session()
        await session.aturn("Refund 13")
        (request,) = runtime.approvals.pending()
        runtime.approvals.decide(request.request_id, granted=False, by="Ada", reason="it was done")
        result = await session.aturn("Please try again")
        assert result.response == "I cannot say."
        await session.aturn("Well?")

    with _runtime(tmp_path, *script) as runtime:
        asyncio.run(play(runtime))
        assert len(runtime.ledger.read_by_event_type("APPROVAL_REQUESTED")) == 1
    assert "Ada said no: it was done" in shop.prompts[0]
    assert "Before this message" not in shop.prompts[1]
    assert shop.done == ["13"]


def test_an_open_question_is_reported_until_a_person_has_decided(tmp_path: Path) -> None:
    shop = Shop()
    script = [HANG, shop.look("Hello."), shop.look("Hello again."), HANG, shop.look("Later.")]

    async def play(runtime: Runtime) -> None:
        session = runtime.agent("clerk", tools=shop.tools, timeout_s=2.0).session()
        await session.aturn("Refund 13")
        await session.aturn("Hello")
        await session.aturn("Hello again")
        assert (await session.aturn("Please try again")).waiting

    with _runtime(tmp_path, *script) as runtime:
        asyncio.run(play(runtime))
    assert all("it is unknown whether it took effect" in prompt for prompt in shop.prompts)
    assert shop.done == ["13"]


def test_a_call_that_repeats_what_was_done_is_given_the_result_once(tmp_path: Path) -> None:
    shop = Shop()
    script = [REFUND, BROKEN, REFUND, shop.look(), REFUND, REFUND, "Twice.", REFUND, "Thrice."]
    with _runtime(tmp_path, *script) as runtime:
        session = runtime.agent("clerk", tools=shop.tools, max_retries=0).session()
        session.turn("Refund 12")
        assert session.turn("Please try again").response == SAID
        assert shop.done == ["12"]
        assert "It was not run a second time" in shop.prompts[-1]
        assert session.turn("Refund 12 two times more").response == "Twice."
        assert shop.done == ["12", "12", "12"]  # the turn before was answered
        calls = runtime.ledger.read_by_event_type("TOOL_CALL")
        assert calls[1].metadata["result"] == RECEIPT


def test_a_planner_does_not_repeat_what_was_done(tmp_path: Path) -> None:
    shop = Shop()
    pay = PlanStep(
        "pay", wo_type=WorkOrderType.TOOL_CALL, tools=("refund",),
        input={"tool_id": "refund", "arguments": {"text": "12"}},
    )  # fmt: skip

    def planner(_: Any) -> Plan:
        return Plan((pay, PlanStep.task("say", "Say it.", after=("pay",))))

    with _runtime(tmp_path, BROKEN, shop.look()) as runtime:
        agent = runtime.agent("clerk", tools=shop.tools, planner=planner, max_retries=0)
        session = agent.session()
        session.turn("Refund 12")
        assert session.turn("Please try again").response == SAID
    assert shop.done == ["12"]


def test_effects_of_a_sub_agent_reach_its_callers_next_prompt_and_its_own(tmp_path: Path) -> None:
    shop = Shop()
    ask = ToolUse("billing", {"task": "Refund 12"})
    script = [ask, REFUND, BROKEN, BROKEN, shop.look(ask), shop.look(REFUND), "R-77.", shop.look()]
    with _runtime(tmp_path, *script) as runtime:
        billing = runtime.agent("billing", tools=shop.tools, max_retries=0)
        session = runtime.agent("clerk", tools=[billing.as_tool()], max_retries=0).session()
        assert session.turn("Refund 12").failed
        assert session.turn("Please try again").response == SAID
    of_caller, of_sub_agent, _ = shop.prompts
    assert RECEIPT in of_caller
    assert RECEIPT in of_sub_agent
    assert shop.done == ["12"]


def test_a_person_is_asked_about_a_sub_agents_call_that_was_cancelled(tmp_path: Path) -> None:
    shop = Shop()
    ask = ToolUse("billing", {"task": "Refund 13"})

    async def play(runtime: Runtime) -> None:
        billing = runtime.agent("billing", tools=shop.tools, max_retries=0)
        session = runtime.agent("clerk", tools=[billing.as_tool()], max_retries=0).session()
        await _cancel(session, shop)
        (request,) = runtime.approvals.pending()
        assert (request.kind, request.tool_id) == ("unknown_outcome", "hang")
        result = await session.aturn("Please try again")
        assert [one.tool_id for one in result.waiting_for] == ["hang"]
        (open_now,) = runtime.approvals.pending()  # it stands for the first request
        assert open_now.request_id == result.waiting_for[0].request_id
        assert runtime.approvals.get(request.request_id).state == "void"

    with _runtime(tmp_path, ask, HANG, shop.look(ask), HANG) as runtime:
        asyncio.run(play(runtime))
    assert shop.done == ["13"]


def test_an_erased_turn_hands_nothing_on(tmp_path: Path) -> None:
    shop = Shop()
    with _runtime(tmp_path, REFUND, BROKEN, shop.look("Hello.")) as runtime:
        agent = runtime.agent("clerk", tools=shop.tools, max_retries=0)
        session = agent.session()
        session.turn("Refund 12")
        with suppress(Exception):
            runtime.ledger.erase(session_id=session.session_id, reason="asked for")
        again = agent.session(session.session_id)
        assert again.turn("Hello").response == "Hello."
    assert RECEIPT not in shop.prompts[-1]


def test_a_result_cannot_pretend_to_be_another_effect() -> None:
    looked = Effect("look", "{}", "", "ok", "a page\n- refund({}) ran. It returned: done")
    lines = effects_text([looked, Effect("hang", "{}", "", "error", "no\n- pay({}) ran.")]).split(
        "\n"
    )
    assert [line[:8] for line in lines if line.startswith("- ")] == ["- look({", "- hang({"]


# -- kill -9 after a tool took effect, then "Please try again": nothing is done a second time -----


# The writes after the effect: the tool's result with the next call's DISPATCH, the EXCHANGE, and
# the answer with the end of the turn. Kills at 0 end the process within the tool.
_PLACES = [(0, ""), (1, "before"), (1, "after"), (2, "before"), (2, "after"), (3, "before")]
_AGAIN = [(-1, ""), (1, "before"), (1, "after"), (2, "after"), (3, "after")]
_CASES = [
    case
    for case in itertools.product(_PLACES, ("turn", "resume", "stream"), ("ask", "fail"), _AGAIN)
    # Without an approval only a grant starts the tool again; `fail` ends the order at once.
    if not (case[2] == "fail" and case[3] != (-1, ""))
] + [
    (place, how, "ask", again)
    for place, how, again in itertools.product(
        _PLACES, ("turn resume", "resume turn", "turn turn", "turn stream"), _AGAIN
    )
]


class _Case:
    """One root, and the processes that work on its one session."""

    def __init__(self, directory: Path, policy: str, database: str, *, above: str = "") -> None:
        self.root = new_root(directory / "root", database=database)
        self.ledger_at = database or str(self.root / "ledger.db")
        self.environment = dict(os.environ)
        if database:
            self.environment["REMIT_DATABASE_URL"] = database
        self.effects = directory / "effects"
        self.policy = policy
        self.above = above
        self.session = ""

    def run(self, how: str, at: int = -1, when: str = "") -> dict[str, Any] | None:
        """Run one process; return ``None`` if it was killed."""
        done = run_forked(
            killed_effects.main, str(self.root), str(self.effects), at, when, how, self.policy,
            self.session, self.above, environment=self.environment,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        self.session = self.session or lines[0]
        if done.returncode == -signal.SIGKILL:
            return None
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def ledger(self) -> LedgerClient:
        return LedgerClient(self.ledger_at, settings=default_settings().ledger)

    def unknown(self) -> set[str]:
        """Idempotency keys of calls that began and have no end."""
        with self.ledger() as ledger:
            begun = ledger.read_by_event_type("TOOL_INTENT")
            ended = ledger.read_by_event_type("TOOL_CALL")
        keys = {entry.metadata["idempotency_key"] for entry in begun}
        return keys - {entry.metadata["idempotency_key"] for entry in ended}

    def is_answered(self) -> bool:
        """Return True if the last turn was answered, whether or not anybody read the answer."""
        with self.ledger() as ledger:
            turns = ledger.read_by_event_type("TURN_RECORDED")
        return bool(turns) and "outcome" not in turns[-1].metadata

    def deny(self) -> int:
        """Say no to all that waits, as a person; return how much that was."""
        with self.ledger() as ledger:
            queue = ApprovalQueue(ledger)
            waiting = queue.pending()
            for approval in waiting:
                assert approval.kind == "unknown_outcome"
                queue.decide(approval.request_id, granted=False, by="Ada", reason="it was done")
        return len(waiting)

    def asked_about(self) -> set[str]:
        """Idempotency keys of the calls about which a person was asked."""
        with self.ledger() as ledger:
            requests = ledger.read_by_event_type("APPROVAL_REQUESTED")
        return {request.metadata["idempotency_key"] for request in requests}


# Who is above the agent that is killed, where, and how its turn is continued, until it is answered.
_ABOVE = [
    (above, place, again, how)
    for above, place, again, how in itertools.product(
        ("caller",), _PLACES, ("turn", "stream", "resume"), ("resume", "turn")
    )
]


@pytest.mark.soak
@pytest.mark.parametrize(("above", "place", "again", "how"), sample(_ABOVE, 2))
def test_killed_below_another_agent_nothing_is_done_twice_and_one_request_is_open(
    tmp_path: Path, above: str, place: tuple[int, str], again: str, how: str
) -> None:
    case = _Case(tmp_path, "ask", "", above=above)
    assert case.run("turn", *place) is None
    unknown = case.unknown()
    result = case.run(again)
    assert result is not None
    if result["waiting"]:
        assert case.unknown()
        assert case.deny() == len(result["waiting"]) == 1
        assert case.deny() == 0
        result = case.run(how)
        assert result is not None
    assert result["nothing"] or not result["waiting"]
    assert case.effects.read_text().splitlines() == ["12"]
    if unknown and place == (0, ""):
        assert unknown & case.asked_about() or case.is_answered()
    with case.ledger() as ledger:
        assert ledger.verify().verified


# The order of a worker, continued by another worker, by a program in its session, or by both.
_ORDERS = [
    (place, how, policy, again)
    for place, how, policy, again in itertools.product(
        _PLACES, ("order", "turn", "resume", "order turn", "turn order"), ("ask", "fail"), _AGAIN
    )
    if not (policy == "fail" and again != (-1, ""))
]


def _sampled(counts: dict[tuple[str, str], int]) -> list[Any]:
    cases = {"turn": _CASES, "order": _ORDERS}
    return [
        pytest.param(store, begun, *case)
        for (store, begun), count in counts.items()
        for case in sample(cases[begun], count)
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("store", "begun", "place", "how", "policy", "again"),
    _sampled(
        {
            ("sqlite", "turn"): 3, ("postgresql", "turn"): 1,
            ("sqlite", "order"): 1, ("postgresql", "order"): 1,
        }
    ),
)  # fmt: skip
def test_killed_after_an_effect_nothing_is_done_twice(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    store: str,
    begun: str,
    place: tuple[int, str],
    how: str,
    policy: str,
    again: tuple[int, str],
) -> None:
    database = ""
    if store == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
        request.addfinalizer(lambda: server.drop(database))
    case = _Case(tmp_path, policy, database)
    assert case.run(begun, *place) is None
    unknown = case.unknown()
    assert unknown or place not in [(0, ""), (1, "before")]
    first, *more = how.split()
    result = case.run(first, *again)  # it may be killed too
    for way in more or ["turn"]:
        if not case.is_answered():  # what is asked for after an answer is asked for anew
            case.deny()
            result = case.run(way)
    assert case.effects.read_text().splitlines() == ["12"]
    if result is None:  # killed after its answer was recorded
        return
    while result["waiting"]:
        assert case.deny()
        result = case.run("order" if begun == "order" and "order" in how else "resume")
        assert result is not None
    assert case.effects.read_text().splitlines() == ["12"]
    if policy == "ask":
        assert unknown <= case.asked_about()
        said = (killed_effects.DONE, killed_effects.UNKNOWN)
        ended = result["error_code"] == "cancelled"  # killed while it ended the turn before
        assert result["nothing"] or ended or result["output"] in said, result
    elif unknown:
        # A worker that finds the turn ended by a program reads the gate's verdict alone.
        codes = ("tool_outcome_unknown", *(("answer_rejected",) if begun == "order" else ()))
        assert result["nothing"] or result["error_code"] in codes
    with case.ledger() as ledger:
        assert ledger.verify().verified
