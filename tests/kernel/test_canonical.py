"""JCS: the fast path is held to the reference encoder, refusals name their place."""

from __future__ import annotations

import math
from enum import IntEnum, StrEnum
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.canonical import (
    MAX_SAFE_INTEGER,
    NotCanonicalError,
    canonical_json,
    number_text,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda value: not MAX_SAFE_INTEGER < abs(value) < 1e21
) | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(json_values)
def test_equals_the_reference_encoder(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(st.floats(min_value=1e-4, max_value=9e15))
def test_floats_near_the_limits_of_the_fast_path(value: float) -> None:
    assert canonical_json({"x": value}) == rfc8785.dumps({"x": value})


@given(numbers.map(float) | st.floats(-1e-3, 1e-3))
def test_a_number_is_written_as_the_reference_encoder_writes_it(value: float) -> None:
    assert number_text(value) == rfc8785.dumps(value).decode()


@given(json_values)
def test_what_is_read_back_has_the_same_encoding(value: Any) -> None:
    encoded = canonical_json(value)
    assert canonical_json(orjson.loads(encoded)) == encoded


def test_key_order_is_by_utf16_code_units() -> None:
    # U+1F600 is D83D DE00 in UTF-16, so it sorts before U+FB33, though its code point is higher.
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


class _Colour(StrEnum):
    RED = "red"


class _Number(IntEnum):
    ONE = 1


def test_subclasses_are_encoded_as_their_base() -> None:
    assert canonical_json({"c": _Colour.RED, "n": _Number.ONE}) == b'{"c":"red","n":1}'


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        ({"a": math.inf}, "$.a"),
        ({"a": {1: "x"}}, "$.a"),
        ({"a": MAX_SAFE_INTEGER + 1}, "$.a"),
        ({"a": 2.0**53}, "$.a"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": {"b": object()}}, "$.a.b"),
    ],
)
def test_refuses_and_names_the_place(value: Any, place: str) -> None:
    with pytest.raises(NotCanonicalError, match=place.replace("$", r"\$").replace("[", r"\[")):
        canonical_json(value)


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {"a": ["x", "\ud83d"]}])
def test_refuses_lone_surrogates(value: Any) -> None:
    with pytest.raises(NotCanonicalError, match="surrogate"):
        canonical_json(value)


def test_refuses_endless_nesting() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotCanonicalError, match="nested"):
        canonical_json(value)
