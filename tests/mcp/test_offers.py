"""What is offered, and the parts that need no server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.types import TextContent

from remit.auth import Identity
from remit.ledger import LedgerClient
from remit.mcp.caller import Caller, NotAllowedError, current_caller
from remit.mcp.offer import Offer
from remit.mcp.owners import TaskOwners
from remit.mcp.server import Offers, all_offers
from remit.mcp.stdio import _Lines
from remit.runtime import Runtime
from remit.schemas import first_problem, schema_problem
from remit.trail import create_thought_record
from tests.mcp.running import TOOLS, new_root, variables

WRITING = ("thought_record", "router_route")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime.open(new_root(tmp_path_factory.mktemp("offers") / "root")) as opened:
        yield opened


@pytest.fixture(scope="module")
def offers(runtime: Runtime) -> dict[str, Offer]:
    return {one.tool.tool_id: one for one in all_offers(runtime)}


def test_every_tool_is_there(offers: dict[str, Offer]) -> None:
    assert list(offers) == TOOLS


@pytest.mark.parametrize("name", TOOLS)
def test_a_model_can_use_it(offers: dict[str, Offer], name: str) -> None:
    offer = offers[name]
    told = offer.definition().model_dump(by_alias=True, exclude_none=True)
    assert len(told["description"]) > 100
    assert told["title"]
    assert told["annotations"] == {
        "title": told["title"],
        "readOnlyHint": name not in WRITING,
        "destructiveHint": False,
        "idempotentHint": name not in WRITING,
        "openWorldHint": name == "router_route",
    }
    for schema in (told["inputSchema"], told["outputSchema"]):
        assert schema["type"] == "object"
        assert schema_problem(schema) == ""
    assert told["inputSchema"]["additionalProperties"] is False
    for key, value in told["inputSchema"]["properties"].items():
        assert value["type"] in ("string", "integer"), key
        assert value["description"], key
        assert value["examples"], key
        for example in value["examples"]:
            assert first_problem(value, example) == "", (key, example)
        if value["type"] == "string":
            assert {"maxLength", "pattern", "enum"} & value.keys(), key
        else:
            assert "minimum" in value, key
        if "default" in value:
            assert first_problem(value, value["default"]) == ""


def test_no_tool_speaks_of_one_that_is_not_offered(offers: dict[str, Offer]) -> None:
    for offer in offers.values():
        text = str(offer.definition())
        for name in (
            "query_ledger_full",
            "session_overview",
            "reconstruct_session",
            "this session when",
        ):
            assert name not in text


def test_roles(offers: dict[str, Offer]) -> None:
    def allowed(role: str) -> list[str]:
        caller = Caller(Identity("x", role))
        return [name for name, offer in offers.items() if offer.allows(caller)]

    assert allowed("operator") == allowed("admin") == TOOLS
    assert allowed("auditor") == [name for name in TOOLS if name not in WRITING]
    assert allowed("agent") == [*TOOLS[:5]]
    assert allowed("nobody") == []


def test_nobody_is_ever_assumed() -> None:
    with pytest.raises(LookupError):
        current_caller()


def test_whose_a_task_is(runtime: Runtime) -> None:
    owners = TaskOwners(runtime.ledger)
    ann = Caller(Identity("ann-1", "agent", key_id="KEY-1", user_id="ann"))
    anns_other = Caller(Identity("ann-2", "agent", key_id="KEY-2", user_id="ann"))
    bob = Caller(Identity("bob", "agent", key_id="KEY-3"))
    operator = Caller(Identity("op", "operator", key_id="KEY-4"))

    def claim(caller: Caller, task: str, session: str = "") -> bool:
        try:
            asyncio.run(owners.claim(caller, task, session))
        except NotAllowedError:
            return False
        return True

    def reads(caller: Caller, task: str) -> bool:
        try:
            owners.require(caller, task)
        except NotAllowedError:
            return False
        return True

    assert not reads(ann, "task-1")
    assert claim(ann, "task-1")
    assert claim(ann, "task-1")
    assert claim(anns_other, "task-1")
    assert not claim(bob, "task-1")
    assert [reads(one, "task-1") for one in (ann, anns_other, bob, operator)] == [
        True, True, False, True,
    ]  # fmt: skip
    assert claim(operator, "task-1")
    thought = {"type": "plan", "task_id": "task-2", "agent_id": "op", "content": "x"}
    create_thought_record(runtime.ledger, thought)
    assert not claim(bob, "task-2")
    assert not reads(bob, "task-2")
    for reserved in ("SES-1", "WO-1", "DEC-1", "LED-1"):
        assert not claim(bob, reserved)
    # A session and a task of one name are one place of the record.
    assert claim(bob, "task-3", session="any-name")
    assert not claim(ann, "any-name")


def test_two_keys_at_once_for_one_task(ledger: LedgerClient) -> None:
    owners = TaskOwners(ledger)
    callers = [Caller(Identity(f"k{n}", "agent", key_id=f"KEY-R{n}")) for n in range(8)]

    async def all_at_once() -> int:
        claims = (owners.claim(one, "contested", "") for one in callers)
        return sum(
            result is None for result in await asyncio.gather(*claims, return_exceptions=True)
        )

    assert asyncio.run(all_at_once()) == 1
    assert sum(_reads(owners, one) for one in callers) == 1


def _reads(owners: TaskOwners, caller: Caller) -> bool:
    try:
        owners.require(caller, "contested")
    except NotAllowedError:
        return False
    return True


@given(st.lists(st.binary(max_size=300).map(lambda data: data.replace(b"\n", b"")), max_size=20))
def test_lines_come_as_they_were_sent(sent: list[bytes]) -> None:
    limit = 200
    reading, writing = os.pipe()
    whole = b"".join(line + b"\n" for line in sent) + b"the rest"
    writer = threading.Thread(target=_write, args=(writing, whole))
    writer.start()
    try:
        lines = _Lines(reading, limit)
        for line in sent:
            assert lines.next() == (None if len(line) > limit else line + b"\n")
        assert lines.next() == b""
    finally:
        writer.join()
        os.close(reading)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_NAMES = st.sampled_from([
    "type", "task_id", "content", "agent_id", "session_id", "limit", "offset", "prompt", "task",
    "decision", "event_type", "max_entries", "work_order_id", "entry_id", "turn", "max_sessions",
])  # fmt: skip
_LIKELY = st.sampled_from([
    "plan", "t", "SES-1", "WO-1", "LED-00000000", "LED-ffffffffffffffffff", "EXCHANGE", "auto",
    "a\x00b", "\ud800", 1, 1.0, 10**30, -1, 1e300,
])  # fmt: skip


@given(
    name=st.sampled_from([name for name in TOOLS if name != "router_route"]),
    arguments=st.dictionaries(_NAMES, _JSON | _LIKELY, max_size=5),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_arguments_break_a_tool(
    runtime: Runtime, offers: dict[str, Offer], name: str, arguments: dict[str, Any]
) -> None:
    tools = Offers(offers.values(), runtime.loaded.settings)
    caller = Caller(Identity("op", "operator", key_id="KEY-F"))
    (content,) = asyncio.run(tools.call(caller, name, arguments)).content
    assert isinstance(content, TextContent)
    assert "Remit itself failed" not in content.text
    assert "raised" not in content.text


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        pipe.write(data)


def test_without_the_extra(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "from remit.cli import main\n"
        f"main(['mcp', '--root', {str(root)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables(), input="", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "needs the extra 'mcp'" in done.stderr
    assert "pip install 'remit[mcp]'" in done.stderr


def test_the_help_loads_nothing_of_it() -> None:
    code = (
        "import sys\n"
        "from remit.cli import main\n"
        "try:\n    main(['mcp', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'mcp', 'remit.mcp', 'uvicorn', 'remit.runtime'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=variables(), check=True, capture_output=True, timeout=60
    )
