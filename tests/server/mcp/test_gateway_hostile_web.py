"""``remit mcp gateway`` in front of a server over HTTP that misbehaves, and for clients that do."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from mcp.types import ElicitResult

from remit.ledger import LedgerClient
from tests.server.mcp.raw import Raw, call, events, request
from tests.server.mcp.running import TOP, Served, serving
from tests.server.mcp.test_gateway import at, entries
from tests.support.processes import Program
from tests.support.roots import new_root
from tests.support.waiting import until

SECRET = "correct-horse-battery"
TOML = """
[mcp.web]
url = "{url}"
headers = {{ authorization = "Bearer {secret}" }}
timeout_s = 3.0
[mcp.old]
url = "{url}?version=2025-03-26"
[mcp.new]
url = "{url}?version=2025-11-25"
[mcp.changing]
command = "{python}"
args = ["{changing}", "{tools}"]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("hostile")
    tools = place / "tools.json"
    tools.write_text(json.dumps({"creep": "Creeps.", "plain": "As it was."}))
    changing = TOP / "tests/agents/tools/changing_server.py"
    line = ("-m", "tests.server.mcp.hostile_web")
    with Program(*line, environment=os.environ, cwd=TOP) as process:
        url = process.stdout.readline().strip()
        toml = TOML.format(
            url=url, secret=SECRET, python=sys.executable, changing=changing, tools=tools
        )
        yield new_root(place / "root", toml)
        process.kill()


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with serving(root, gateway=True) as running:
        yield running


def peak_kb(served: Served) -> int:
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.parametrize("way", ["error", "progress", "log", "question"])
async def test_a_server_that_shows_its_key(served: Served, way: str) -> None:
    told: list[Any] = []

    async def log(params: Any) -> None:
        told.append(params.data)

    async def progress(*about: Any) -> None:
        told.append(about)

    async def elicited(_: Any, params: Any) -> ElicitResult:
        told.append(params.message)
        return ElicitResult(action="decline")

    tool = "asks" if way == "question" else f"tells_{way}"
    async with at(served, "web", logging_callback=log, elicitation_callback=elicited) as client:
        try:
            told.append(str(await client.call_tool(tool, {}, progress_callback=progress)))
        except MCPError as error:
            told += [error.error.message, error.error.data]
    assert "[secret]" in str(told)
    assert SECRET not in str(told)
    recorded = json.dumps([entry.metadata for entry in served.ledger.query(after=0)], default=str)
    assert SECRET not in recorded
    assert SECRET not in served.errors.read_text()


async def test_numbers_that_no_record_holds_are_on_it_as_text(served: Served) -> None:
    async with at(served, "web") as client:
        result = await client.call_tool("numbers", {})
    assert result.structured_content["b"] == 123456789012345678901234567890
    last = entries(served.root, "TOOL_CALL")[0]
    assert last.id == result.meta["remit/receipt"]["call"]
    assert "123456789012345678901234567890" in last.metadata["result"]


@pytest.mark.parametrize(
    ("tool", "said"), [("huge_json", "longer than 8,388,608 bytes"), ("huge_event", "8388608 byte")]
)
async def test_an_answer_of_50_megabytes(served: Served, tool: str, said: str) -> None:
    before = peak_kb(served)
    async with at(served, "new") as client:
        with pytest.raises(MCPError, match=said):
            await client.call_tool(tool, {})
        assert not (await client.call_tool("echo", {})).is_error  # the session goes on
    last = entries(served.root, "TOOL_CALL")[1].metadata
    assert (last["tool_id"], last["status"]) == (f"new__{tool}", "error")
    assert peak_kb(served) - before < 40_000


async def test_a_silently_changed_tool_is_refused_at_its_next_call(served: Served) -> None:
    async with at(served, "changing") as client:
        assert not (await client.call_tool("plain", {})).is_error
        assert not (await client.call_tool("creep", {})).is_error
        refused = await client.call_tool("plain", {})
        assert refused.is_error
        assert "has changed since it was pinned" in refused.content[0].text


def echoed(client: Raw) -> str:
    """Return the hostile server's own counts of its calls, in its words."""
    (answer,) = events(client.post(call(3, "echo")))
    return str(answer["result"]["content"][0]["text"])


def test_a_gateway_that_is_killed_before_the_server_answers(root: Path) -> None:
    """Its record says that the call began; the client learns that nobody answered."""
    with serving(root, gateway=True) as running, ThreadPoolExecutor() as pool:
        raw, other = Raw(running, "new"), Raw(running, "new")
        raw.begin("2025-06-18")
        other.begin("2025-06-18")
        waiting = pool.submit(raw.post, call(1, "stalls"))
        until(lambda: "'stalls': 1" in echoed(other))  # The server has the call.
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        with pytest.raises(httpx2.HTTPError):
            waiting.result()
    intents = [entry.metadata for entry in entries(root, "TOOL_INTENT")]
    (intent,) = [stated for stated in intents if stated["tool_id"] == "new__stalls"]
    with serving(root, gateway=True) as running:
        assert Raw(running, "new").post(request(2, "ping")).status_code in (400, 404)
        raw = Raw(running, "new")
        raw.begin("2025-06-18")
        assert "'stalls': 1" in echoed(raw)  # It was not sent a second time.
    ended = [entry.metadata["idempotency_key"] for entry in entries(root, "TOOL_CALL")]
    assert intent["idempotency_key"] not in ended
    with LedgerClient(str(root / "ledger.db")) as ledger:
        assert ledger.verify_chain() == (True, [])
