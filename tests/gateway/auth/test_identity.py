"""Roles, scopes, and the token in a request's headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.gateway.auth import PERMISSIONS, ROLES, Identity, LocalOperator, token_from_headers
from remit.kernel.errors import InvalidInputError

DOCS = Path(__file__).parents[3] / "docs/keys.md"


def test_a_permission_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="fly"):
        Identity("someone", "operator").may("fly")


def test_a_role_may_what_the_documented_table_says() -> None:
    rows: dict[str, set[str]] = {}
    header: list[str] = []
    for line in DOCS.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| role |"):
            header = cells[1:]
        elif header and line.startswith("| `"):
            rows[cells[0]] = {
                name for name, cell in zip(header, cells[1:], strict=True) if cell == "yes"
            }
        elif header and not line.startswith("|"):
            break
    assert rows.keys() == ROLES.keys()
    for role in (*rows, "visitor"):
        may = {name for name in PERMISSIONS if Identity("someone", role).may(name)}
        assert may == rows.get(role, set())


def test_the_local_operator_may_all_that_an_operator_may() -> None:
    assert all(LocalOperator().authenticate(None).may(name) for name in ROLES["operator"])


def test_empty_scopes_exclude_nothing() -> None:
    anyone = Identity("anyone", "agent")
    assert anyone.may_use_model("gpt-4o")
    assert anyone.may_act_as("writer")
    assert anyone.may_use_tier("hot")


def test_scopes_allow_what_they_name() -> None:
    someone = Identity(
        "someone", "agent", models=("gpt-4o*", "claude-sonnet-4-5"), agents=("a",), tiers=("ho1",)
    )
    assert someone.may_use_model("gpt-4o")
    assert someone.may_use_model("gpt-4o-mini")
    assert someone.may_use_model("claude-sonnet-4-5")
    assert not someone.may_use_model("claude-sonnet-4-5-20250929")
    assert not someone.may_use_model("GPT-4o")
    assert not someone.may_use_model("openai/gpt-4o")
    assert not someone.may_use_model("")
    assert someone.may_act_as("a")
    assert not someone.may_act_as("A")
    assert not someone.may_act_as("ab")
    assert someone.may_use_tier("ho1")
    assert not someone.may_use_tier("hot")


def test_a_name_with_pattern_characters_also_matches_itself() -> None:
    assert Identity("x", "agent", models=("model[1]",)).may_use_model("model[1]")


def test_nobody_has_more_than_whom_he_has_it_from() -> None:
    key = Identity("key", "agent", models=("gpt-*",), agents=("a", "b"), tiers=("ho1", "ho2"))
    part = Identity("a", "agent", models=("*",), agents=("a", "c"), within=key)
    assert part.may_use_model("gpt-4o")
    assert not part.may_use_model("claude-opus-4-1")
    assert part.may_act_as("a")
    assert not part.may_act_as("b")
    assert not part.may_act_as("c")
    assert part.may_use_tier("ho2")
    assert not part.may_use_tier("hot")
    assert part.may("call")
    assert not Identity("a", "agent", within=Identity("k", "auditor")).may("call")


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "token"),
    [
        ("Bearer abc", None, "abc"),
        ("BEARER   abc  ", None, "abc"),
        (None, " abc\t", "abc"),
        ("Bearer one", "two", "one"),
        ("Bearer dummy", "sk-remit-two", "sk-remit-two"),
        ("Bearer dummy", "rat1.two", "rat1.two"),
        ("Bearer sk-remit-one", "sk-remit-two", "sk-remit-one"),
        ("Basic dXNlcg==", "two", "two"),
        ("Bearer", None, None),
        ("Bearerabc", None, None),
        ("Bearer a b", None, None),
        ("Bearer \u00e4", None, None),
        (None, "a\x00b", None),
        (None, "a\nb", None),
        ("Bearer " + "a" * 512, None, "a" * 512),
        ("Bearer " + "a" * 513, None, None),
        (None, "a" * 513, None),
    ],
)
def test_the_token_in_the_headers(
    authorization: str | None, x_api_key: str | None, token: str | None
) -> None:
    assert token_from_headers(authorization, x_api_key) == token
