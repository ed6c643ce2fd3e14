"""kill -9 between the last failure and the signal that sets its tool aside."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.runtime import Runtime
from tests.agents import killed_set_aside
from tests.support.processes import run_forked
from tests.support.roots import new_root
from tests.support.wire import message, serve, tool_use


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
        done = run_forked(killed_set_aside.main, str(root), environment=dict(os.environ))
        assert done.returncode == -signal.SIGKILL
        session_id = done.stdout.split()[0]
        with Runtime.open(root) as runtime:
            which = {"session_id": session_id, "event_type": "SIGNAL_OBSERVED"}
            assert list(runtime.ledger.query(**which)) == []
            session = killed_set_aside.agent_of(runtime).session(session_id)
            go_on(session)
            (aside,) = runtime.ledger.query(**which)
            assert len(aside.metadata["evidence"]) == 3
            session.turn("And now?")
            assert [tool["name"] for tool in upstream.calls[-2].body["tools"]] == ["list"]
            assert len(list(runtime.ledger.query(**which))) == 1
            assert runtime.ledger.verify().verified
