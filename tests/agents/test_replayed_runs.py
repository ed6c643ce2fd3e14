"""A recorded run of an agent is repeated by the same program, whatever its tools would do now."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.kernel.errors import RemitError
from remit.providers import ProviderError
from remit.testing import ReplayedRun, ScriptedModel, ToolUse, new_root
from tests.support.soak import sample

pytest_plugins = ["remit.testing"]
TURNS = 30
_RAN = count()


def roll(sides: int) -> dict[str, float]:
    """Roll a die."""
    next(_RAN)
    if sides == 13:
        raise ValueError(f"no such die at {time.time()}")
    return {"rolled": random.random(), "at": time.time()}


def script(turns: int) -> ScriptedModel:
    """A model that rolls twice at once in each turn, with a broken die in every third."""
    made: list[Any] = []
    for turn in range(turns):
        sides = 13 if turn % 3 == 2 else 6
        made += [[ToolUse("roll", {"sides": 6}), ToolUse("roll", {"sides": sides})]]
        made += [f"Turn {turn} is done."]
    return ScriptedModel(*made)


def talk(
    runtime: Runtime, tools: list[Any], turns: int, changed: int = -1
) -> tuple[list[str], str]:
    """What an agent says in a session, and the session."""
    session = runtime.agent("gambler", instructions="Roll.", tools=tools, max_retries=0).session()
    said = [
        session.turn(f"Roll for turn {turn}{'.' if turn == changed else ''}").response
        for turn in range(turns)
    ]
    return said, session.session_id


def bytes_of(runtime: Runtime, session_id: str) -> list[tuple[Any, ...]]:
    """Requests and answers of a session, as their hashes and texts."""
    return [
        (entry.metadata["context_hash"], entry.metadata["response"],
         entry.metadata.get("content_blocks"), entry.metadata.get("tools"))
        for entry in runtime.ledger.query(session_id=session_id, event_type="EXCHANGE")
    ]  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, list[str], str]]:
    root = new_root(tmp_path_factory.mktemp("recorded") / "root")
    with Runtime.open(root, providers={"scripted": script(TURNS)}) as runtime:
        yield runtime, *talk(runtime, [roll], TURNS)


def test_a_run_of_thirty_turns(
    recorded: tuple[Runtime, list[str], str], tmp_path: Path,
    remit_replay: Callable[..., ReplayedRun],
) -> None:  # fmt: skip
    first, said, session_id = recorded
    before, ran = first.ledger.count(), next(_RAN)
    run = remit_replay(first.root.path / "ledger.db", session_id)
    with Runtime.open(new_root(tmp_path / "again"), providers={"replayed": run}) as second:
        again, name = talk(second, run.tools(roll), TURNS)
        assert again == said
        assert bytes_of(second, name) == bytes_of(first, session_id)
    assert len(run.recording.calls) == 2 * TURNS
    assert first.ledger.count() == before
    assert next(_RAN) == ran + 1  # no tool ran


def test_a_tool_that_runs_again_is_named(
    recorded: tuple[Runtime, list[str], str], tmp_path: Path
) -> None:
    first, _, session_id = recorded
    run = ReplayedRun(first.ledger, session_id)
    with Runtime.open(new_root(tmp_path / "again"), providers={"replayed": run}) as second:
        talk(second, [roll], 1)
    assert run.recording.difference is not None
    assert run.recording.difference.request == 2
    assert run.recording.difference.field == "/messages/3/content/0/content"
    with pytest.raises(AssertionError, match="request 2 differs"):
        run.finish()


@pytest.mark.soak
def test_a_changed_turn_is_named(recorded: tuple[Runtime, list[str], str], tmp_path: Path) -> None:
    first, _, session_id = recorded
    for turn in sample(range(TURNS), 3):
        run = ReplayedRun(first.ledger, session_id)
        root = new_root(tmp_path / f"again-{turn}")
        with Runtime.open(root, providers={"replayed": run}) as second:
            talk(second, run.tools(roll), turn + 1, changed=turn)
        found = run.recording.difference
        assert found is not None
        assert found.request == 2 * turn + 1
        assert found.field.startswith("/messages/")
        assert found.expected.endswith(f'Roll for turn {turn}"')
        assert found.found.endswith(f'Roll for turn {turn}."')


def test_sub_agents_failures_and_parallel_sessions_are_replayed(tmp_path: Path) -> None:
    def play(runtime: Runtime, tools: list[Any]) -> tuple[list[str], str]:
        inner = runtime.agent("inner", instructions="Help.", tools=tools)
        asks = inner.as_tool(name="ask", description="Ask the other one.")
        outer = runtime.agent("outer", instructions="Ask.", tools=[asks], max_retries=0)
        session = outer.session()
        said = [session.turn("One").response, session.turn("Two").response]
        return said, session.session_id

    answers = (
        ToolUse("ask", {"task": "Roll"}), ToolUse("roll", {"sides": 6}), "It rolled.",
        "The other one rolled.", ProviderError("CONTENT_FILTERED", "not that"),
    )  # fmt: skip
    with Runtime.open(
        new_root(tmp_path / "first"), providers={"scripted": ScriptedModel(*answers)}
    ) as first:
        said, session_id = play(first, [roll])
        run = ReplayedRun(first.ledger, session_id)
        assert len(run.recording.sessions) == 2
        with Runtime.open(new_root(tmp_path / "again"), providers={"replayed": run}) as second:
            assert play(second, run.tools(roll))[0] == said
        run.finish()


def test_an_erased_result_of_a_tool_is_refused(tmp_path: Path) -> None:
    with Runtime.open(new_root(tmp_path / "root"), providers={"scripted": script(1)}) as runtime:
        _, session_id = talk(runtime, [roll], 1)
        runtime.ledger.erase(session_id=session_id, reason="asked")
        with pytest.raises(RemitError, match="erased"):
            ReplayedRun(runtime.ledger, session_id)
