"""``@tool``: schema from the signature, arguments in their types, refusals when it is made."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest
import rfc8785
from pydantic import BaseModel, Field

import remit
from remit.agents.tools import Tool, ToolDispatcher, ToolError, ToolResult, UnknownToolError, tool
from remit.kernel.settings import default_settings


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    item: str
    count: int = 1


@dataclasses.dataclass
class Place:
    city: str
    since: date | None = None


EXAMPLE = {
    "colour": "red",
    "order": {"item": "car"},
    "place": {"city": "Ulm"},
    "when": "2026-01-02T03:04:05",
}


@tool(label="paint", on_unknown="retry", timeout_s=5.0, examples=[("red!", EXAMPLE)])
def paint(
    colour: Colour,
    order: Order,
    place: Place,
    when: datetime,
    schema: Literal["a", "b"] = "a",
    model_config: Annotated[int, Field(ge=0, description="from the type")] = 3,
    _hidden: Colour = Colour.BLUE,
    tags: list[str] | None = None,
) -> dict[str, Any]:
    """Paint something,
    carefully.

    This is for people.

    Args:
        colour: the new
            one.
        order (Order): what: a thing.
        model_config: not this

    Returns:
        order: what it got.
    """
    values = [colour, order, place, when, schema, model_config, _hidden, tags]
    return {"types": [type(value).__name__ for value in values], "values": values}


def _use(made: Tool, **arguments: Any) -> ToolResult:
    return ToolDispatcher([made], default_settings().tools).execute(made.tool_id, arguments)


GOOD: dict[str, Any] = {
    "colour": "red",
    "order": {"item": "car"},
    "place": {"city": "Ulm", "since": "2020-01-01"},
    "when": "2026-01-02T03:04:05",
}


def test_the_schema_tells_what_the_signature_and_the_docstring_tell() -> None:
    assert remit.tool is tool
    assert (paint.tool_id, paint.label, paint.on_unknown) == ("paint", "paint", "retry")
    assert paint.timeout_s == 5.0
    assert paint.description == "Paint something, carefully."
    schema = paint.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["colour", "order", "place", "when"]
    shown = schema["properties"]
    assert list(shown) == [*inspect.signature(paint.function).parameters]
    assert shown["colour"]["description"] == "the new one."
    assert shown["order"]["description"] == "what: a thing."
    assert shown["model_config"] == {
        "default": 3, "description": "from the type", "minimum": 0, "type": "integer"
    }  # fmt: skip
    assert shown["schema"] == {"default": "a", "enum": ["a", "b"], "type": "string"}
    assert shown["_hidden"]["default"] == "blue"
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]


def test_arguments_come_in_their_types() -> None:
    result = _use(paint, **GOOD)
    assert result.status == "ok"
    assert result.output["types"] == [
        "Colour", "Order", "Place", "datetime", "str", "int", "Colour", "NoneType"
    ]  # fmt: skip
    assert result.output["values"][:4] == [
        "red",
        {"item": "car", "count": 1},
        {"city": "Ulm", "since": "2020-01-01"},
        "2026-01-02T03:04:05",
    ]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"colour": "green"}, "colour"),
        ({"order": {}}, "order"),
        ({"order": {"item": "x", "count": "many"}}, "count"),
        ({"when": "tomorrow"}, "when: Input should be a valid datetime"),
        ({"place": {"city": "Ulm", "since": "2026-02-30"}}, "since"),
        ({"schema": "c"}, "schema"),
        ({"model_config": -1}, "model_config"),
        ({"p0": "red"}, "p0"),
        ({"more": 1}, "more"),
    ],
)
def test_a_bad_argument_is_named(change: dict[str, Any], word: str) -> None:
    result = _use(paint, **{**GOOD, **change})
    assert result.status == "error"
    assert word in result.error
    assert "Traceback" not in result.error
    assert "pydantic.dev" not in result.error


class Line(TypedDict):
    tea: str
    packets: NotRequired[int]


def test_typed_dicts_of_the_standard_library_are_types_of_arguments() -> None:
    @tool
    def order(lines: list[Line], last: Line | None = None) -> str:
        """Order tea."""
        return f"{lines} {last}"

    used = _use(order, lines=[{"tea": "mint"}], last={"tea": "oolong", "packets": 2})
    assert used.output == "[{'tea': 'mint'}] {'tea': 'oolong', 'packets': 2}"
    assert _use(order, lines=[{"packets": 2}]).status == "error"


def test_a_method_is_a_tool_of_its_object() -> None:
    class Shop:
        def __init__(self, stock: int) -> None:
            self.stock = stock

        @tool(on_unknown="retry")
        def count(self, tea: str, most: int | None = None) -> int:
            """Count it."""
            return self.stock + len(tea)

    first, second = Shop(1), Shop(10)
    assert first.count.input_schema["properties"] == Shop.count.input_schema["properties"]
    assert "default" not in first.count.input_schema["properties"]["most"]
    assert (_use(first.count, tea="x").output, _use(second.count, tea="x").output) == (2, 11)
    assert first.count("xy") == 3


def _no_type(a) -> None: ...  # type: ignore[no-untyped-def]
def _many(*a: int) -> None: ...
def _more(**a: int) -> None: ...
def _position(a: int, /) -> None: ...
def _callable(a: Callable[[], int]) -> None: ...
def _object(a: asyncio.Event) -> None: ...
def _unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821
def _field(a: int = Field(3)) -> None: ...


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (_no_type, "parameter 'a' of _no_type has no type"),
        (_many, "variadic positional"),
        (_more, "variadic keyword"),
        (_position, "positional-only"),
        (_callable, "parameter 'a'"),
        (_object, "parameter 'a'"),
        (_unknown, "Nowhere"),
        (_field, "Annotated"),
        (lambda: None, "'<lambda>' is not a valid tool id"),
        (Colour, "not a function"),
        (3, "not a function"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(function: Any, word: str) -> None:
    with pytest.raises(ToolError) as caught:
        tool(function)
    assert word in str(caught.value)
    assert caught.value.next_step or word == "not a function"


def test_a_generator_and_a_function_without_a_docstring_are_refused() -> None:
    def many(a: int) -> Iterator[int]:
        """Count."""
        yield a

    async def later(a: int) -> AsyncIterator[int]:
        """Count."""
        yield a

    def silent(a: int) -> int:
        return a

    for function in (many, later):
        with pytest.raises(ToolError, match="is a generator function"):
            tool(function)
    with pytest.raises(ToolError, match="'silent' has no docstring"):
        tool(silent)
    assert tool(description="Return it.")(silent).description == "Return it."


# -- The hash of a tool's definition: what a model is shown, and nothing else --------------------


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PAY = Tool("pay", "Pay a bill.", SCHEMA, print)


def test_it_is_sha_256_of_the_canonical_definition_and_of_nothing_else() -> None:
    definition = {"tool_id": "pay", "description": "Pay a bill.", "parameters": SCHEMA}
    assert PAY.digest == hashlib.sha256(rfc8785.dumps(definition)).hexdigest()
    shown: list[dict[str, Any]] = [
        {"tool_id": "pays"},
        {"description": "Pay a bill"},
        {"input_schema": {**SCHEMA, "required": []}},
        {"input_schema": {**SCHEMA, "additionalProperties": False}},
    ]
    hidden: list[dict[str, Any]] = [
        {"function": repr},
        {"timeout_s": 1.0, "max_output_bytes": 512, "label": "till", "on_unknown": "fail"},
        {"input_schema": dict(reversed(SCHEMA.items()))},
    ]
    for change in (*shown, *hidden):
        same = replace(PAY, **change).digest == PAY.digest
        assert same is (change in hidden), change


# -- Tools of installed distributions: imported when named, and not before -----------------------


Install = Callable[..., None]

MODULE = '''
import pathlib
pathlib.Path(__file__).with_suffix(".imported").touch()
import remit

@remit.tool(on_unknown="retry")
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"

def plain(n: int = 2) -> int:
    """Double it."""
    return n * 2

number = 5
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution of one module: ``install(name, source, entry_point=object, …)``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def installed(name: str, source: str = MODULE, **points: str) -> None:
        module = f"{name}_module"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point} = {module}:{what}" for point, what in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[remit.tools]", *lines, ""]))
        importlib.invalidate_caches()

    yield installed
    for module in modules:
        sys.modules.pop(module, None)


def _dispatcher() -> ToolDispatcher:
    return ToolDispatcher([], default_settings().tools)


def test_only_what_is_named_is_imported(install: Install, tmp_path: Path) -> None:
    install("forecast", weather="weather", plain="plain")
    trace = tmp_path / "forecast_module.imported"
    dispatcher = _dispatcher()
    with pytest.raises(UnknownToolError):
        dispatcher.tools(["other"])
    assert not trace.exists()
    tool = dispatcher.tools(["weather"])[0]
    assert trace.exists()
    assert tool.on_unknown == "retry"
    assert dispatcher.execute("weather", {"city": "Ulm"}).output == "rain in Ulm"
    assert dispatcher.execute("plain", {"n": 4}).output == 8  # a function without the decorator
    assert dispatcher.tools(["plain"])[0].description == "Double it."


def test_what_is_given_goes_before_what_is_installed(install: Install, tmp_path: Path) -> None:
    install("forecast", weather="weather")
    from remit.agents.tools import Tool

    own = Tool("weather", "d", {"type": "object"}, lambda: "own")
    dispatcher = ToolDispatcher([own], default_settings().tools)
    assert dispatcher.execute("weather", {}).output == "own"
    assert not (tmp_path / "forecast_module.imported").exists()


def test_two_that_offer_the_same_are_refused(install: Install) -> None:
    install("first", plain="plain")
    install("second", plain="plain")
    with pytest.raises(ToolError, match="first, second"):
        _dispatcher().tools(["plain"])
