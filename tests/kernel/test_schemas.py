"""The quick way of a value that fits its schema says yes only where jsonschema does."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.schemas import _fits, first_problem

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


def test_the_shapes_of_contracts_take_the_quick_way() -> None:
    schema = {
        "type": "object", "required": ["user_input"], "additionalProperties": False,
        "properties": {
            "user_input": {"type": "string", "minLength": 1},
            "turns": {"type": "array", "minItems": 1, "items": {"type": ["object", "null"]}},
            "kind": {"enum": ["question", "command"]},
        },
    }  # fmt: skip
    value: dict[str, Any] = {"user_input": "x", "turns": [{}, None], "kind": "question"}
    assert _fits(schema, value)
    for wrong in (
        {**value, "kind": "other"}, {**value, "more": 1}, {**value, "user_input": ""},
        {**value, "turns": [1]}, {**value, "turns": []}, {"kind": "command"},
    ):  # fmt: skip
        assert not _fits(schema, wrong)
        assert first_problem(schema, wrong)


def test_a_schema_that_is_none_is_said_also_where_nothing_of_it_is_needed() -> None:
    assert "invalid" in first_problem({"properties": {"a": {"type": "strng"}}}, {})
    assert "invalid" in first_problem({"type": "object", "required": "ab"}, {"a": 1, "b": 1})
