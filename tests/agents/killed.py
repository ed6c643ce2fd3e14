"""A program with an agent that pays and looks things up, and that is killed at a chosen step.

Steps are the writes to the ledger and the effects of tools, in the order in which they happen;
the process kills itself with SIGKILL before or after the one that it was told.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remit.agents.supervisor.operational_loop import Exclusions
from remit.agents.tools import Tool, current_call
from remit.gateway.circuit_breakers import Breakers
from remit.kernel.loops import run_blocking
from remit.ledger import group_commit
from remit.runtime import Agent, Runtime, Schedule
from tests.support.processes import run_forked
from tests.support.roots import new_root

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Killer:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, at: int, when: str) -> None:
        self._at, self._when, self._count = at, when, 0

    def step(self) -> Callable[[], None]:
        """A step begins; call the result when it has ended."""
        self._count += 1
        mine = self._count == self._at
        if mine and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

        def ended() -> None:
            if mine and self._when == "after":
                os.kill(os.getpid(), signal.SIGKILL)

        return ended


def patch(killer: Killer) -> None:
    """Count what is submitted to the ledger's writer."""
    kind = group_commit.GroupCommitter
    submit = kind.submit

    def submitted(self: Any, unit: Any, *waiter: Any) -> asyncio.Future[Any]:
        if waiter:  # a thread without a loop
            return submit(self, unit, *waiter)
        ended = killer.step()
        future = submit(self, unit)
        future.add_done_callback(lambda _: ended())
        return future

    kind.submit = submitted  # type: ignore[method-assign]
    # They are read again by the clock, not by steps.
    Breakers._is_old = lambda self: False  # type: ignore[method-assign]


def note_effect(effects: str, name: str, killer: Killer | None = None) -> None:
    """Append a tool's name and the idempotency key of its present call to a file: a step."""
    call = current_call()
    assert call is not None
    ended = killer.step() if killer else None
    with Path(effects).open("a") as file:
        file.write(f"{name} {call.idempotency_key}\n")
        file.flush()
        os.fsync(file.fileno())
    if ended:
        ended()


def run_turn(runtime: Runtime, agent: Agent, session_id: str, text: str, killer: Killer) -> None:
    """Start a turn, or resume one; print the session's id, then what came of it and the steps."""
    session = agent.session(None if session_id == "new" else session_id)
    print(session.session_id, flush=True)
    runtime.ledger.flush()
    patch(killer)
    result: Any = session.turn(text) if session_id == "new" else session.resume()
    told = {"response": None, "steps": killer._count}
    if result:
        told |= {"response": result.response, "error_code": result.error_code,
                 "waiting": [one.request_id for one in result.waiting_for]}  # fmt: skip
    print(json.dumps(told))


def run_process(
    main: Callable[..., None], directory: Path, url: str, at: int, session: str,
    database: str = "", more: tuple[str, ...] = (),
) -> tuple[str, Any]:  # fmt: skip
    """Run ``main`` in a process; return the session's id and the result, None if it was killed."""
    root = directory / "root"
    environment = {**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-secret"}
    if database:
        environment["REMIT_DATABASE_URL"] = database
    if not root.exists():
        new_root(root, database=database)
    effects = str(directory / "effects")
    done = run_forked(main, str(root), effects, at, session, *more, environment=environment)
    lines = done.stdout.splitlines()
    if done.returncode == -signal.SIGKILL:
        return lines[0], None
    assert done.returncode == 0, done.stderr
    return lines[0], json.loads(lines[-1])


def pay_and_look(root: str, effects: str, at: int, session_id: str, when: str, policy: Any) -> None:
    """Start a turn, or go on with one, and print what came of it."""
    killer = Killer(at, when)

    def effect(name: str, text: str) -> dict[str, Any]:
        note_effect(effects, name, killer)
        return {"done": text}

    tools = [
        Tool("look", "Look.", TEXT, lambda text: effect("look", text), on_unknown="retry"),
        Tool("pay", "Pay.", TEXT, lambda text: effect("pay", text), on_unknown=policy),
    ]
    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        agent = runtime.agent("payer", instructions="Pay.", tools=tools, max_retries=0)
        run_turn(runtime, agent, session_id, "pay and look", killer)


# -- A program whose agent has another one as a tool, and that is killed at a chosen step --------


def call_another(root: str, effects: str, at: int, session_id: str) -> None:
    """Start a turn, or go on with one, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")

    def look(text: str) -> str:
        note_effect(effects, "look")
        return text

    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        helper = runtime.agent(
            "helper",
            instructions="You are the helper.",
            tools=[Tool("look", "Look.", TEXT, look, on_unknown="retry")],
            max_retries=0,
        )
        boss = runtime.agent(
            "boss",
            instructions="You are the boss.",
            tools=[helper.as_tool(description="Finds things.")],
            max_retries=0,
        )
        run_turn(runtime, boss, session_id, "What is it?", killer)


# -- A program that does one tick of a schedule, and that is killed at a chosen step -------------


def tick(root: str, at: int, now: int) -> None:
    """Do what is due at ``now``, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")
    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        agent = runtime.agent("clerk", max_retries=0)
        schedule = Schedule(agent, "hourly", "Count.", every_s=3600)
        runtime.ledger.flush()
        patch(killer)
        result = run_blocking(schedule._due(now))
        print(json.dumps({"response": result and result.response, "steps": killer._count}))


# -- A program whose tool keeps failing, killed as its session is about to set the tool aside ----


def seller_of(runtime: Runtime) -> Agent:
    """An agent with a tool that is out of order and one that works."""

    def stock(**_: Any) -> None:
        raise ConnectionError("refused")

    tools = [
        Tool("stock", "What there is.", {"type": "object"}, stock),
        Tool("list", "What there was.", {"type": "object"}, lambda **_: "sencha"),
    ]
    return runtime.agent("seller", tools=tools, max_retries=0)


def fail_often(root: str) -> None:
    """Have three turns; the third is not survived."""

    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    Exclusions._exclude = killed  # type: ignore[method-assign]
    with Runtime.open(root) as runtime:
        session = seller_of(runtime).session()
        print(session.session_id, flush=True)
        for _turn in range(3):
            session.turn("Is there any oolong?")
