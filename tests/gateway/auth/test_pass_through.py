"""The allow-lists of a key for requests that call no model: given, changed, recorded, checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import Identity, KeyStore
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.ledger import LedgerClient
from remit.providers.wire import PASSED_PATHS
from remit.runtime.state import check_state
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.stores import outside

_ROWS = {row.name: row for row in PASSED_PATHS if row.dialect == "openai"}
_MAKE, _SHOW = _ROWS["POST /vector_stores"], _ROWS["GET /vector_stores/{id}"]


@pytest.fixture
def ledger(target: str) -> Iterator[LedgerClient]:
    with LedgerClient(target, checks=(check_state,)) as opened:
        yield opened


def _problems(ledger: LedgerClient) -> list[str]:
    return [problem.message for problem in ledger.verify(deep=False).problems]


def test_a_change_replaces_the_lists_and_leaves_the_rest(ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("k", models=["gpt-*"], user_id="u", pass_through=["/vector_stores*"])
        keys.rotate("k", grace_s=3600)
        before = keys.find("k")
        changed = keys.change("k", pass_through_unpriced=["*"])
        assert changed.pass_through == ("/vector_stores*",)
        assert (before.prefix, before.rotated, before.old_until) == (
            changed.prefix, changed.rotated, changed.old_until,
        )  # fmt: skip
        assert changed.identity.may_pass(_MAKE)
        assert not keys.change("k", pass_through=[]).identity.may_pass(_MAKE)
        assert keys.find("k").identity.may_pass(_SHOW)
        keys.rotate("k")
        assert keys.find("k").pass_through_unpriced == ("*",)
        assert _problems(ledger) == []
        entries = [*ledger.query(event_type="KEY_CREATED", submission_id=made.key_id)]
        assert [entry.decision for entry in entries] == [
            "CREATED", "ROTATED", "CHANGED", "CHANGED", "ROTATED",
        ]  # fmt: skip


@pytest.mark.parametrize("column", ["pass_through", "pass_through_unpriced"])
@pytest.mark.parametrize("given", [[], ["/uploads*"]])
def test_an_edited_list_is_found(
    column: str, given: list[str], ledger: LedgerClient, target: str
) -> None:
    with KeyStore(ledger) as keys:
        keys.create("k", **{column: given})  # type: ignore[arg-type]
    outside(target, f"UPDATE virtual_keys SET {column} = '[\"*\"]'")
    (problem,) = _problems(ledger)
    assert problem.startswith(f"virtual_keys: {column} of KEY-")
    assert """ is '["*"]', by the ledger """ in problem


@pytest.mark.any_store
@pytest.mark.parametrize(
    "pattern",
    ["/nothing", "PUT /vector_stores", "vector_stores", "", " ", "[", "/vector_stores/vs_1",
     "POST  /uploads", "\x00"],
)  # fmt: skip
def test_a_pattern_without_a_path_is_refused(pattern: str, ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        keys.create("k")
        for call in (
            lambda: keys.create("other", pass_through=[pattern]),
            lambda: keys.change("k", pass_through_unpriced=[pattern]),
        ):
            with pytest.raises(InvalidInputError):
                call()
        assert keys.find("k").pass_through_unpriced == ()


def test_a_key_that_cannot_be_changed_is_named(ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        with pytest.raises(NotFoundError):
            keys.change("none", pass_through=["*"])
        keys.create("k")
        keys.revoke("k")
        with pytest.raises(ConflictError):
            keys.change("k", pass_through=["*"])


def test_a_token_may_do_no_more_than_the_key_behind_it() -> None:
    key = Identity("k", "agent", pass_through=("/uploads*",))
    token = Identity("t", "agent", pass_through=("*",), within=key)
    assert not token.may_pass(_MAKE)
    assert token.may_pass(_ROWS["POST /uploads"])
    assert token.may_pass(_SHOW)
    assert not token.may_pass(_ROWS["POST /uploads"], unpriced=True)


def test_the_command_line_gives_shows_and_changes_the_lists(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")

    def run(*arguments: str, code: int = 0) -> Any:
        ran = run_remit("key", *arguments, "--root", str(root), "--json")
        assert ran.returncode == code, ran.stderr
        return json.loads(ran.stdout) if not code else ran.stderr

    run("create", "--name", "k", "--pass-through", "/vector_stores*", "--pass-through", "POST /u*")
    assert run("show", "k")["pass_through"] == ["/vector_stores*", "POST /u*"]
    changed = run("set", "k", "--pass-through-unpriced", "*")
    assert changed["pass_through_unpriced"] == ["*"]
    assert changed["pass_through"] == ["/vector_stores*", "POST /u*"]
    assert run("set", "k", "--no-pass-through")["pass_through"] == []
    assert "'GET /vector_stores'" in run("set", "k", "--pass-through", "/vector_store", code=2)
    run("set", "k", code=2)
    run("set", "k", "--no-pass-through", "--pass-through", "*", code=2)
    run("set", "none", "--pass-through", "*", code=1)
