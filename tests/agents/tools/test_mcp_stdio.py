"""MCP servers over stdio: two from the registry, and one by hand that does everything wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from remit.agents.tools import (
    Context,
    McpServer,
    ToolDispatcher,
    ToolError,
    ToolResult,
    mcp_tool_id,
)
from remit.kernel.loops import run_blocking
from remit.kernel.settings import McpServerSettings, default_settings

SCRIPT = str(Path(__file__).parent / "stdio_server.py")
BOUNDS = default_settings().tools.model_copy(update={"timeout_s": 20.0})
CALL = Context("x", "key-1", "WO-1", "SES-1")


def _settings(mode: str = "", **more: Any) -> McpServerSettings:
    values = {"command": sys.executable, "args": [SCRIPT, mode], "stop_timeout_s": 0.5, **more}
    return McpServerSettings(**values)


def _use(server: McpServer, name: str, **arguments: Any) -> ToolResult:
    return ToolDispatcher(server.tools(), BOUNDS).execute(
        mcp_tool_id(server.name, name), arguments, call=CALL
    )


def _alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    try:  # what has ended and was not waited for is still listed
        state = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def _gone(process_id: int) -> bool:
    end = time.monotonic() + 20
    while _alive(process_id):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    """One for all: whoever ends it, the next call starts it again."""
    with McpServer("by hand", _settings()) as server:
        yield server


# -- real servers --------------------------------------------------------------------------


def test_a_server_from_the_registry() -> None:
    program = str(Path(sys.executable).parent / "mcp-server-time")
    with McpServer("time", McpServerSettings(command=program)) as server:
        tools = {tool.tool_id: tool for tool in server.tools()}
        assert set(tools) == {"time__get_current_time", "time__convert_time"}
        assert tools["time__convert_time"].input_schema["required"]
        arguments = {
            "source_timezone": "Europe/Berlin",
            "time": "12:00",
            "target_timezone": "Asia/Tokyo",
        }
        result = _use(server, "convert_time", **arguments)
        assert result.status == "ok"
        assert result.output["source"]["timezone"] == "Europe/Berlin"
        assert result.output["time_difference"] in ("+7.0h", "+8.0h")
        result = _use(server, "convert_time", **{**arguments, "source_timezone": "Moon/Base"})
        assert result.status == "error"
        assert "Moon/Base" in result.error


def test_all_pages_are_read_and_bad_schemas_left_out(
    server: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "remit.tools"):
        tools = {tool.tool_id: tool for tool in server.tools()}
    assert {"by_hand__echo", "by_hand__delete_file", "by_hand__grow"} <= set(tools)
    assert "by_hand__bad_schema" not in tools
    assert "bad schema" in caplog.text
    # The server says of each that it may be repeated; that is not its to say.
    assert {tool.on_unknown for tool in tools.values()} == {"ask"}


# -- what it offers, and what it answers ---------------------------------------------------


def test_answers(server: McpServer) -> None:
    assert _use(server, "echo", value=[1, {"a": None}]).output == {"value": [1, {"a": None}]}
    assert _use(server, "media").output.splitlines() == [
        "a picture:",
        "[image, image/png, 3 bytes, not shown]",
        "[resource file:///a]",
        "[resource, binary, 2 bytes, not shown]",
        "[resource file:///b]",
        "inside",
        "[resource c: file:///c]",
    ]
    failed = _use(server, "fails")
    assert (failed.status, failed.output) == ("error", None)
    assert failed.error.startswith("it failed")
    assert "no such thing" in _use(server, "protocol_error").error
    grown = _use(server, "grow")  # The tool ran, so its result is shown, and what is wrong with it.
    assert grown.status == "ok"
    assert grown.output["structuredContent"] == {"size": "large"}
    assert "'large' is not of type 'integer'" in grown.output["text"]


@pytest.mark.parametrize("code", [404, -32000, -32001, -32099, -32603])
def test_a_servers_error_is_an_answer_and_leaves_the_server_running(
    server: McpServer, code: int
) -> None:
    process_id = _use(server, "pid").output
    failed = _use(server, "protocol_error", code=code)
    assert failed.status == "error"  # Not unknown: the server answered.
    assert "no such thing" in failed.error
    assert _use(server, "pid").output == process_id


def test_the_idempotency_key_goes_along(server: McpServer) -> None:
    assert json.loads(_use(server, "meta").output)["remit/idempotency_key"] == "key-1"
    result = ToolDispatcher(server.tools(), BOUNDS).execute("by_hand__meta", {})
    assert "remit/idempotency_key" not in json.loads(result.output)


def test_ids() -> None:
    assert mcp_tool_id("a b", "ü.x") == "a_b____x"
    long = mcp_tool_id("server", "x" * 200)
    assert len(long) == 64
    assert long != mcp_tool_id("server", "x" * 201)


def test_only_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ours")
    monkeypatch.setenv("FOR_IT", "a value of ours")
    settings = _settings(env={"TOKEN": SecretStr("<${FOR_IT}>")})
    with McpServer("s", settings) as server:
        seen = json.loads(_use(server, "environment").output)
    assert seen["TOKEN"] == "<a value of ours>"
    assert not {"ANTHROPIC_API_KEY", "FOR_IT"} & set(seen)
    monkeypatch.delenv("FOR_IT")
    with McpServer("s", settings) as server, pytest.raises(ToolError, match="FOR_IT"):
        server.tools()


def test_a_server_that_dies_at_its_start_is_quoted_without_secrets() -> None:
    settings = _settings("dies", env={"TOKEN": SecretStr("tok-123456")})
    with McpServer("s", settings) as server, pytest.raises(ToolError) as caught:
        server.tools()
    assert "no licence for [secret]" in str(caught.value)
    assert "tok-123456" not in f"{caught.value!r} {server!r} {settings!r}"


# -- servers that fail ---------------------------------------------------------------------


def test_calls_that_run_when_it_dies_end_at_once_and_the_next_starts_it(server: McpServer) -> None:
    dispatcher = ToolDispatcher(server.tools(), BOUNDS)
    first = dispatcher.execute("by_hand__pid", {}).output

    async def both() -> list[ToolResult]:
        hanging = [asyncio.ensure_future(dispatcher.aexecute("by_hand__hang", {})) for _ in "123"]
        await asyncio.sleep(0.1)
        return [await dispatcher.aexecute("by_hand__die", {}), *await asyncio.gather(*hanging)]

    began = time.monotonic()
    died = run_blocking(both())
    assert [one.status for one in died] == ["unknown"] * 4
    assert all("may have taken effect" in one.error for one in died)
    assert time.monotonic() - began < 60
    again = dispatcher.execute("by_hand__pid", {})
    assert (again.status, again.output == first) == ("ok", False)


def test_a_call_that_hangs_ends_and_the_server_goes_on() -> None:
    with McpServer("s", _settings(timeout_s=0.4)) as server:
        dispatcher = ToolDispatcher(server.tools(), BOUNDS)
        process_id = dispatcher.execute("s__pid", {}).output
        result = dispatcher.execute("s__hang", {})
        assert result.status == "timeout"
        assert "may still take effect" in result.error
        assert dispatcher.execute("s__pid", {}).output == process_id


def test_a_message_that_is_too_long() -> None:
    with McpServer("s", _settings(max_message_bytes=1_000_000)) as server:
        began = time.monotonic()
        result = _use(server, "huge")
        assert time.monotonic() - began < 60
        assert result.status == "unknown"
        assert "more than 1,000,000 bytes" in result.error
        assert _use(server, "pid").status == "ok"


def test_nothing_it_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "remit"), McpServer("s", _settings()) as server:
        assert _use(server, "fails").status == "error"
    assert "no JSON" not in caplog.text
    assert "chatter" not in caplog.text


# -- loops, cancellation, the end ----------------------------------------------------------


def test_close_ends_the_server_and_its_children() -> None:
    server = McpServer("s", _settings("stubborn"))
    own, child = int(_use(server, "pid").output), int(_use(server, "child").output)
    assert _alive(own)
    assert _alive(child)
    dispatcher = ToolDispatcher(server.tools(), BOUNDS)
    server.close()
    assert _gone(own)
    assert _gone(child)
    assert "is closed" in dispatcher.execute("s__pid", {}).error
    server.close()


PROGRAM = """
import os, sys
from remit.kernel.settings import McpServerSettings
from remit.agents.tools.mcp import McpServer
server = McpServer("s", McpServerSettings(command=sys.executable, args=sys.argv[1:]))
server.tools()
print(server._process.child.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children of the killed")
def test_the_server_ends_with_the_process_that_started_it(how: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, SCRIPT, "stubborn"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        own = int(program.stdout.readline())
        assert _alive(own)
        if how is None:
            program.stdin.close()
        else:
            program.send_signal(how)
        assert program.wait(30) == (-how if how else 0)
        assert _gone(own)


def test_the_sdk_is_imported_only_when_it_is_used_and_its_absence_is_told() -> None:
    code = (
        "import sys, remit.agents.tools, remit.kernel.settings; assert 'mcp' not in sys.modules\n"
        "sys.modules['mcp'] = None; import remit.agents.tools.mcp"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'remit[mcp]'" in done.stderr


def test_a_server_that_never_stops_talking_is_ended_without_others(server: McpServer) -> None:
    with McpServer("other", _settings()) as other:
        pid = _use(other, "pid").output
        flooded = _use(server, "flood")
        assert flooded.status == "unknown"
        assert "messages without an answer" in flooded.error
        assert _use(other, "pid").output == pid  # the same process, never disturbed
    assert _use(server, "echo", value=1).output == {"value": 1}  # started again


def test_more_tools_than_anybody_needs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.agents.tools.mcp.server._MAX_TOOLS", 5)
    with (
        McpServer("many", _settings()) as many,
        pytest.raises(ToolError, match="more than 5 tools"),
    ):
        many.tools()
