"""Turns that wait for a person, from process to process: what one begins another goes on with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents import ApprovalQueue
from remit.ledger import LedgerClient
from tests.cli.conftest import Run
from tests.support.agents import by_kind
from tests.support.commands import require_said
from tests.support.processes import Program, run_program
from tests.support.roots import new_root
from tests.support.terminal import Terminal
from tests.support.waiting import until
from tests.support.wire import Step, WireServer, anthropic_answer, serve, tool_use

TOP = Path(__file__).parents[2]
PROGRAM = '''
import sys, time
from remit import Runtime
from remit.cli.chat import Shell

root, counter, name, what, *session = sys.argv[1:]

def refund(order: int, note: str = "") -> str:
    """Pay an order back."""
    with open(counter, "a") as file:
        file.write(f"{order}\\n")
    return "paid back"

with Runtime.open(root) as runtime:
    agent = runtime.agent(name, tools=[refund], approve=["refund"])
    if what == "begin":
        conversation = agent.session()
        result = conversation.turn("refund order 12")
        print(conversation.session_id, result.waiting_for[0].request_id, flush=True)
        time.sleep(600)
    elif what == "go on":
        result = agent.session(*session).resume()
        print(result.response)
    else:
        with agent.session(*session) as conversation:
            shell = Shell(runtime, conversation)
            shell.pick_up()
            shell.talk()
'''
ASKS = anthropic_answer(tool_use("refund", {"order": 12}))
PAID = anthropic_answer("Order 12 is paid back.")


@dataclass
class Clerk:
    """The program above, its root, and what its tool did."""

    root: Path
    counter: Path
    server: WireServer
    remit: Run
    name: str = "clerk"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "sk-secret",
            "PYTHONPATH": str(TOP),
            "USER": "ann",
            "LOGNAME": "ann",
        }

    def command(self, *arguments: str) -> list[str]:
        place = (str(self.root), str(self.counter), self.name)
        return [sys.executable, "-c", PROGRAM, *place, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        result = run_program(
            *self.command(*arguments)[1:], environment=self.environment(), stdin=stdin
        )
        assert result.returncode == 0, result.stderr
        return result

    def begin_and_die(self) -> tuple[str, str]:
        """A turn that waits, in a process that is killed: its session, and the request."""
        with Program(*self.command("begin")[1:], environment=self.environment()) as process:
            session, request = process.stdout.readline().split()
            process.send_signal(signal.SIGKILL)
        return session, request

    def cli(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment(), **more}
        return self.remit(*arguments, "--root", str(self.root), **env)

    def json(self, *arguments: str) -> Any:
        result = self.cli(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def refunds(self) -> list[str]:
        return self.counter.read_text().split() if self.counter.exists() else []

    def turns(self, session: str) -> list[dict[str, Any]]:
        with LedgerClient(self.root / "ledger.db") as ledger:
            assert ledger.verify().verified
            found = ledger.query(event_type="TURN_RECORDED", session_id=session)
            return [entry.metadata for entry in found]


@pytest.fixture
def clerk(remit: Run, tmp_path: Path) -> Iterator[Callable[..., Clerk]]:
    """Makes a :class:`Clerk` whose model answers by a script."""
    with contextlib.ExitStack() as stack:

        def make(*script: Step) -> Clerk:
            server = stack.enter_context(serve(*(script or (ASKS, PAID))))
            return Clerk(new_root(tmp_path / "root"), tmp_path / "counter", server, remit)

        yield make


def test_one_process_begins_one_approves_one_ends(clerk: Callable[..., Clerk]) -> None:
    it = clerk()
    session, request = it.begin_and_die()
    assert it.refunds() == []
    (waiting,) = it.json("approve")["approvals"]
    assert (waiting["request_id"], waiting["tool_id"]) == (request, "refund")
    assert (waiting["arguments"], waiting["state"]) == ({"order": 12}, "pending")
    assert f"{request}" in it.cli("approve").stdout
    assert "refund(order=12)" in it.cli("approve").stdout

    shown = it.json("session", "show", session)["unfinished_turn"]
    assert shown["user_message"] == "refund order 12"
    assert [one["request_id"] for one in shown["waiting_for"]] == [request]
    assert (
        f"waiting: refund(order=12): run `remit approve {request}`"
        in it.cli("session", "show", session).stdout
    )
    assert (
        f"{session}, 1 turn (waiting for approval), " in it.cli("session", "show", session).stdout
    )
    assert f"Waiting for approval: {session}. " in it.cli("session", "list").stderr

    decided = it.cli("approve", request, "--yes", "--reason", "a good customer")
    assert decided.returncode == 0, decided.stderr
    for text in ("refund", '"order": 12', session, "clerk", "granted by ann"):
        assert text in decided.stdout
    assert "the program of the agent clerk" in decided.stderr
    again = it.cli("approve", request)  # such as after a kill behind the commit
    assert (again.returncode, "granted by ann" in again.stdout) == (0, True), again.stderr
    assert len(it.json("ledger", "query", "--event-type", "APPROVAL_GRANTED")["entries"]) == 1
    again = it.cli("approve", request, "--deny", "--yes")
    require_said(again, f"ann already granted {request}.")
    assert "next:" not in again.stderr  # The command has just shown the decision.
    assert it.refunds() == []

    assert it.run("go on", session).stdout == "Order 12 is paid back.\n"
    assert it.refunds() == ["12"]
    (turn,) = it.turns(session)
    assert turn["user_message"] == "refund order 12"
    assert turn["response"] == "Order 12 is paid back."
    assert len(it.server.calls) == 2
    assert it.cli("approve").stdout == "No tool call is waiting for approval.\n"
    assert it.json("session", "show", session)["unfinished_turn"] is None


def test_the_shells_own_session_goes_on_at_once(
    remit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_root(tmp_path / "root")
    script = by_kind(
        anthropic_answer(tool_use("list_sessions", {})), anthropic_answer("There is one.")
    )
    with serve(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        with Runtime.open(root) as runtime:
            tools = ["list_sessions"]
            agent = runtime.agent("admin-001", tools=tools, approve=tools)
            turn = agent.session().turn("which sessions are there?")
        (waiting,) = turn.waiting_for
        place = ("--root", str(root))
        result = remit("approve", waiting.request_id, "--yes", "--run", "--json", *place)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["state"], told["turn"]["response"]) == ("granted", "There is one.")
    assert told["turn"]["waiting_for"] == []
    (used,) = told["turn"]["tool_results"]
    assert used["output"]["sessions"][0]["session_id"] == turn.session_id
    with LedgerClient(root / "ledger.db") as ledger:
        assert ledger.verify().verified
        events = ledger.count_by_event()
    assert (events["TOOL_CALL"], events["TURN_RECORDED"]) == (1, 1)


PROMPT = "tokens"  # of the status line below it: the prompt waits


def test_a_person_at_a_terminal_is_asked(clerk: Callable[..., Clerk]) -> None:
    it = clerk(ASKS, PAID, ASKS, anthropic_answer("Not this time."), ASKS, PAID)
    question = "Approve refund(order=12)? [y/N/edit/later]"
    with Terminal(it.command("talk"), it.environment()) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("refund order 12\r")
        terminal.wait_for(question)
        assert it.refunds() == []
        terminal.type("perhaps\r")
        terminal.wait_for(question)
        terminal.type("y\r")
        terminal.wait_for("Order 12 is paid back.")
        assert it.refunds() == ["12"]
        terminal.wait_for(PROMPT)
        terminal.type("refund order 12 again\r")
        terminal.wait_for(question)
        terminal.type("\r")  # what is not a clear yes is no
        terminal.wait_for("Not this time.")
        terminal.wait_for(PROMPT)
        terminal.type("refund order 12 at last\r")
        terminal.wait_for(question)
        terminal.type("later\r")
        terminal.wait_for("To decide later, use /approvals")
        terminal.wait_for(PROMPT)
        assert terminal.end("/exit\r") == 0
    assert it.refunds() == ["12"]
    with LedgerClient(it.root / "ledger.db") as ledger:
        found = [(one.state, one.decided_by) for one in ApprovalQueue(ledger).list()]
        (begun,) = ledger.read_by_event_type("SESSION_START")
    assert found == [("pending", ""), ("denied", "ann"), ("granted", "ann")]
    # The next one asks before anything else.
    with Terminal(it.command("talk", begun.submission_id), it.environment()) as terminal:
        terminal.wait_for(question)
        terminal.type("yes\r")
        terminal.wait_for("Order 12 is paid back.")
        terminal.wait_for(PROMPT)
        assert terminal.end("\x04") == 0
    assert it.refunds() == ["12", "12"]


def test_ctrl_c_cancels_the_turn_and_stays(clerk: Callable[..., Clerk]) -> None:
    asked: list[int] = []

    def slow(body: dict[str, Any]) -> Any:
        asked.append(1)
        if len(asked) == 1:
            time.sleep(5)
        return anthropic_answer("Here I am.")(body)  # type: ignore[operator]

    it = clerk(slow)
    with Terminal(it.command("talk"), it.environment()) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("think\r")
        until(lambda: bool(asked))
        terminal.type("\x03")
        terminal.wait_for("[cancelled; calls already sent are recorded]")
        terminal.wait_for(PROMPT)
        terminal.type("still there?\r")
        terminal.wait_for("Here I am.")
        terminal.wait_for(PROMPT)
        assert terminal.end("/exit\r") == 0
    with LedgerClient(it.root / "ledger.db") as ledger:
        turns = [entry.metadata for entry in ledger.read_by_event_type("TURN_RECORDED")]
    assert [turn.get("outcome") for turn in turns] == ["cancelled", None]
    assert turns[1]["response"] == "Here I am."
