"""Checking a value costs as much as the value is long, in every place that validates one.

The measure is CPU time of this process, the least of five: twice the length may cost two and a
half times as much. A place that bounds its values is measured up to that bound, many times over.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from remit.agents import OutputType, tool
from remit.agents.supervisor.quality_gate import QualityGate
from remit.agents.workorders import WorkOrder, WorkOrderConstraints, WorkOrderState, WorkOrderType
from remit.contracts import ContractError, PromptContract
from remit.kernel.errors import RemitError
from remit.kernel.schemas import first_problem
from remit.kernel.settings import McpServerSettings, default_settings
from remit.packages import Manifest, PackageError
from remit.runtime import Runtime
from remit.server.app import App
from remit.server.authentication import open_keys
from remit.server.mcp.callers import LOCAL, Caller
from remit.server.mcp.gateway.rules import Rules
from remit.server.mcp.server import ToolRunner, all_tools
from tests.server.asgi import AsgiRequest
from tests.support.roots import new_root
from tests.support.soak import sample

_MEASURED_S = 0.02
_MOST_RATIO = 2.5
_LONGEST = 256_000
"""Characters of the longest value."""


class _Add(BaseModel):
    model_config = ConfigDict(extra="forbid")
    op: Literal["add"]
    n: int


class _Drop(BaseModel):
    model_config = ConfigDict(extra="forbid")
    op: Literal["drop"]
    n: int


class _Tree(BaseModel):
    op: str = ""
    left: _Tree | _Add | None = None


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")
    items: list[_Add | _Drop] = []
    named: dict[str, int | str] = {}
    text: Annotated[str, Field(pattern="^(a+)+$")] = ""
    words: list[Annotated[str, Field(pattern="^[a-z]*[0-9]?$")]] = []
    tree: _Tree | None = None
    kinds: set[str] = set()


_SCHEMA = _Given.model_json_schema()
_STRICT = {**_SCHEMA, "patternProperties": {"^x-(a|aa)+$": {"type": "integer"}}}

_SHAPES: dict[str, Callable[[int], Any]] = {
    "long list": lambda n: {"items": [{"op": "drop", "n": k} for k in range(n // 20)]},
    "long list, last wrong": lambda n: {
        "items": [*({"op": "drop", "n": k} for k in range(n // 20)), {"op": "none"}]
    },
    "all wrong": lambda n: {"items": [{"op": "none", "n": str(k)} for k in range(n // 20)]},
    "wide object": lambda n: {"named": {f"k{k}": k for k in range(n // 10)}},
    "wide object, last wrong": lambda n: {
        "named": {**{f"k{k}": k for k in range(n // 10)}, "last": []}
    },
    "unknown keys": lambda n: {f"k{k}": k for k in range(n // 10)},
    "patterned keys": lambda n: {f"x-{'a' * (k % 50)}{k}": k for k in range(n // 40)},
    "long text": lambda n: {"text": "a" * n},
    "long text, last wrong": lambda n: {"text": "a" * n + "!"},
    "many texts": lambda n: {"words": ["abcd9"] * (n // 10)},
    "many texts, all wrong": lambda n: {"words": ["abcd9!"] * (n // 10)},
    "deep": lambda n: {"tree": _nested(min(n // 1_000, 90))},
    "equal values": lambda n: {"kinds": ["a"] * (n // 10)},
    "other values": lambda n: {"kinds": [f"a{k}" for k in range(n // 10)]},
    "rows of other names": lambda n: {"items": [{f"k{k}": k} for k in range(n // 10)]},
    "blank lines": lambda n: {"text": "\n" * n},
    "ids": lambda n: {"text": " ".join(f"ORD-{k:06}" for k in range(n // 11))},
    "figures": lambda n: {"text": " ".join(f"is {k}.25" for k in range(n // 10))},
    "long number": lambda n: {"text": "1" * n},
    "commas": lambda n: {"text": "1,111," * (n // 6)},
    "addresses": lambda n: {"text": "a.b-" * (n // 4) + "@"},
    "fences": lambda n: {"text": "```a ` " * (n // 7)},
    "claims": lambda n: {"text": "I have just " * (n // 12)},
    "zero width": lambda n: {"text": "\u200b" * (n // 3)},
    "wide names": lambda n: {"n" * n: 1},
}


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"op": "add", "n": "x"}
    for _ in range(levels):
        value = {"op": "x", "left": value}
    return value


@tool
def keep(
    items: list[_Add | _Drop] | None = None,
    named: dict[str, int | str] | None = None,
    text: Annotated[str, Field(pattern="^(a+)+$")] = "",
    words: list[Annotated[str, Field(pattern="^[a-z]*[0-9]?$")]] | None = None,
    tree: _Tree | None = None,
    kinds: set[str] | None = None,
) -> str:
    """Keep what is given.

    Args:
        items: operations.
        named: values by name.
        text: a text.
        words: texts.
        tree: a tree.
        kinds: names of kinds.
    """
    return "kept"


def _tool(value: Any) -> None:
    with contextlib.suppress(RemitError):
        keep.prepared(value)
    keep.canonical(value)


_output = OutputType(_Given)
_gate = QualityGate(
    default_settings().supervisor.error_markers, default_settings().supervisor.claim_patterns
)
_allow = {"effect": "allow", "tools": ["t"], "arguments": _STRICT}
_rules = Rules("s", McpServerSettings.model_validate({"command": "x", "rules": [_allow]}))


def _acceptance(value: Any) -> None:
    """Hold an answer to a tool's result: the value is one, the other, and the typed output."""
    text = value.get("text", "") if isinstance(value.get("text"), str) else json.dumps(value)
    for gave in (value, {"rows": [value]}, "nothing"):
        for result in ({"text": text}, {"text": text, "output": value}):
            order = WorkOrder(
                "WO-1", "SES-1", WorkOrderType.EXECUTE, state=WorkOrderState.COMPLETED,
                constraints=WorkOrderConstraints(tools_allowed=("t",)),
                acceptance_criteria={
                    "output_schema": {"properties": {"output": _STRICT}}, "min_chars": 5,
                    "must_contain": ["total"], "must_not_contain": ["secret", "password"],
                },
                output_result={
                    **result,
                    "tool_results": [
                        {"tool_id": "t", "status": "ok", "output": gave, "arguments": {}},
                        {"tool_id": "u", "status": "error", "output": None, "arguments": {}},
                    ],
                },
            )  # fmt: skip
            _gate.reasons(order, lambda: text[::-1])


def _rule(value: Any) -> None:
    _rules.decide(LOCAL, "t", value)


def _contract(value: Any) -> None:
    body = {"contract_id": "PRC-A-001", "version": "1.0.0", "prompt_pack_id": "PRM-A-001",
            "boundary": {"max_tokens": 9, "temperature": 0}, "input_schema": value,
            "metadata": value}  # fmt: skip
    for text in (body, {**body, **value}):
        with contextlib.suppress(ContractError):
            PromptContract.parse(json.dumps(text).encode(), "a.json")


def _manifest(value: Any) -> None:
    for body in (value, {"assets": value.get("items", [value]), "depends_on": [value], **value}):
        with contextlib.suppress(PackageError):
            Manifest.parse(json.dumps(body).encode())


_PLACES: dict[str, Callable[[Any], object]] = {
    "schema": functools.partial(first_problem, _STRICT),
    "tool": _tool,
    "typed output": _output.problem,
    "acceptance": _acceptance,
    "rules of the MCP gateway": _rule,
    "contract": _contract,
    "manifest": _manifest,
}


def _cpu_time(check: Callable[[Any], object], value: Any, times: int = 1) -> float:
    gc.disable()  # a collection costs as much as everything else in the process is large
    try:
        started = time.process_time()
        for _ in range(times):
            check(value)
        return time.process_time() - started
    finally:
        gc.enable()


def _require_linear(
    check: Callable[[Any], object], shape: Callable[[int], Any], longest: int = _LONGEST
) -> None:
    """Assert that a value of twice the length takes at most 2.5 times the CPU time.

    The values are as long as needed for 20 ms, and at most ``longest``. Caches and the allocator
    can make one step: what grows faster than its value fails at two successive sizes.
    """
    size = min(8_000, longest // 4)
    check(shape(16))  # compiles the schema
    while (spent := _cpu_time(check, shape(size))) < _MEASURED_S and 8 * size <= longest:
        size *= 2
    times = max(1, math.ceil(_MEASURED_S / max(spent, 1e-5)))
    ratios = []
    for _ in range(2):
        ratios.append(_ratio(check, shape, size, times))
        if ratios[-1] <= _MOST_RATIO:
            return
        size *= 2
    raise AssertionError(f"Each doubling up to {size} characters took {ratios} times as long.")


def _ratio(
    check: Callable[[Any], object], shape: Callable[[int], Any], size: int, times: int
) -> float:
    values = {n: shape(n) for n in (size, 2 * size)}
    least = dict.fromkeys(values, math.inf)
    for number in range(15):  # five, and more while another process disturbs them
        for n, value in values.items():
            least[n] = min(least[n], _cpu_time(check, value, times))
        if number >= 4 and least[2 * size] <= _MOST_RATIO * least[size]:
            break
    return least[2 * size] / least[size]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("place", "shape"), sample([(place, shape) for place in _PLACES for shape in _SHAPES], 6)
)
def test_twice_the_length_costs_at_most_two_and_a_half_times_as_much(
    place: str, shape: str
) -> None:
    _require_linear(_PLACES[place], _SHAPES[shape])


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime.open(new_root(tmp_path_factory.mktemp("cost") / "root")) as opened:
        yield opened


_TEXTS: dict[str, Callable[[int], Any]] = {
    "text": lambda n: "a" * n,
    "blank": lambda n: " " * n,
    "line ends": lambda n: "\n" * n,
    "dashes": lambda n: "a-" * (n // 2),
    "digits": lambda n: "1" * n,
    "list": lambda n: ["a"] * (n // 4),
    "other items": lambda n: [f"a{k}" for k in range(n // 8)],
    "wrong items": lambda n: [{"k": k} for k in range(n // 10)],
    "object": lambda n: {f"k{k}": k for k in range(n // 10)},
    "deep": lambda n: json.loads("[" * (depth := 1 + min(n // 100, 400)) + "]" * depth),
    "number": lambda n: int("1" * min(n, 4_000)),
}


def _member(name: str, make: Callable[[int], Any], n: int) -> dict[str, Any]:
    """Return an object with one member of a length; without a name, with many unknown members."""
    value = make(n)
    if name:
        return {name: value}
    return value if type(value) is dict else {f"k{k}": 1 for k in range(n // 10)}


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_arguments_of_each_tool_of_the_mcp_server(runtime: Runtime) -> None:
    offered = all_tools(runtime)
    runner = ToolRunner(offered, runtime.loaded.settings, single_caller=True)
    caller = Caller(LOCAL)
    cases = [
        (one.tool.tool_id, name, text)
        for one in offered
        for name in [*one.tool.input_schema["properties"], ""]
        for text in _TEXTS
    ]
    with asyncio.Runner() as loop:
        for tool_id, name, text in sample(cases, 3):
            _require_linear(
                lambda value, tool_id=tool_id: loop.run(runner.call(caller, tool_id, value)),
                functools.partial(_member, name, _TEXTS[text]),
                128_000,
            )


_CALLS = {
    "/v1/chat/completions": ["model", "messages", "tools", "response_format", "stop", ""],
    "/v1/responses": ["model", "input", "tools", "text", "previous_response_id", "metadata", ""],
    "/v1/messages": ["model", "messages", "system", "tools", "stop_sequences", ""],
    "/v1/embeddings": ["input", ""],
    "/v1/conversations": ["items", "metadata", ""],
}


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_bodies_of_each_post_route(runtime: Runtime) -> None:
    with open_keys(runtime) as keys:
        key = keys.create("cost", role="admin").key
    app = App(runtime)
    document = json.loads(asyncio.run(_answered(app, key, "/api/openapi.json", None))[1])
    members = {
        path.replace("{", "").replace("}", ""): [*_properties(document, about["post"]), ""]
        for path, about in document["paths"].items()
        if "post" in about and path.startswith("/api")
    }
    assert len(members) > 10
    assert all(len(names) > 1 for path, names in members.items() if path in ("/api/orders",))
    cases = [
        (path, name, text)
        for path, names in {**members, **_CALLS}.items()
        for name in names
        for text in _TEXTS
    ]
    with asyncio.Runner() as loop:
        for path, name, text in sample(cases, 3):

            def check(value: Any, path: str = path) -> None:
                body = json.dumps({**_BASE.get(path, {}), **value}).encode()
                status, _ = loop.run(_answered(app, key, path, body))
                assert 200 <= status < 500 or status == 503, status

            _require_linear(check, functools.partial(_member, name, _TEXTS[text]), 60_000)


_BASE = {
    "/v1/chat/completions": {"model": "none", "messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"model": "none", "input": "a"},
    "/v1/messages": {
        "model": "none", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}],
    },
    "/v1/embeddings": {"model": "none", "input": "a"},
}  # fmt: skip


def _properties(document: Any, operation: Any) -> list[str]:
    """Return the members of an operation's body."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = media["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return list(schema.get("properties", ()))
    return []


async def _answered(app: App, key: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    """Return the status and the body that a request is answered with; GET without a body."""
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode()),
               (b"content-type", b"application/json")]  # fmt: skip
    method = "GET" if body is None else "POST"
    answer = await AsgiRequest([body or b""]).to(app, method, path, headers=headers)
    return answer.status, answer.body
