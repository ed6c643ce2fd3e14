"""The operational loop: a tool that keeps failing is not offered until its session ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.agents.supervisor import Plan, PlanStep
from remit.agents.tools import Tool, ToolDispatcher, ToolError, ToolUnavailableError
from remit.agents.workorders import WorkOrderType
from remit.kernel.root import Root
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerEntry, open_root_ledger
from remit.packages import IncomingArchive, pack, update_hashes
from remit.runtime import Runtime, package_manager
from remit.runtime.state_tables import check_state
from tests.agents import killed
from tests.packages.shipped import SHIPPED
from tests.support.agents import Scripted
from tests.support.processes import run_forked
from tests.support.roots import new_root
from tests.support.wire import message, serve, tool_use

FLAGS = {"supervisor.max_retries": 0}
ANY = {"type": "object"}


class _Shop:
    """Tools that fail as they are told, and a model that calls the one it is told, once."""

    def __init__(self) -> None:
        self.error: Exception | None = RuntimeError("out of order")
        self.calls = "stock"
        self.ran: list[str] = []
        self.offered: list[list[str]] = []
        self.results: list[str] = []

    def tools(self) -> list[Tool]:
        return [
            Tool("stock", "What there is.", ANY, self._stock),
            Tool("list", "What there was yesterday.", ANY, self._list),
        ]

    def _stock(self, **_: Any) -> str:
        self.ran.append("stock")
        if self.error is not None:
            raise self.error
        return "oolong"

    def _list(self, **_: Any) -> str:
        self.ran.append("list")
        return "sencha"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        last = body["messages"][-1]["content"]
        if isinstance(last, list) and last[-1].get("type") == "tool_result":
            self.results.append(str(last[-1]["content"]))
            return message("The tool failed, or did not.")
        self.offered.append([tool["name"] for tool in body.get("tools", ())])
        return message("", tool_use(self.calls, {})) if self.calls else message("No tool.")


def _signals(runtime: Runtime, session_id: str) -> list[LedgerEntry]:
    return list(runtime.ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED"))


def _with_policy(root: Path, scratch: Path, change: Callable[[str], str]) -> None:
    """A root whose learning policy is another version of its package."""
    new_root(root)
    folder = scratch / "PKG-LEARNING-001"
    shutil.copytree(SHIPPED / "PKG-LEARNING-001", folder)
    for name, edit in (
        ("HOT/documents/signals.json", change),
        (
            "manifest.json",
            lambda text: re.sub(r'"version": "1[.0-9]+"', '"version": "1.9.0"', text, count=1),
        ),
    ):
        (folder / name).write_text(edit((folder / name).read_text()))
    update_hashes(folder)
    place = Root(root)
    loaded = load_settings(place.config)
    with open_root_ledger(place, loaded.settings.ledger, checks=(check_state,)) as ledger:
        manager = package_manager(place, ledger, loaded, by="test")
        manager.install([IncomingArchive(pack(folder))], dev=True, approve=True)


def test_a_failing_tool_is_not_offered_in_its_session(scripted: Scripted, tmp_path: Path) -> None:
    root, shop = tmp_path / "root", _Shop()
    _with_policy(
        root, tmp_path,
        lambda text: text.replace('_fallbacks": {}', '_fallbacks": {"stock": ["no", "list"]}'),
    )  # fmt: skip
    with scripted(shop.answer, flags=FLAGS) as (runtime, _):
        agent = runtime.agent("seller", tools=shop.tools())
        with agent.session() as session:
            for _turn in range(3):
                session.turn("Is there any oolong?")
            (signal,) = _signals(runtime, session.session_id)
            data = signal.metadata
            assert (data["dimension"], data["name"], data["instead"]) == ("tool", "stock", "list")
            failed = [runtime.ledger.read(one) for one in data["evidence"]]
            assert [one.metadata["fault"] for one in failed] == [True] * 3
            assert shop.offered == [["stock", "list"]] * 3
            session.turn("And now?")
            assert shop.offered[3:] == [["list"]]
            assert shop.results[-1].startswith("refused: tool_set_aside: stock kept failing")
            assert "may use list." in shop.results[-1]
            assert len(shop.ran) == 3
            refused = list(runtime.ledger.query(event_type="TOOL_CALL"))[-1]
            assert refused.metadata["status"] == "refused"
            agent.session(session.session_id).turn("Another process has only the record.")
            assert shop.offered[4:] == [["list"]]
            with agent.session() as other:
                other.turn("Another session is not affected.")
            assert shop.offered[5:] == [["stock", "list"]]
        agent.session(session.session_id).turn("It had ended.")
        assert shop.offered[6:] == [["stock", "list"]]
        assert len(_signals(runtime, session.session_id)) == 1


def test_one_message_however_bad_does_not_set_a_tool_aside(scripted: Scripted) -> None:
    shop, asked = _Shop(), 0

    def insist(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return message("", tool_use("stock", {})) if asked < 10 else message("The tool failed.")

    with (
        scripted(insist, flags=FLAGS) as (runtime, _),
        runtime.agent("seller", tools=shop.tools()).session() as session,
    ):
        session.turn("Ask it ten times.")
        assert len(shop.ran) == 9
        assert _signals(runtime, session.session_id) == []


def test_nothing_but_what_is_permitted_stands_in_and_a_plan_gets_what_it_names(
    scripted: Scripted, tmp_path: Path
) -> None:
    root, shop = tmp_path / "root", _Shop()
    _with_policy(
        root, tmp_path,
        lambda text: text.replace('_fallbacks": {}', '_fallbacks": {"stock": ["list"]}'),
    )  # fmt: skip
    only = shop.tools()[:1]
    with scripted(shop.answer, flags=FLAGS) as (runtime, _):
        with runtime.agent("seller", tools=only).session() as session:
            for _turn in range(4):
                session.turn("Is there any oolong?")
            (signal,) = _signals(runtime, session.session_id)
            assert signal.metadata["instead"] == ""
            assert shop.offered == [["stock"]] * 3 + [[]]
            assert "may use no other tool" in shop.results[-1]
            assert shop.ran == ["stock"] * 3
        kind, given = WorkOrderType.TOOL_CALL, {"tool_id": "stock", "arguments": {}}
        look = PlanStep("look", wo_type=kind, input=given, tools=("stock",))
        say = PlanStep.task("say", "Say it.", after=("look",))
        planned = runtime.agent("planner", tools=only, planner=lambda _: Plan((look, say)))
        shop.calls = ""
        with planned.session() as session:
            for _turn in range(4):
                session.turn("Is there any oolong?")
            assert len(_signals(runtime, session.session_id)) == 1
            assert shop.ran == ["stock"] * 7


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ToolUnavailableError("The shop is closed."), True),
        (ToolError("There is no such tea."), False),
        (ValueError("no number"), False),
        (ConnectionError("refused"), True),
        (TimeoutError(), True),
        (AttributeError("a mistake in its code"), True),
    ],
)
def test_which_failures_are_a_tools_own(error: Exception, fault: bool) -> None:
    def fail() -> None:
        raise error

    def never(**_: Any) -> None:
        raise AssertionError

    tools = [
        Tool("fails", "", ANY, fail),
        Tool("strict", "", {"type": "object", "required": ["tea"]}, never),
    ]
    dispatcher = ToolDispatcher(tools, default_settings().tools)
    assert dispatcher.execute("fails", {}).fault is fault
    assert dispatcher.execute("strict", {}).fault is False


# -- kill -9 between the last failure and the signal that sets its tool aside --------------------


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]["content"]
    if isinstance(last, list) and last[-1].get("type") == "tool_result":
        return message("The tool failed.")
    return message("", tool_use("stock", {}))


def _resumed(session: Any) -> None:
    assert session.resume() is not None


def _asked_again(session: Any) -> None:
    session.turn("And now?")


@pytest.mark.parametrize("go_on", [_resumed, _asked_again])
def test_who_goes_on_sets_aside_what_the_killed_process_should_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go_on: Callable[[Any], None]
) -> None:
    root = tmp_path / "root"
    new_root(root)
    with serve(_answer) as upstream:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", upstream.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        done = run_forked(killed.fail_often, str(root), environment=dict(os.environ))
        assert done.returncode == -signal.SIGKILL
        session_id = done.stdout.split()[0]
        with Runtime.open(root) as runtime:
            which = {"session_id": session_id, "event_type": "SIGNAL_OBSERVED"}
            assert list(runtime.ledger.query(**which)) == []
            session = killed.seller_of(runtime).session(session_id)
            go_on(session)
            (aside,) = runtime.ledger.query(**which)
            assert len(aside.metadata["evidence"]) == 3
            session.turn("And now?")
            assert [tool["name"] for tool in upstream.calls[-2].body["tools"]] == ["list"]
            assert len(list(runtime.ledger.query(**which))) == 1
            assert runtime.ledger.verify().verified
