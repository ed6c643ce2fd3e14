"""The shell at a real pseudo-terminal: what runs, what was typed ahead, Tab, tables, colours."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.cli.shared import table
from remit.cli.shell_prompt import ShellCompleter
from remit.ledger import LedgerClient
from tests.cli.conftest import Run
from tests.cli.test_agents import PROMPT, Terminal
from tests.support.agents import by_kind
from tests.support.roots import new_root
from tests.support.wire import anthropic_answer, serve

PAY = Tool("pay", "Pay.", {"type": "object"}, print)


class Model:
    """Answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.questions: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Any:
        self.asked.set()
        self.may.wait(60)
        self.questions.append(str(body["messages"][-1]["content"]))
        answer = anthropic_answer("The answer to that.")
        return answer(body) if callable(answer) else answer


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model) -> Iterator[Path]:
    place = new_root(tmp_path / "root", "\n[supervisor]\nclassify = false\n")
    with serve(by_kind(model)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        monkeypatch.delenv("NO_COLOR", raising=False)
        yield place
        model.may.set()


def _shell(root: Path, **environment: str) -> Terminal:
    command = [sys.executable, "-m", "remit", "chat", "--root", str(root)]
    return Terminal(command, {**os.environ, **environment})


def _ask(root: Path, count: int) -> list[str]:
    with LedgerClient(root / "ledger.db") as ledger:
        queue = ApprovalQueue(ledger)
        return [
            queue.request(PAY, {"bill": n}, session_id="SES-ELSEWHERE", agent_id="a").request_id
            for n in range(count)
        ]


def test_what_runs_is_shown_and_what_is_typed_ahead_waits_for_the_prompt(
    root: Path, model: Model
) -> None:
    with _shell(root) as shell:
        shell.wait_for(PROMPT)
        shell.type("first question\r")
        shell.wait_for("[waiting for the model, ")
        shell.wait_for(" s]")
        before = len(shell.whole)
        shell.type("second question\n")
        shell.wait_for("[waiting for the model, ")  # the line is drawn again, and holds no echo
        shell.wait_for(" s]")
        assert "second" not in shell.whole[before:]
        model.may.set()
        shell.wait_for("The answer to that.")
        shell.wait_for("second question")
        shell.wait_for("The answer to that.")
        shell.wait_for(PROMPT)
        assert shell.end("/exit\r") == 0
    answered = shell.whole.split("The answer to that.")
    assert "second" not in answered[0][before:]
    # Before the answer the line is cleared: nothing of it stays beside it.
    assert answered[0].rstrip().endswith("\x1b[K") or "\x1b[K" in answered[0][-12:]
    assert len(model.questions) == 2
    assert "second question" in model.questions[1]


def test_a_pipe_gets_neither_the_line_nor_colours(root: Path, model: Model, remit: Run) -> None:
    model.may.set()
    result = remit("chat", "--root", str(root), stdin="a question\n")
    assert result.stdout == "The answer to that.\n"
    assert "waiting" not in result.stderr
    assert "\x1b" not in result.stderr


def test_tab_completes_commands_and_requests_which_beginnings_decide(
    root: Path, model: Model
) -> None:
    first, second, third = _ask(root, 3)
    number = second.removeprefix("LED-").lstrip("0")
    with _shell(root, NO_COLOR="1") as shell:
        shell.wait_for(PROMPT)
        for typed, completed in (("/den\t", "y"), (" las\t", "t")):
            shell.type(typed)
            shell.wait_for(completed)
        shell.type(" it is too dear\r")
        shell.wait_for("pay is denied.")
        shell.wait_for(PROMPT)
        shell.type(f"/approve {number}\r")
        shell.wait_for("pay is granted.")
        shell.wait_for(PROMPT)
        shell.type("/approve nonsense\r")  # no words but a request's let a tool run
        shell.wait_for("is not an approval request")
        shell.wait_for(PROMPT)
        shell.type("/deny\r")
        shell.wait_for("0 tool calls of this session wait")
        shell.wait_for(PROMPT)
        assert shell.end("/exit\r") == 0
    assert not re.search(r"\x1b\[(?:\d+;)*(?:3|4|9|10)[0-7]", shell.whole)  # NO_COLOR
    with LedgerClient(root / "ledger.db") as ledger:
        queue = ApprovalQueue(ledger)
        states = {one: queue.get(one) for one in (first, second, third)}
    assert [states[one].state for one in (first, second, third)] == ["pending", "granted", "denied"]
    assert states[third].decision_reason == "it is too dear"


def test_completions_by_what_was_typed() -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    completer = ShellCompleter(["/approve", "/approvals", "/deny"], ["/approve", "/deny"])
    completer.requests = [("LED-00000010", "pay(bill=1)"), ("LED-00000020", "pay(bill=2)")]

    def offered(text: str) -> list[str]:
        found = completer.get_completions(Document(text), CompleteEvent(completion_requested=True))
        return [one.text for one in found]

    assert offered("/app") == ["/approvals", "/approve"]
    assert offered("/approve ") == ["LED-00000010", "LED-00000020", "last"]
    assert offered("/deny led-0000002") == ["LED-00000020"]
    for nothing in ("", "hello", "/trace ", "/deny last because"):
        assert offered(nothing) == []


def test_tables_fit_a_terminal_and_are_whole_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("LED-00000001", "x" * 200, "short"), ("LED-00000002", "y", "z" * 60)]
    whole = list(table(("id", "text", "note"), rows))
    assert "x" * 200 in whole[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for columns in (40, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        for indent in (0, 4):
            lines = list(table(("id", "text", "note"), rows, indent=indent))
            assert max(map(len, lines)) <= columns - indent
            assert all(line.startswith(("id ", "LED-00000")) for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["KEY", *(f"column{number}" for number in range(12))]
    lines = list(table(heads, [["KEY-8IJWLY3QGHBPN7A6", *["a long value"] * 12]]))
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("KEY-8IJWLY3QGHBPN7A6  a long")
    assert lines[2].startswith("(--json also shows column6, column7, ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script_that_completes(
    shell: str, remit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = remit("completion", shell)
    assert script.returncode == 0
    assert f"_REMIT_COMPLETE={shell}_complete" in script.stdout
    assert remit("completion", "csh").returncode == 2
