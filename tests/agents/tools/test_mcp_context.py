"""What MCP servers have beside tools: resources, prompts, progress, and questions to a person."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents.tools import McpServer, ToolDispatcher, ToolResult
from remit.agents.workorders import ToolProgress
from remit.kernel.settings import McpServerSettings, default_settings
from tests.support.agents import Scripted
from tests.support.wire import message, tool_use

SCRIPT = str(Path(__file__).parent / "context_server.py")
SETTINGS = McpServerSettings(command=sys.executable, args=[SCRIPT])
BOUNDS = default_settings().tools.model_copy(update={"timeout_s": 60.0})


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with McpServer("c", SETTINGS) as server:
        yield server


def _use(server: McpServer, tool: str, /, **given: Any) -> ToolResult:
    return ToolDispatcher(server.tools(), BOUNDS).execute(f"c__{tool}", given)


def test_resources_are_listed_and_read(server: McpServer) -> None:
    listed = _use(server, "list_resources").output
    assert [found["uri"] for found in listed["resources"]] == ["notes://today"]
    assert [found["uriTemplate"] for found in listed["templates"]] == ["notes://{day}/all"]
    assert _use(server, "read_resource", uri="notes://today").output == "Buy tea."
    assert _use(server, "read_resource", uri="notes://monday/all").output == "Nothing on monday."
    missing = _use(server, "read_resource", uri="notes://none")
    assert missing.status == "error"
    assert _use(server, "read_resource", uri="notes://today").output == "Buy tea."  # it lives on


def test_prompts_are_listed_and_filled_in(server: McpServer) -> None:
    (found,) = _use(server, "list_prompts").output["prompts"]
    assert (found["name"], found["arguments"][0]["name"]) == ("summary", "topic")
    filled = _use(server, "get_prompt", name="summary", arguments={"topic": "tea"})
    assert filled.output == "user: Sum up tea in one line."
    assert _use(server, "get_prompt", name="nothing").status == "error"


def test_the_allow_list_holds_for_them(server: McpServer) -> None:
    some = SETTINGS.model_copy(update={"tools": ["count", "read_resource"]})
    with McpServer("c", some) as narrow:
        ids = [tool.tool_id for tool in narrow.tools()]
    assert ids == ["c__count", "c__read_resource"]


def test_a_question_to_the_person_is_declined_and_the_model_hears_of_it(server: McpServer) -> None:
    painted = _use(server, "paint")
    assert painted.status == "ok"
    assert "decline" in str(painted.output)
    assert "Which colour?" in str(painted.output)
    insisted = _use(server, "insist")
    assert insisted.status == "error"
    assert "Which colour?" in insisted.error
    assert "Which colour?" not in str(_use(server, "count").output)


def test_progress_is_in_the_stream_of_a_turn(scripted: Scripted) -> None:
    flags = {
        "supervisor.classify": False,
        "mcp.c.command": sys.executable,
        "mcp.c.args": [SCRIPT],
    }
    script = (message("I will.", tool_use("c__count", {"steps": 2}, "t1")), message("Done."))
    heard: list[Any] = []
    with scripted(*script, flags=flags) as (runtime, _):
        agent = runtime.agent("counter", instructions="Count.", mcp=["c"])
        with agent.session() as session:
            result = session.turn("count", on_event=heard.append)
    assert result.response == "Done."
    steps = [event for event in heard if isinstance(event, ToolProgress)]
    assert steps  # a fast server's later ones may be left out
    assert (steps[0].tool_id, steps[0].done, steps[0].total) == ("c__count", 1.0, 2.0)
    assert steps[0].text == "step 1"
