"""What a new version may do that the old one might not, told to whoever has to approve it."""

from __future__ import annotations

from typing import Any

import pytest

from remit.packages import Permissions, widened_permissions

WIDER = [
    ({"tools": ("a",)}, {"tools": ("a",)}, []),
    ({"tools": ("a",)}, {"tools": ()}, []),
    ({"tools": ("a", "b")}, {"tools": ("b", "c")}, ["the tool c"]),
    ({"tools": ("read_*",)}, {"tools": ("read_file", "read_b*")}, []),
    ({"tools": ("read_b*",)}, {"tools": ("read_*",)}, ["the tool read_*"]),
    ({"tools": ("s__*",)}, {"tools": ("s__a@sha256:1", "s__b")}, []),
    ({"tools": ("s__a@sha256:1",)}, {"tools": ("s__a@sha256:2",)}, ["the tool s__a@sha256:2"]),
    ({"tools": ("s__a@sha256:1",)}, {"tools": ("s__a",)}, ["the tool s__a"]),
    ({"models": ("openai/*",)}, {"models": ("openai/gpt-*", "openai/*")}, []),
    ({"models": ("openai/gpt-4",)}, {"models": ("openai/gpt-4o",)}, ["the model openai/gpt-4o"]),
    ({"paths": ("HO1/",)}, {"paths": ("HO1/a/", "HO1/b.txt")}, []),
    ({"paths": ("HO1/a",)}, {"paths": ("HO1/a/",)}, ["the path HO1/a/"]),
    ({"paths": ("HO1/a/",)}, {"paths": ("HO1/ab",)}, ["the path HO1/ab"]),
    ({"paths": ("HO1/*/",)}, {"paths": ("HO1/b/",)}, ["the path HO1/b/"]),
    (
        {"budgets": {"token_budget": 9}},
        {"budgets": {"token_budget": 10}},
        ["a token_budget of 10 instead of 9"],
    ),
    ({"budgets": {"token_budget": 10}}, {"budgets": {"token_budget": 9}}, []),
    ({"budgets": {"usd_budget": "0.5"}}, {"budgets": {"usd_budget": "0.50"}}, []),
    ({"budgets": {"token_budget": 9}}, {}, ["no token_budget instead of 9"]),
    ({}, {"budgets": {"token_budget": 9}}, []),
    (None, {}, []),
    (None, {"tools": ("a",), "budgets": {"usd_budget": "9"}}, ["the tool a", "a usd_budget of 9"]),
]


@pytest.mark.parametrize(("old", "new", "wider"), WIDER)
def test_wider_is_what_was_not_permitted_before(
    old: dict[str, Any] | None, new: dict[str, Any], wider: list[str]
) -> None:
    before = None if old is None else Permissions(**old)
    assert widened_permissions(before, Permissions(**new)) == wider
    assert widened_permissions(Permissions(**new), Permissions(**new)) == []
