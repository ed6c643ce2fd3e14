"""The declarations of operations: what every door relies on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remit.gateway.auth import PERMISSIONS
from remit.kernel.errors import InvalidInputError
from remit.operations import (
    Operation,
    checked,
    feed_of,
    result_form,
)
from remit.runtime.operations import all_operations


def _named(name: str) -> Operation:
    return next(kind for kind in all_operations() if kind.command == name)


@pytest.mark.parametrize("kind", all_operations(), ids=lambda kind: kind.function.__name__)
def test_an_operation_is_complete(kind: Operation) -> None:
    assert kind.command or kind.route or kind.agent_tools
    assert set(kind.needs.split(" or ")) <= set(PERMISSIONS)
    assert kind.doc.strip().partition("\n\n")[0].rstrip().endswith(".")
    if kind.route:
        assert kind.summary
        assert kind.media_type or result_form(kind.result)
    for door in ("command", "route"):
        for one in kind.fields(door):
            assert one.help.endswith("."), one.name


def test_the_declarations_import_neither_pydantic_nor_a_ledger() -> None:
    program = (
        "import sys, remit.runtime.operations as known; known.all_operations();"
        "print([name for name in ('pydantic', 'fastapi', 'remit.ledger') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "values", "told"),
    [
        ("key create", {"name": "k", "tiers": ["top"]}, "--tiers 'top'"),
        ("key create", {"name": "k", "rpm": -1}, "--rpm '-1'"),
        ("key rotate", {"name_or_id": "k", "grace_s": float("inf")}, "--grace 'inf'"),
        ("team create", {"name": " x"}, "--name ' x'"),
        ("team create", {"name": "x", "usd": float("nan")}, "--budget-usd 'nan'"),
        ("budget set", {"user": "a\0", "usd": 1}, "--user"),
        ("budget set", {"user": "u", "window": "year"}, "--window 'year'"),
    ],
)
def test_a_refusal_names_the_option_and_the_value(
    command: str, values: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        checked(_named(command), values)
    assert told in refused.value.message


def test_a_feed_of_known_items_continues_after_a_cursor() -> None:
    described: list[list[int]] = []

    def describe(part: list[int]) -> list[dict[str, int]]:
        described.append(part)
        return [{"n": one} for one in part]

    feed = feed_of(range(6), str, describe, lambda one: one != 3, note="six")
    assert [item["n"] for _, item in feed.read(None, None)] == [0, 1, 2, 4, 5]
    assert list(feed.read("2", 2)) == [("4", {"n": 4}), ("5", {"n": 5})]
    assert list(feed.read("3", 1)) == [("4", {"n": 4})]  # a hidden item still marks a place
    assert described[1:] == [[4, 5], [4]]  # nothing else was described
    with pytest.raises(InvalidInputError, match="cursor"):
        list(feed.read("9", 1))
