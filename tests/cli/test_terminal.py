"""A terminal: the shell, its completions and tables; what others wrote moves nothing there."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, Tool
from remit.agents.workorders import TextDelta
from remit.cli.output import table
from remit.cli.turn_display import TurnPrinter
from tests.cli.conftest import Run, at_terminal
from tests.support.agents import by_kind
from tests.support.roots import new_root
from tests.support.wire import anthropic_answer, serve, tool_use

EVIL = "one\ttwo\nthree \x1b]0;T\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07 \x9b2J \x7f \u202eend"
SHOWN = r"three \x1b]0;T\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07 \x9b2J \x7f \u202eend"  # as it is read
OBEYED = ("\x1b]0", "\x1b[2J", "\x1b]52", "\x07", "\x9b", "\x7f", "\u202e")
CONTROL = re.compile(r"[^\n]*\r(?!\n)|\x1b\[[0-9;]*[A-Za-z]")  # colours, and lines that are redrawn
LONG = "an-application-whose-name-is-longer-than-a-column-can-be"
AtTerminal = Callable[..., str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root whose model says what nobody should obey, and reads a file that does so too."""
    script = by_kind(
        anthropic_answer(EVIL),
        anthropic_answer(tool_use("read_file", {"path": "notes.txt"})),
        anthropic_answer(EVIL),
    )
    place = new_root(tmp_path / "root")
    with serve(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        yield place


@pytest.fixture
def at(root: Path) -> AtTerminal:
    """Runs ``remit ARGUMENTS`` with both outputs at a terminal; what came out."""
    return lambda *arguments: at_terminal(*arguments, "--root", root)[1]


def _harmless(text: str) -> bool:
    return not any(sign in text for sign in OBEYED)


def test_every_command_that_reads_fits_80_columns(
    root: Path, remit: Run, at: AtTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = remit("ask", "a long question " * 20, "--root", root)
    assert done.returncode == 0, done.stderr
    for command in (
        f"key create --name {LONG} --budget-usd 500 --window month --rpm 100 --tpm 9",
        "team create --name research-and-development --budget-usd 5 --window day",
        "order submit admin-001 a_task", "tenant create a-company-with-a-long-name",
        "trail add --task a-task-of-a-long-name --type decision --agent clerk a_thought",
    ):  # fmt: skip
        done = remit(*command.split(), "--root", root)
        assert done.returncode == 0, done.stderr
    monkeypatch.setenv("COLUMNS", "80")
    piped = remit("key", "list", "--root", root, COLUMNS="80").stdout
    assert LONG in piped  # a pipe gets every text whole, whatever COLUMNS says
    for command in (
        "ledger tail -n 50", "ledger query", "ledger stats", "ledger verify", "session list",
        "session show --last", "trace --last", "trail list", "gate check --all", "doctor",
        "key list", f"key show {LONG}", "team list", "user list", "organisation list",
        "budget show", "budget show --sessions", "budget check", "usage", "usage --by key,model",
        "package list", "model list", "order list", "worker list", "tenant list", "config show",
        "learn signals",
        "learn proposals", "learn report", "route status", "price list", "approve",
    ):  # fmt: skip
        shown = CONTROL.sub("", at(*command.split()))
        assert shown, command
        for line in shown.splitlines():
            assert len(line) <= 80 or " " not in line.strip(), (command, line)
            assert re.search(r"\$[\d.]*…", line) is None, (command, line)


def test_nothing_that_others_wrote_is_obeyed(root: Path, remit: Run, at: AtTerminal) -> None:
    first = at("ask", EVIL)
    assert _harmless(first)
    assert "one\ttwo\n" in first  # what only lays out text stays
    assert SHOWN in first
    (root / "notes.txt").write_text(EVIL)
    second = at("ask", "read the file notes.txt")
    assert _harmless(second)
    assert f"│   {SHOWN}" in second
    (listed, _) = json.loads(remit("session", "list", "--json", "--root", str(root)).stdout)[
        "sessions"
    ]
    session = listed["session_id"]
    entries = remit("ledger", "query", "--event-type", "EXCHANGE", "--json", "--root", str(root))
    entry = json.loads(entries.stdout)["entries"][-1]["id"]
    shown = {
        command: at(*command)
        for command in (
            ("session", "show", session), ("ledger", "show", entry),
            ("ledger", "show", entry, "--record"),
        )
    }  # fmt: skip
    for command, text in shown.items():
        assert _harmless(text), command
    assert SHOWN in shown["session", "show", session]
    assert SHOWN in " ".join(shown["ledger", "show", entry].split())  # The lines are wrapped.


def test_a_pipe_gets_what_a_terminal_gets_and_every_byte_with_raw(root: Path, remit: Run) -> None:
    place = ("--root", str(root))
    assert remit("ask", "hello", *place).stdout == f"one\ttwo\n{SHOWN}\n"
    assert f"agent: one\ttwo\n       {SHOWN}\n" in remit("session", "show", "--last", *place).stdout
    (root / "notes.txt").write_text(EVIL)
    assert remit("ask", "read the file notes.txt", "--raw", *place).stdout.startswith(f"{EVIL}\n")


def test_words_come_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = pty.openpty()
    with os.fdopen(far, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        printer = TurnPrinter()
        for text, seen in (("a\x1b", rb"a\x1b"), ("[2J\tb", b"[2J\tb"), ("\n", b"\r\n")):
            printer(TextDelta(text))
            assert select.select([near], [], [], 10)[0]
            assert os.read(near, 100) == seen
    os.close(near)


def test_an_approval_cannot_be_disguised(root: Path, remit: Run, at: AtTerminal) -> None:
    evil = {"$erased": "LED-00000001", "to": "mallory\x1b[2J"}
    with serve(by_kind(anthropic_answer(tool_use("pay", evil)))) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url  # put back by the fixture
        with Runtime.open(root) as runtime:
            tool = Tool("pay", "Pays.", {"type": "object"}, lambda **_: None)
            turn = runtime.agent("clerk", tools=[tool], approve=["pay"]).session().turn("pay")
            (waiting,) = turn.waiting_for
    place = ("--root", str(root))
    listed = remit("approve", *place).stdout
    assert r'pay("$erased"="LED-00000001", to="mallory\u001b[2J")' in listed
    for command in (
        ("approve",), ("trace", turn.session_id),
        ("approve", waiting.request_id, "--deny", "--yes"),
    ):  # fmt: skip
        shown = at(*command)
        assert _harmless(shown), command
        assert "mallory" in shown, command
        assert "erased under" not in shown, command
    assert "mallory" in remit("trace", turn.session_id, "--html", "-", *place).stdout


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
