"""The quick way of a value that fits its schema says yes only where jsonschema does."""

from __future__ import annotations

from typing import Any

import jsonschema
import orjson
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.exceptions import SchemaError

from remit.kernel.installation import shipped_file
from remit.kernel.metaschema import _KEYWORDS, plainly_schema
from remit.kernel.schemas import _check_schema, _fits, first_problem

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


def test_each_keyword_is_looked_at() -> None:
    for keyword in set(_KEYWORDS) - {"const", "default"}:
        for wrong in (None, -1.5, [None], {"a": None}, "(", ["a", "a"]):
            schema = {"properties": {"a": {keyword: wrong}}}
            try:
                _check_schema(schema)
            except SchemaError:
                assert not plainly_schema(schema), schema
    nested: dict[str, Any] = {}
    for _ in range(1000):
        nested = {"items": nested}
    assert not plainly_schema(nested)


def test_the_schemas_that_ship_are_plain() -> None:
    manifest = orjson.loads(shipped_file("PKG-PHASE2-SCHEMAS-001", "manifest.json"))
    names = [each["path"] for each in manifest["assets"] if each["path"].endswith(".schema.json")]
    assert len(names) > 5
    for name in names:
        assert plainly_schema(orjson.loads(shipped_file("PKG-PHASE2-SCHEMAS-001", name))), name
