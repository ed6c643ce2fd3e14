"""Runs of foreign agents: any client that takes a base URL and a key, on record like an agent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import run_program
from tests.support.roots import new_root
from tests.support.strict.running import running

from remit import Runtime, tool
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.packages.gates import check_gates
from remit.runtime import Agent
from remit.runtime.state_tables import check_state
from remit.views import prompt_journey
from remit_interop import Door, Run, WorkParkedError

ORDERED: list[str] = []
_TASK = "Buy 10 packets of oolong."
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")


@tool(on_unknown="retry")
def stock(tea: str) -> int:
    """How many packets of a tea there are."""
    return {"oolong": 3}[tea]


@tool
async def order_tea(tea: str, packets: int) -> str:
    """Order tea."""
    ORDERED.append(tea)
    return f"{packets} packets of {tea} are ordered"


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture
def runtime(tmp_path: Path, upstream: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    for name, url in (("OPENAI", f"{upstream}/v1"), ("ANTHROPIC", upstream)):
        monkeypatch.setenv(f"{name}_BASE_URL", url)
        monkeypatch.setenv(f"{name}_API_KEY", "sk-upstream")
    ORDERED.clear()
    with Runtime.open(new_root(tmp_path / "root")) as opened:
        yield opened
        assert opened.ledger.verify().verified
        (report,) = check_gates(opened.gate_context(), ["G2"], by="test").gates
        assert report.passed, report


@pytest.fixture
def door(runtime: Runtime) -> Iterator[Door]:
    with Door(runtime) as opened:
        yield opened


def buyer(runtime: Runtime, **limits: Any) -> Agent:
    return runtime.agent("buyer", tools=[stock, order_tea], approve=["order_tea"], **limits)


def ask(run: Run, text: str = "hello", **headers: str) -> str | None:
    import openai

    with openai.OpenAI(**run.openai, max_retries=0) as client:
        answer = client.chat.completions.create(
            model="gpt-4o-mini", max_tokens=50, messages=[{"role": "user", "content": text}],
            extra_headers={name.replace("_", "-"): value for name, value in headers.items()},
        )  # fmt: skip
    return answer.choices[0].message.content


def entries(runtime: Runtime, run: Run, *kinds: str) -> list[Any]:
    return [
        entry
        for entry in runtime.ledger.query(session_id=run.session_id)
        if entry.event_type in kinds
    ]


def test_a_run_is_an_order_with_calls_tools_and_cost(runtime: Runtime, door: Door) -> None:
    import anthropic

    agent = buyer(runtime, session_usd=0.5, order_tokens=50_000)
    with agent.session() as session, door.attach(session, _TASK, key="tea") as run:
        assert "strict provider" in str(ask(run))
        with anthropic.Anthropic(**run.anthropic, max_retries=0) as client:
            client.messages.create(
                model="claude-haiku-4-5", max_tokens=50,
                messages=[{"role": "user", "content": "hello"}],
            )  # fmt: skip
        assert run.call("stock", '{"tea": "oolong"}', "call_1").output == 3
        assert run.call("unheard_of", {}, "call_2").status == "refused"
        with pytest.raises(WorkParkedError):
            run.call("order_tea", {"tea": "oolong", "packets": 10}, "call_3")
        assert len(run.waiting_for) == 1
    assert not run.order.ended
    assert ORDERED == []
    (waiting,) = runtime.approvals.pending()
    assert waiting.request_id == run.waiting_for[0]
    assert (waiting.agent_id, waiting.tool_id) == ("buyer", "order_tea")
    assert waiting.arguments == {"tea": "oolong", "packets": 10}
    runtime.approvals.decide(waiting.request_id, granted=True, by="Ada")
    with door.attach(session, _TASK, key="tea") as run:
        for _ in range(2):  # the second time from the record
            done = run.call("order_tea", {"tea": "oolong", "packets": 10}, "call_3")
            assert done.output == "10 packets of oolong are ordered"
        assert run.call("stock", {"tea": "oolong"}, "call_1").output == 3
        run.finish("Ordered.")
    assert ORDERED == ["oolong"]
    exchanges = entries(runtime, run, "EXCHANGE")
    assert {entry.metadata["work_order_id"] for entry in exchanges} == {run.order.wo_id}
    assert {entry.metadata["agent_id"] for entry in exchanges} == {"buyer"}
    cost = run.order.cost
    assert cost.llm_calls == len(entries(runtime, run, "LLM_CALL")) == 2
    assert cost.tool_calls == 2
    assert cost.cost_usd == pytest.approx(sum(e.metadata["cost_usd"] for e in exchanges))
    assert run.order.output_result["text"] == "Ordered."
    assert [
        (entry.event_type, entry.metadata["tool_id"], entry.metadata.get("status"))
        for entry in entries(runtime, run, "TOOL_INTENT", "TOOL_CALL")
    ][:2] == [("TOOL_INTENT", "stock", None), ("TOOL_CALL", "stock", "ok")]
    (turn,) = prompt_journey(runtime.ledger, session_id=run.session_id)["turns"]
    (order,) = turn["work_orders"]
    kinds = [step["kind"] for step in order["steps"]]
    assert kinds.count("model_call") == 2
    assert kinds.count("tool_call") == 3
    assert kinds.count("approval") == 1
    assert order["state"] == "completed"


def test_a_denied_call_is_refused_and_says_by_whom(runtime: Runtime, door: Door) -> None:
    call = ("order_tea", {"tea": "oolong", "packets": 10}, "call_1")
    with buyer(runtime).session() as session, door.attach(session, _TASK) as run:
        with pytest.raises(WorkParkedError) as parked:
            run.call(*call)
        runtime.approvals.decide(
            parked.value.request_ids[0], granted=False, by="Ada", reason="too much"
        )
        refused = run.call(*call)
        assert refused.status == "refused"
        assert "Ada said no: too much" in refused.error
    assert run.order.state == "completed"
    assert ORDERED == []


def test_a_run_is_held_to_its_order(runtime: Runtime, door: Door) -> None:
    import openai

    with buyer(runtime, order_tokens=200).session() as session:
        with door.attach(session, _TASK) as run:
            ask(run)
            with pytest.raises(openai.APIStatusError) as short:
                ask(run)
        assert short.value.status_code == 402
        with pytest.raises(openai.APIStatusError) as late:
            ask(run)
        assert late.value.status_code == 402  # the order has ended, its key has not
        with buyer(runtime, turn_limit=1).session() as other, door.attach(other, _TASK) as once:
            ask(once)
            with pytest.raises(openai.APIStatusError, match="has used all of its 1 calls"):
                ask(once)
            with pytest.raises(openai.APIStatusError) as stranger:
                ask(once, x_remit_session=session.session_id)
            assert stranger.value.status_code == 403
    assert run.order.cost.llm_calls == 1


@pytest.mark.parametrize("error", [RuntimeError("the framework broke"), asyncio.CancelledError()])
def test_what_it_raises_fails_its_order(runtime: Runtime, door: Door, error: BaseException) -> None:
    with (
        pytest.raises(type(error)),
        buyer(runtime).session() as session,
        door.attach(session, _TASK) as run,
    ):
        raise error
    assert run.order.state == "failed"
    assert run.order.error is not None
    cancelled = isinstance(error, asyncio.CancelledError)
    assert run.order.error["code"] == ("cancelled" if cancelled else "agent_failed")
    with pytest.raises(InvalidInputError, match="begun"):
        run.call("stock", {"tea": "oolong"}, "call_1")


def test_bad_calls_of_tools_are_results_or_refused(runtime: Runtime, door: Door) -> None:
    with buyer(runtime).session() as session, door.attach(session, _TASK, key="k") as run:
        assert run.call("stock", "{not json", "c1").status == "error"
        assert run.call("stock", "[1]", "c2").status == "error"
        assert run.call("stock", {"tea": 2**70}, "c3").status == "error"
        assert run.call("stock", {"tea": "sencha"}, "c4").error.startswith("stock raised KeyError")
        for call_id in ("", "a/b"):
            with pytest.raises(InvalidInputError):
                run.call("stock", {"tea": "oolong"}, call_id)
    for task, problem in ((_TASK, "has ended"), ("Sell.", "another input")):
        with (
            pytest.raises(InvalidInputError, match=problem),
            door.attach(session, task, key="k"),
        ):
            pass


def test_an_id_that_a_model_uses_again_is_another_call(runtime: Runtime, door: Door) -> None:
    with buyer(runtime).session() as session:
        for _ in range(2):  # the second time from the record
            with door.attach(session, _TASK, key="k") as run:
                for _ in range(2):
                    assert run.call("stock", {"tea": "oolong"}, "call_0").output == 3
                    assert run.call("stock", {"tea": "sencha"}, "call_0").status == "error"
                with pytest.raises(WorkParkedError):
                    run.call("order_tea", {"tea": "oolong", "packets": 1}, "call_0")
    assert len(entries(runtime, run, "TOOL_INTENT")) == 2
    assert len(entries(runtime, run, "APPROVAL_REQUESTED")) == 1


async def test_in_async_code_calls_run_side_by_side(runtime: Runtime, door: Door) -> None:
    import openai

    session = buyer(runtime).session()
    async with door.attach(session, _TASK) as run:
        calls = (run.acall("stock", {"tea": "oolong"}, f"c{n}") for n in range(20))
        assert {result.output for result in await asyncio.gather(*calls)} == {3}
        async with openai.AsyncOpenAI(**run.openai) as client:
            await client.responses.create(model="gpt-4o-mini", input="hello")
    await asyncio.to_thread(session.end)
    assert run.order.cost.tool_calls == 20
    assert run.order.cost.llm_calls == 1


async def test_a_coroutine_runs_on_the_loop_of_its_caller(runtime: Runtime, door: Door) -> None:
    loops = []

    async def where() -> str:
        """Where it runs."""
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return "here"

    session = runtime.agent("wanderer", tools=[where]).session()
    async with door.attach(session, _TASK) as run:
        assert (await run.acall("where", {}, "c1")).output == "here"
        assert (await asyncio.to_thread(run.call, "where", {}, "c2")).output == "here"
    assert loops[0] is asyncio.get_running_loop()
    assert loops[1] is not loops[0]
    assert run.order.cost.elapsed_ms > 0
    await asyncio.to_thread(session.end)


_KILLED = """
import os, signal, sys
from remit import Runtime
from remit_interop import Door
from interop_tests import test_interop as t

async def order_tea(tea: str, packets: int) -> str:
    "Order tea."
    os.kill(os.getpid(), signal.SIGKILL)

with Runtime.open(sys.argv[1]) as runtime, Door(runtime) as door:
    agent = runtime.agent("buyer", tools=[t.stock, order_tea])
    with agent.session() as session, door.attach(session, t._TASK, key="tea") as run:
        print(run.session_id, flush=True)
        t.ask(run)
        run.call("stock", {"tea": "oolong"}, "call_1")
        run.call("order_tea", {"tea": "oolong", "packets": 1}, "call_2")
"""


def test_a_killed_run_verifies_and_goes_on(runtime: Runtime) -> None:
    root = str(runtime.root.path)
    tests = str(Path(__file__).parents[1])
    killed = f"import sys\nsys.path.insert(0, {tests!r})\n{_KILLED}"
    done = run_program("-c", killed, root, environment=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with LedgerClient(str(runtime.root.path / "ledger.db"), checks=(check_state,)) as ledger:
        assert ledger.verify().verified
    agent = runtime.agent("buyer", tools=[stock, order_tea])
    with (
        Door(runtime) as door,
        agent.session(done.stdout.strip()) as session,
        door.attach(session, _TASK, key="tea") as run,
    ):
        assert run.call("stock", {"tea": "oolong"}, "call_1").output == 3
        with pytest.raises(WorkParkedError) as unknown:  # it may have been ordered
            run.call("order_tea", {"tea": "oolong", "packets": 1}, "call_2")
        request = runtime.approvals.get(unknown.value.request_ids[0])
        assert request.kind == "unknown_outcome"
        runtime.approvals.decide(request.request_id, granted=False, by="Ada")
        assert run.call("order_tea", {"tea": "oolong", "packets": 1}, "call_2").error
    assert run.order.state == "completed"
    assert run.order.cost.llm_calls == 1
    assert len(entries(runtime, run, "TOOL_INTENT")) == 2
