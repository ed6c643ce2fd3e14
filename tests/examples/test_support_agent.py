"""``examples/support_agent`` and ``examples/research_agent``."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.agents import side_by_side

from tests.examples.playing import (
    Asked,
    Model,
    Player,
    Use,
    begin,
    ended,
    entries,
    kill,
    line,
    playing,
    remit,
    rows,
    run,
    sound,
)
from tests.support.waiting import until

EXAMPLE = "support_agent/support_agent.py"
COMPLAINT = "Order 1002 came broken, I want my money back."


def clerk(asked: Asked) -> str | Use:
    """Looks an order up; refunds it when it was broken; says what came of it."""
    if asked.results:
        return f"Here is what I found: {asked.results[-1]}"
    if COMPLAINT in asked.text:
        return "refund", {"order_id": 1002, "reason": "broken"}
    return "look_up_order", {"order_id": 1001}


def _waiting(place: Path, model: Model) -> tuple[str, str]:
    """Start it, and kill it when it waits; its session and the request."""
    program = begin(place, model, EXAMPLE, COMPLAINT)
    session = line(program, "session SES-").split()[1]
    request = line(program, "remit approve LED-")
    assert "refund {'order_id': 1002, 'reason': 'broken'}" in request
    kill(program)
    return session, request.split()[2]


def decide(place: Path, request: str, *more: str) -> None:
    """As a person does in another terminal, who first looks at what waits."""
    assert f"{request}  " in remit(place, "approve")
    remit(place, "approve", request, "--by", "Ada", *more)
    assert "is waiting for approval" in remit(place, "approve")


def _refunds(place: Path) -> list[tuple[object, ...]]:
    return rows(place / "shop.db", "SELECT order_id, reason FROM refunds")


def test_what_needs_no_person_is_answered_at_once(tmp_path: Path) -> None:
    with playing("openai", clerk) as model:
        printed = run(tmp_path, model, EXAMPLE)
    assert "kettle" in printed
    assert [one.tools for one in model.asked] == [["look_up_order", "refund"]] * 2
    (call,) = entries(tmp_path, "TOOL_CALL")
    assert call.metadata["tool_id"] == "look_up_order"
    assert not _refunds(tmp_path)
    sound(tmp_path)


def test_a_refund_is_released_after_a_crash_and_made_once(tmp_path: Path) -> None:
    with playing("openai", clerk) as model:
        session, request = _waiting(tmp_path, model)
        assert not _refunds(tmp_path)
        decide(tmp_path, request)
        printed = run(tmp_path, model, EXAMPLE, "--session", session)
        assert "Order 1002 is refunded." in printed
        assert _refunds(tmp_path) == [(1002, "broken")]
        assert len(model.asked) == 2  # what was answered before the crash was not asked again
    (turn,) = entries(tmp_path, "TURN_RECORDED")
    assert turn.metadata["user_message"] == COMPLAINT
    (granted,) = entries(tmp_path, "APPROVAL_GRANTED")
    assert granted.metadata["decided_by"] == "Ada"
    shown = remit(tmp_path, "trace", session)
    assert "Ada" in shown
    assert "refund" in shown
    sound(tmp_path)


def test_a_refund_made_just_before_the_crash_is_not_made_again(tmp_path: Path) -> None:
    with playing("anthropic", clerk) as model:
        session, request = _waiting(tmp_path, model)
        decide(tmp_path, request)
        with closing(sqlite3.connect(tmp_path / "root/ledger.db")) as ledger:
            with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
                shop.execute("BEGIN IMMEDIATE")  # the refund cannot be made yet
                program = begin(tmp_path, model, EXAMPLE, "--session", session)
                until(lambda: bool(entries(tmp_path, "TOOL_INTENT")))
                ledger.execute("BEGIN IMMEDIATE")  # what comes of it cannot be written down
            until(lambda: bool(_refunds(tmp_path)))
            kill(program)
        assert not entries(tmp_path, "TOOL_CALL")

        printed = run(tmp_path, model, EXAMPLE, "--session", session)
    assert "Order 1002 is refunded." in printed
    assert [one.metadata.get("attempt") for one in entries(tmp_path, "TOOL_INTENT")] == [None, 2]
    assert _refunds(tmp_path) == [(1002, "broken")]
    sound(tmp_path)


def test_a_refund_that_is_denied_is_not_made(tmp_path: Path) -> None:
    with playing("anthropic", clerk) as model:
        session, request = _waiting(tmp_path, model)
        decide(tmp_path, request, "--deny", "--reason", "it was used for years")
        printed = run(tmp_path, model, EXAMPLE, "--session", session)
    assert "Ada said no: it was used for years" in printed
    assert not _refunds(tmp_path)
    assert not entries(tmp_path, "TOOL_INTENT")
    sound(tmp_path)


def test_it_goes_on_by_itself_once_somebody_has_decided(tmp_path: Path) -> None:
    with playing("openai", clerk) as model:
        program = begin(tmp_path, model, EXAMPLE, COMPLAINT)
        line(program, "session SES-")
        decide(tmp_path, line(program, "remit approve LED-").split()[2])
        assert "Order 1002 is refunded." in ended(program)
    assert _refunds(tmp_path) == [(1002, "broken")]
    sound(tmp_path)


def test_a_session_goes_on_with_a_further_message(tmp_path: Path) -> None:
    with playing("anthropic", clerk) as model:
        first = run(tmp_path, model, EXAMPLE, "Where is order 1001?")
        session = first.split()[1]
        run(tmp_path, model, EXAMPLE, "And what did it cost?", "--session", session)
        assert "Where is order 1001?" in model.asked[-1].text
    assert [turn.metadata["turn_number"] for turn in entries(tmp_path, "TURN_RECORDED")] == [1, 2]


EXAMPLE_RESEARCH = "research_agent/research_agent.py"
QUESTION = "What changed lately?"
AUTHOR = ("-c", "user.name=Grace", "-c", "user.email=grace@example.org")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, and a change that nobody committed."""
    place = tmp_path / "repository"
    place.mkdir()
    (place / "tea.txt").write_text("green\n")
    for command in (("init", "-q"), ("add", "."), (*AUTHOR, "commit", "-q", "-m", "Add tea")):
        subprocess.run(["git", "-C", str(place), *command], check=True)
    (place / "tea.txt").write_text("green\nblack\n")
    return place


def researcher(place: Path) -> Player:
    """Uses the tool that a step offers; joins what the steps before found."""

    def play(asked: Asked) -> str | Use:
        if asked.results:
            return f"Found: {asked.results[-1]}"
        if asked.tools:
            return asked.tools[0], {"repo_path": str(place)}
        return f"Grace added tea: {'Add tea' in asked.text}; open: {'tea.txt' in asked.text}"

    return play


def test_two_steps_at_once_and_a_report_of_both(tmp_path: Path, repository: Path) -> None:
    with playing("openai", researcher(repository), delay_s=0.3) as model:
        printed = run(tmp_path, model, EXAMPLE_RESEARCH, QUESTION, "--repository", str(repository))
    assert "Grace added tea: True; open: True" in printed
    assert printed.count(": completed, ") == 3

    offered = sorted(one.tools for one in model.asked)
    assert offered == [[], *[["git__git_log"]] * 2, *[["git__git_status"]] * 2]
    calls = {one.metadata["tool_id"]: one.metadata for one in entries(tmp_path, "TOOL_CALL")}
    assert {one["status"] for one in calls.values()} == {"ok"}
    assert "Grace" in str(calls["git__git_log"]["result"])
    assert "modified:   tea.txt" in str(calls["git__git_status"]["result"])

    began = [one.id for one in entries(tmp_path, "WO_EXECUTING")]
    done = [one.id for one in entries(tmp_path, "WO_COMPLETED")]
    assert began[0] < began[1] < done[0] < done[1] < began[2] < done[2]
    (turn,) = entries(tmp_path, "TURN_RECORDED")
    assert turn.metadata["user_message"] == QUESTION
    assert "history, present" in remit(tmp_path, "trace", "--last")
    sound(tmp_path)


def test_a_server_that_does_not_start_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with playing("anthropic", lambda asked: "never") as model:
        program = begin(tmp_path, model, EXAMPLE_RESEARCH, QUESTION, "--repository", "empty")
        printed, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "MCP server 'git'" in printed
    assert not model.asked


def test_remits_program_is_no_longer_than_the_shortest_and_two_lines() -> None:
    sizes = {name: side_by_side.counted(program) for name, program in side_by_side.ALL.items()}
    remit = sizes.pop("Remit")
    assert remit.lines <= min(size.lines for size in sizes.values()) + 2
    assert remit.files == 1


def test_killed_while_it_waits_it_goes_on_to_the_typed_answer(tmp_path: Path) -> None:
    outcome = side_by_side.run(side_by_side.ALL["Remit"], tmp_path)
    assert outcome.printed == "text='Order 1002 is refunded.' refunded=True"
    assert outcome.calls == 3
