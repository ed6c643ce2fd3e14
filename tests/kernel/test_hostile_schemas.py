"""Schemas and values that would hold a process up: checked, or given up, in bounded steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remit.kernel.schemas import first_problem

_BOMB = {
    "$defs": {
        **{f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)},
        "a40": {},
    },
    "$ref": "#/$defs/a0",
}
_ROUND = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
_HOSTILE = r"""
from remit.kernel.schemas import first_problem
from tests.kernel.test_hostile_schemas import _BOMB
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


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a.c", "xxabcxx", True),
        ("^[a-z]+$", "abc\n", False),  # JSON Schema's $ is the end, not before a last line's end
        ("^(?!no)[a-z]+$", "nope", False),  # look-around: by Python's engine
        ("^(?!no)[a-z]+$", "yes", True),
        (r"^(a)\1$", "aa", True),
        ("^a--b$", "a--b", True),
        ("^[^/]{1,300}$", "é", True),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert (first_problem({"pattern": pattern}, text) == "") is fits


def test_unique_items_and_references() -> None:
    for value, fits in (([1, True], True), ([1, 1.0], False), ([2**60, 2**60], False)):
        assert (first_problem({"uniqueItems": True}, value) == "") is fits
    tree = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    assert first_problem(tree, [[[]], []]) == ""
    assert first_problem(tree, [[1]]) == "0/0: 1 is not of type 'array'"
    assert "too deep" in first_problem(_ROUND, 1)
