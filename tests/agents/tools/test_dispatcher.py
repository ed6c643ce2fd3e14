"""The dispatcher: whatever a tool does, a result comes of it, soon, and the loop goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, strategies as st
from pydantic import BaseModel, model_serializer

from remit.agents.tools import (
    Context,
    Tool,
    ToolDispatcher,
    ToolResult,
    UnknownToolError,
    current_call,
)
from remit.kernel.canonical import exact_json
from remit.kernel.settings import default_settings

SETTINGS = default_settings().tools.model_copy(update={"timeout_s": 60, "max_output_bytes": 4096})
OPEN = {"type": "object"}


def _tool(function: Callable[..., Any], **more: Any) -> ToolDispatcher:
    return ToolDispatcher([Tool("t", "d", OPEN, function, **more)], SETTINGS)


def _run(function: Callable[..., Any], **arguments: Any) -> ToolResult:
    return _tool(function).execute("t", arguments)


def _limited(value: Any, limit: int) -> ToolResult:
    """Return the result of a tool that returns ``value``, of at most ``limit`` bytes."""
    settings = SETTINGS.model_copy(update={"max_output_bytes": limit})
    return ToolDispatcher([Tool("t", "d", OPEN, lambda: value)], settings).execute("t", {})


def _raise(error: BaseException) -> None:
    raise error


async def _raise_later(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def _later(value: Any = "later") -> Any:
    await asyncio.sleep(0)
    return value


def _recurse() -> None:
    _recurse()


def _cycle() -> list[Any]:
    value: list[Any] = []
    value += [value] * 50
    return value


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [{"a": value}]
    return value


class _UnsayableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class _Callable:
    async def __call__(self) -> str:
        return "called"


def test_what_a_tool_gives_back() -> None:
    assert _run(lambda: {"a": 1}).output == {"a": 1}
    assert _run(lambda: None).status == "ok"
    assert _run(_later).output == "later"
    assert _run(partial(_later, "part")).output == "part"
    assert _run(_Callable()).output == "called"
    assert _run(lambda: _deep(90)).status == "ok"


WRONG: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: _raise(ValueError("broken")), "error", "ValueError: broken"),
    (lambda: _raise(StopIteration()), "error", "StopIteration"),
    (lambda: _raise(StopAsyncIteration()), "error", "StopAsyncIteration"),
    (lambda: _raise(SystemExit(3)), "error", "SystemExit"),
    (lambda: _raise(KeyboardInterrupt()), "error", "KeyboardInterrupt"),
    (lambda: _raise(GeneratorExit()), "error", "GeneratorExit"),
    (lambda: _raise(asyncio.CancelledError()), "error", "CancelledError"),
    (lambda: _raise(TimeoutError("its own")), "error", "TimeoutError: its own"),
    (lambda: _raise(_UnsayableError()), "error", "_UnsayableError"),
    (lambda: _raise(ValueError("\ud800")), "error", "ValueError: ?"),
    (_recurse, "error", "RecursionError"),
    (partial(_raise_later, ValueError("broken")), "error", "ValueError: broken"),
    (partial(_raise_later, SystemExit(3)), "error", "SystemExit"),
    (partial(_raise_later, KeyboardInterrupt()), "error", "KeyboardInterrupt"),
    (partial(_raise_later, asyncio.CancelledError()), "error", "CancelledError"),
    (partial(_raise_later, TimeoutError("its own")), "error", "TimeoutError: its own"),
    (lambda: time.sleep(2), "timeout", "0.3 s. It may still take effect"),
    (partial(asyncio.sleep, 5), "timeout", "0.3 s. It may still take effect"),
]


@pytest.mark.parametrize(("function", "status", "word"), WRONG)
def test_what_goes_wrong_is_a_result_never_a_crash(
    function: Callable[[], Any], status: str, word: str
) -> None:
    # Little time only where it shall run out: a busy machine is no slow tool.
    timeout_s = 0.3 if status == "timeout" else None
    result = _tool(function, timeout_s=timeout_s).execute("t", {})
    assert result.status == status
    assert word in result.error
    assert result.output is None


def test_arguments_are_checked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    called: list[int] = []
    dispatcher = ToolDispatcher([Tool("t", "d", schema, lambda n: called.append(n))], SETTINGS)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for bad in ({"n": "one"}, {}, {"n": "x" * 100_000}, [1], None, {"n": nested}):
        result = dispatcher.execute("t", bad)  # type: ignore[arg-type]
        assert result.status == "error"
        assert len(result.error) <= SETTINGS.max_output_bytes
    assert called == []
    assert dispatcher.execute("t", {"n": 1}).status == "ok"
    assert called == [1]
    while nested:  # or its end would recurse
        nested = nested.pop()


def test_an_unknown_tool() -> None:
    dispatcher = ToolDispatcher([], SETTINGS)
    assert dispatcher.execute("x", {}).status == "error"
    with pytest.raises(UnknownToolError) as caught:
        dispatcher.tools(["x"])
    assert "No tool is available" in caught.value.next_step
    with pytest.raises(UnknownToolError) as caught:
        ToolDispatcher([Tool("refund", "d", OPEN, str)], SETTINGS).tools(["refnud"])
    assert caught.value.next_step.startswith("Did you mean 'refund'? Available: refund.")


async def test_cancelling_the_caller_cancels_the_tool() -> None:
    ended = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    running = asyncio.ensure_future(_tool(waits).aexecute("t", {}))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(ended.wait(), 20)


# -- what a tool may ask -------------------------------------------------------------------

CALL = Context("t", "key-1", "WO-1", "SES-1")


def test_a_tool_knows_its_call() -> None:
    seen: list[Any] = []

    def plain() -> None:
        seen.append((current_call(), threading.current_thread() is threading.main_thread()))

    async def later() -> None:
        seen.append(current_call())

    _tool(plain).execute("t", {}, call=CALL)
    _tool(later).execute("t", {}, call=CALL)
    _tool(later).execute("t", {})
    assert seen == [(CALL, False), CALL, None]
    assert current_call() is None


async def test_calls_at_once_know_each_its_own() -> None:
    async def own(n: int) -> Any:
        await asyncio.sleep(0.01)
        call = current_call()
        return [n, call and call.idempotency_key]

    dispatcher = _tool(own)
    calls = [dataclasses.replace(CALL, idempotency_key=f"key-{n}") for n in range(20)]
    results = await asyncio.gather(
        *(dispatcher.aexecute("t", {"n": n}, call=call) for n, call in enumerate(calls))
    )
    assert [result.output for result in results] == [[n, f"key-{n}"] for n in range(20)]
    assert current_call() is None


# -- outputs -------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    when: datetime


@dataclasses.dataclass
class Box:
    colour: Colour
    points: tuple[Point, ...]
    note: str | None = None


def test_what_has_a_form_in_json_becomes_json() -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    box = Box(Colour.RED, (Point(x=1, when=noon),))
    assert _run(lambda: box).output == {
        "colour": "red",
        "points": [{"x": 1, "when": "2026-01-02T12:00:00Z"}],
        "note": None,
    }
    values = [noon.date(), timedelta(hours=1), Decimal("1.50"), UUID(int=1), PurePosixPath("/a")]
    assert _run(lambda: {Colour.RED: values}).output == {
        "red": ["2026-01-02", "PT1H", "1.50", "00000000-0000-0000-0000-000000000001", "/a"]
    }
    assert isinstance(values[0], date)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-1e14, 1e14) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


odd = st.recursive(
    plain | st.integers() | st.floats() | st.binary() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner)
    | st.dictionaries(st.integers() | st.text() | st.booleans(), inner)
    | st.frozensets(st.integers() | st.binary()),
    max_leaves=20,
)  # fmt: skip


def _shortest(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


@given(odd, st.integers(4, 300))
@example(([{0: -(2**60)}], [0.0]), 33)
def test_any_result_has_a_form_within_the_limit(value: Any, limit: int) -> None:
    made = _limited(value, limit)
    # The limit counts bytes of the canonical form, which writes 0.0 as 0; with an integer beyond
    # 2**53 the output has no canonical form, and the exact form writes 0.0.
    exact = json.loads(exact_json(made.output), parse_float=_shortest)
    assert len(exact_json(exact)) <= limit


def _endless() -> Iterator[int]:
    while True:
        yield 1


def _breaks() -> Iterator[int]:
    yield 1
    raise ValueError("lost the connection")


class _Unreadable(BaseModel):
    @model_serializer
    def shown(self) -> str:
        raise RuntimeError("no form")


class _Array:
    def tolist(self) -> list[int]:
        raise RuntimeError("no memory")

    def __str__(self) -> str:
        return "an array"


@dataclasses.dataclass
class _Unset:
    first: int
    second: int = dataclasses.field(init=False)


class _Name(str):
    def __str__(self) -> str:
        raise RuntimeError("no name")


class _Masked:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    def __str__(self) -> str:
        return "masked"


class _Leaving:
    """A value whose own code ends the process."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def tolist(self) -> Any:
        raise self.error

    def __str__(self) -> str:
        return "leaving"


def _leaves() -> Iterator[int]:
    yield 1
    raise SystemExit(3)


def _stubborn() -> Iterator[str]:
    try:
        while True:
            yield "x" * 5_000
    finally:
        raise RuntimeError("not closed")


CONVERTED: list[tuple[Callable[[], Any], Any, str]] = [
    (lambda: "x" * 50_000_000, "x" * 4_094, "cut at 4,096 bytes"),
    (partial(_later, "x" * 50_000_000), "x" * 4_094, "cut at 4,096 bytes"),
    (lambda: ["x"] * 2_000_000, ["x"] * 1_023, "cut at 4,096 bytes"),
    (lambda: "\u00e9" * 4_000, "\u00e9" * 2_047, "cut at 4,096 bytes"),
    (_endless, [1] * 2_047, "cut at 4,096 bytes"),
    (lambda: b"bytes", "bytes", "bytes as text"),
    (lambda: b"\xff", "/w==", "bytes in base64"),
    (lambda: memoryview(b"view"), "view", "bytes as text"),
    (lambda: {None: 1, False: 2}, {"null": 1, "false": 2}, "names that are no text as text"),
    (lambda: {"a": [bytearray(3)]}, {"a": ["AAAA"]}, "bytes in base64"),
    (lambda: ToolResult, str(ToolResult), "a type as text"),
    (lambda: ValueError("odd"), "odd", "a ValueError as text"),
    (lambda: {1: 2}, {"1": 2}, "names that are no text as text"),
    (lambda: {("a", 1): 2}, {"('a', 1)": 2}, "names that are no text as text"),
    (lambda: {2, 1}, [1, 2], "a set as a list"),
    (lambda: range(3), [0, 1, 2], "a range as a list"),
    (_breaks, [1], "an end where it raised ValueError"),
    (lambda: math.nan, "NaN", "NaN and infinity as text"),
    (lambda: {"mean": [-math.inf]}, {"mean": ["-inf"]}, "NaN and infinity as text"),
    (lambda: 2**63, 2**63, ""),
    pytest.param(lambda: 1 - 10**4000, 1 - 10**4000, "", id="digits"),
    (lambda: 10**4300, "a number of 14,285 bits", "a whole number without decimal digits"),
    (lambda: 10**5000, "a number of 16,610 bits", "a whole number without decimal digits"),
    (lambda: "\ud800", "\ufffd", "broken characters replaced"),
    (lambda: "\ud83d\ude00", "\U0001f600", "broken characters replaced"),
    (lambda: {"\ud800": 1}, {"\ufffd": 1}, "broken characters replaced"),
    (_cycle, ["(holds itself)"] * 50, "a value that holds itself left out"),
    (lambda: _Unreadable(), None, "since it raised"),
    (lambda: _Array(), "an array", "a _Array as text, since it raised RuntimeError"),
    (lambda: [1, _Array(), 2], [1, "an array", 2], "a _Array as text, since it raised Runtime"),
    (lambda: {_Array(): 1}, {"an array": 1}, "a _Array as text, since it raised RuntimeError"),
    (lambda: _Unset(1), {"first": 1}, "an end where it raised AttributeError"),
    (lambda: [_Unset(1), 2], [{"first": 1}, 2], "an end where it raised AttributeError"),
    (lambda: Fraction(10**400, 3), f"{10**400}/3", "a Fraction as text, since it raised Overflow"),
    (lambda: [_Name("n")], ["a _Name"], "a _Name as text, since it raised RuntimeError"),
    (lambda: _Masked(), "masked", "a _Masked as text, since it raised RuntimeError"),
    (partial(_later, _Masked()), "masked", "a _Masked as text, since it raised RuntimeError"),
    (lambda: [1, _Masked()], [1, "masked"], "a _Masked as text, since it raised RuntimeError"),
    (_leaves, [1], "an end where it raised SystemExit"),
    (lambda: [_leaves(), 2], [[1], 2], "an end where it raised SystemExit"),
    (lambda: _Leaving(SystemExit(3)), "leaving", "since it raised SystemExit"),
    (lambda: [_Leaving(KeyboardInterrupt())], ["leaving"], "since it raised KeyboardInterrupt"),
    (partial(_later, _Leaving(GeneratorExit())), "leaving", "since it raised GeneratorExit"),
    (lambda: {_Leaving(SystemExit()): 1}, {"leaving": 1}, "since it raised SystemExit"),
    (lambda: _stubborn(), ["x" * 4_092], "an end where it raised RuntimeError"),
]


@pytest.mark.parametrize(("function", "output", "word"), CONVERTED)
def test_a_result_without_a_form_is_converted_or_cut_and_named(
    function: Callable[[], Any], output: Any, word: str
) -> None:
    result = _run(function)
    assert (result.status, result.error) == ("ok", "")
    assert word in result.note
    assert output is None or result.output == output
