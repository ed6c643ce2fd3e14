"""The quick way of a value that fits its schema says yes only where jsonschema does."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import Field

from remit.agents import OutputType
from remit.agents.tools import Tool, ToolError, tool as make_tool
from remit.kernel.errors import InvalidInputError
from remit.kernel.metaschema import _KEYWORDS, plainly_schema
from remit.kernel.schemas import _check_schema, _fits, first_problem, problems, schema_problem
from tests.support.soak import is_soak

_TYPES = ["object", "array", "string", "boolean", "null", "integer", "number"]
_NAMES = st.sampled_from(["a", "b", "c"])
_LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "x", "a"])
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3)
)
_TYPE = st.sampled_from(_TYPES)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPE | st.lists(_TYPE, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "items": inner,
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "enum": st.lists(st.sampled_from(["", "x", "a", 1, None]), min_size=1, unique=True),
            "minLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "title": st.just("t"),
            "maximum": st.integers(0, 1),
            "pattern": st.just("^x"),
            "not": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
        },
    )


@given(st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=8), _VALUES)
def test_what_fits_quickly_fits(schema: Any, value: Any) -> None:
    if _fits(schema, value):
        assert jsonschema.Draft202012Validator(schema).is_valid(value)


_PARTS = st.one_of(
    _VALUES,
    st.integers(-1, 2),
    st.sampled_from(
        ["string", "strong", "#", "#/$defs/a", "a b", "^x", "(", "http://a.b/c", "http://a#b",
         "https://json-schema.org/draft/2020-12/schema", ["string", "null"], ["string", "string"]]
    ),
)  # fmt: skip


@given(
    st.recursive(
        st.dictionaries(st.sampled_from(sorted(_KEYWORDS)), _PARTS, max_size=2),
        lambda inner: st.fixed_dictionaries(
            {}, optional={
                name: st.one_of(
                    inner,
                    st.lists(inner, max_size=2),
                    st.dictionaries(_NAMES, inner, max_size=2),
                )
                for name in sorted(_KEYWORDS)[::2]
            },
        ),
        max_leaves=3,
    )
)  # fmt: skip
def test_what_is_plainly_a_schema_is_one(schema: Any) -> None:
    if plainly_schema(schema):
        _check_schema(schema)


# -- Schemas and values that would hold a process up: checked, or given up, in bounded steps -----


_BOMB = {
    "$defs": {
        **{f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)},
        "a40": {},
    },
    "$ref": "#/$defs/a0",
}
_UNION: dict[str, Any] = {
    "$defs": {
        **{op: {"type": "object", "properties": {"op": {"const": op},
                "left": {"$ref": "#/$defs/any"}}, "required": ["op", "left"]}
           for op in ("and", "not")},
        "name": {"type": "object", "properties": {"op": {"const": "name"},
                 "name": {"type": "string"}}, "required": ["op", "name"]},
        "any": {"anyOf": [{"$ref": f"#/$defs/{op}"} for op in ("and", "not", "name")]},
    },
    "$ref": "#/$defs/any",
}  # fmt: skip
_HOSTILE = r"""
from remit.kernel.schemas import first_problem
from tests.kernel.test_schemas import _BOMB
assert "does not match" in first_problem({"pattern": r"^(\w+\s?)*$"}, "a" * 60 + "!")
assert first_problem({"uniqueItems": True}, [{"n": n} for n in range(20_000)]) == ""
assert first_problem(_BOMB, 1) == ""
"""


def test_what_would_take_for_ever_ends() -> None:
    # In a process of its own: a regular expression at work lets nothing else run.
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


_WORD = r"^(\w+\s?)*$"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": _WORD}, lambda n: "a" * n + "!"),
        ({"patternProperties": {_WORD: {"type": "null"}}}, lambda n: {"a" * n + "!": 1}),
        ({"patternProperties": {_WORD: {}}, "additionalProperties": False},
         lambda n: {"a" * n + "!": 1}),
        ({"patternProperties": {_WORD: {}}, "unevaluatedProperties": False},
         lambda n: {"a" * n + "!": 1}),
        ({"uniqueItems": True}, lambda n: [{"n": k} for k in range(n // 40)]),
        ({"uniqueItems": True}, lambda n: [2**60 + k for k in range(n // 40)]),
        ({"items": {"anyOf": [{"type": "null"}, {"type": "integer", "not": {"const": -1}}]}},
         lambda n: [*range(n // 40), "x"]),
        ({"items": _UNION["$defs"]["any"], "$defs": _UNION["$defs"]},
         lambda n: [{"op": "name", "name": "a"}] * (n // 100) + [{"op": "name"}]),
        ({"additionalProperties": {"oneOf": [{"type": "string"}, {"type": "integer"}]}},
         lambda n: {str(k): k for k in range(n // 40)}),
    ],
)  # fmt: skip
def test_a_check_costs_by_length(schema: dict[str, Any], value: Callable[[int], Any]) -> None:
    # Eight times the length takes eight times as long; a quadratic check takes 64 times. So what a
    # busy machine adds cannot make one look like the other.
    small, large = (
        min(_cpu_time(schema, value(size)) for _ in range(3)) for size in (10_000, 80_000)
    )
    assert large <= 20 * small


def _cpu_time(schema: dict[str, Any], value: Any) -> float:
    started = time.process_time()
    first_problem(schema, value)
    return time.process_time() - started


def _condition(levels: int) -> dict[str, Any]:
    """Return a value of that many levels whose innermost member lacks its name."""
    value: dict[str, Any] = {"op": "name"}
    for level in range(levels):
        value = {"op": ("and", "not")[level % 2], "left": value}
    return value


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
@pytest.mark.parametrize("levels", [1, 12, 60])
def test_a_problem_deep_in_a_recursive_union_is_found_and_named(word: str, levels: int) -> None:
    schema = {**_UNION, "$defs": {**_UNION["$defs"]}}
    schema["$defs"]["any"] = {word: _UNION["$defs"]["any"]["anyOf"]}
    place = "/".join(["left"] * levels)
    assert first_problem(schema, _condition(levels)) == f"{place}: 'name' is a required property"
    assert problems(schema, _condition(levels), 10) == [f"{place} fails 'required'"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"op": "or"}, "op: 'or' is not one of ['and', 'not', 'name']"),
        ({"op": "and", "left": 3}, "left: 3 is not of type 'object'"),
        ({"op": "and"}, "value: 'left' is a required property"),
        ({}, "value: {} is not valid under any of the given schemas"),
    ],
)
def test_the_problem_is_that_of_the_branch_that_was_meant(value: Any, problem: str) -> None:
    assert first_problem(_UNION, value).startswith(problem)


@pytest.mark.parametrize(
    ("items", "item", "steps"),
    [
        ({"anyOf": [{"minItems": n} for n in range(10_000, 0, -1)]}, ["x"], "25,102"),
        ({"oneOf": [{"required": [f"a{n}"]} for n in range(10_000)]}, {"a9999": 1}, "25,102"),
        ({"enum": [{"n": n} for n in range(100_000)]}, {"n": 1}, "15,102"),
    ],
)
def test_a_check_ends_when_its_steps_are_used_up(items: Any, item: Any, steps: str) -> None:
    # 5,000 steps, 100 for each value in the list of 50, and for the list, and 1 for each keyword.
    problem = first_problem({"items": items}, [copy.deepcopy(item) for _ in range(50)])
    assert problem.startswith(f"it cannot be checked in {steps} steps")


_LONG: list[tuple[Any, Any, str]] = [
    ({"anyOf": [{"const": n} for n in range(2_000)]}, 1_999, ""),
    ({"anyOf": [{"const": n} for n in range(2_000)]}, 2_000, ": 2000 is not valid under"),
    ({"anyOf": [{"const": n} for n in range(2_000)]}, True, ": True is not valid under"),
    ({"anyOf": [{"const": n} for n in range(2_000)]}, [1], ": [1] is not valid under"),
    ({"oneOf": [{"enum": [f"a{n}", "b"]} for n in range(2_000)]}, "a9", ""),
    ({"oneOf": [{"enum": [f"a{n}", "b"]} for n in range(2_000)]}, "b", ": 'b' fits more than"),
    ({"anyOf": [{"const": n} for n in range(2_000)] + [{"type": "string"}]}, "x", ""),
    ({"enum": [*range(4_000)]}, 3_999, ""),
    ({"enum": [*range(4_000)]}, 1.5, ": 1.5 is not one of"),
    ({"anyOf": [{"type": "object", "required": ["k"], "properties": {"k": {"const": n}}}
                for n in range(2_000)]}, {"k": 1_999}, ""),
    ({"anyOf": [{"type": "object", "required": ["k"], "properties": {"k": {"const": n}}}
                for n in range(2_000)]}, {"k": "a"}, "/k: 'a' is not one of"),
    ({"properties": {f"p{n}": {"type": "integer"} for n in range(2_000)}}, {"p9": 1}, ""),
    ({"properties": {f"p{n}": {"type": "integer"} for n in range(2_000)}}, {"p9": "a"},
     "/p9: 'a' is not of type 'integer'"),
]  # fmt: skip


@pytest.mark.parametrize(("items", "item", "problem"), _LONG)
def test_many_constants_cost_no_more_than_a_few(items: Any, item: Any, problem: str) -> None:
    # 1,000 values would take two million steps if each constant were tried.
    found = first_problem({"items": items}, [copy.deepcopy(item) for _ in range(1_000)])
    assert problem in found
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"pattern": "^(?=x)x$"}, "cannot be checked in linear time"),
        ({"pattern": r"(a)\1"}, "cannot be checked in linear time"),
        ({"patternProperties": {"(?!x)": {}}}, "cannot be checked in linear time"),
        ({"properties": {"enum": {"pattern": "(?<=x)"}}}, "cannot be checked in linear time"),
        ({"$ref": "#/nowhere"}, "leads to nothing in the schema"),
        ({"items": {"$ref": "https://example.com/s"}}, "leads to another document, and nothing is"),
        ({"items": {"$ref": "other.json#/a"}}, "'other.json#/a' leads to another document"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"not": {"$ref": "#"}}, "leads back to itself"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
         "leads back to itself"),
        ({"$ref": "#/parts/a", "parts": {"a": {"type": "strange"}}}, "'strange' is not valid"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum: True is not of type 'number'"),
        ({"items": [{}]}, "items: [{}] is not of type"),
        ({"title": "\ud83d"}, "half of a surrogate pair"),
        ({"properties": {"x": {"$ref": "#"}, "pattern": {"type": "string"}}}, ""),
        ({"$ref": "#/parts/a", "parts": {"a": {"type": "string"}}}, ""),
        ({"$anchor": "n", "properties": {"n": {"$dynamicRef": "#n"}}}, ""),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused_as_it_is_made(schema: Any, why: str) -> None:
    problem = schema_problem(schema)
    assert why in problem
    assert bool(why) == bool(problem)
    if not why:
        return
    with pytest.raises(ToolError, match=r"odd is (not )?a JSON Schema.*: .*[^.]\.$"):
        Tool("odd", "Odd.", schema, print)


@pytest.mark.parametrize("pattern", ["(?=x)x", r"(a)\1", "("])
def test_a_type_with_a_pattern_that_cannot_be_used_is_refused_as_it_is_made(pattern: str) -> None:
    wanted = Annotated[str, Field(pattern=pattern)]

    def odd(x: wanted) -> str:  # type: ignore[valid-type]
        """Odd."""
        return "odd"

    with pytest.raises(ToolError, match="The type of the parameter 'x'"):
        make_tool(odd)
    with pytest.raises(InvalidInputError, match="cannot be described by JSON Schema: "):
        OutputType(wanted)


_ANY_NAMES = st.sampled_from(["a", "b", "ab", "c"])
_ANY_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_ANY_NAMES, inner, max_size=3),
    max_leaves=6,
)
_SIMPLE = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(["object", "array", "string", "integer"])}),
    st.fixed_dictionaries({"enum": st.lists(_ANY_VALUES, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"const": _ANY_VALUES}),
    st.fixed_dictionaries({"pattern": st.sampled_from(["^a", "b$", "^$"])}),
    st.fixed_dictionaries({"required": st.lists(_ANY_NAMES, max_size=2, unique=True)}),
    st.fixed_dictionaries({"uniqueItems": st.booleans()}),
    st.sampled_from([{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]),
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(_ANY_NAMES, inner, max_size=2)
    return st.fixed_dictionaries({}, optional={
        "anyOf": some, "oneOf": some, "allOf": some, "not": inner, "if": inner, "then": inner,
        "else": inner, "properties": named, "additionalProperties": inner, "items": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
        "prefixItems": some, "contains": inner, "propertyNames": inner, "dependentSchemas": named,
        "unevaluatedProperties": inner, "unevaluatedItems": inner,
    })  # fmt: skip


_SCHEMAS = st.recursive(_SIMPLE, _wider, max_leaves=8)


@settings(max_examples=2_000 if is_soak() else 150, deadline=None)
@given(_SCHEMAS, _SCHEMAS, _ANY_VALUES)
def test_the_verdict_is_that_of_json_schema(first: Any, second: Any, value: Any) -> None:
    # Definitions may refer to each other, but only for a part of the value: any other circle
    # has no verdict.
    schema = {"$defs": {"x": {"items": second, "properties": {"a": second}},
                        "y": {"additionalProperties": {"$ref": "#/$defs/x"}}},
              "allOf": [first]}  # fmt: skip
    wanted = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (first_problem(schema, value) == "") is wanted
