"""``examples/research_agent``: two steps at once, with tools of a real MCP server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from benchmarks.agents import side_by_side

from tests.examples.playing import (
    DIALECTS,
    Asked,
    Player,
    Use,
    begin,
    entries,
    playing,
    remit,
    run,
    sound,
)

EXAMPLE = "research_agent/research_agent.py"
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


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_steps_at_once_and_a_report_of_both(
    tmp_path: Path, repository: Path, dialect: str
) -> None:
    with playing(dialect, researcher(repository), delay_s=0.3) as model:
        printed = run(tmp_path, model, EXAMPLE, QUESTION, "--repository", str(repository))
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
        program = begin(tmp_path, model, EXAMPLE, QUESTION, "--repository", "empty")
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
