"""Equal requests are answered from the record, if settings allow: at no cost, and never across."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import Transaction
from remit.runtime.state_tables import check_state
from remit.testing import ScriptedModel, new_root
from tests.server.running import Served, new_session
from tests.support.requests import prompt_request
from tests.support.upstream import Upstream
from tests.support.waiting import until

KEYS = ("cached-1", "cached-2", "cached-3")
TOML = f"""
[gateway]
retry_base_ms = 5
retry_max_ms = 50
[gateway.answer_cache]
keys = {json.dumps(KEYS)}
"""


@pytest.fixture(scope="module")
def keys(anywhere: Served) -> list[Any]:
    """Two keys that the cache serves, and one that it does not."""
    with KeyStore(anywhere.ledger) as store:
        made = [store.create(name, role="agent", models=()) for name in (*KEYS[:2], "other")]
    for key in made:
        TokenBudgeter(anywhere.ledger).allocate(BudgetScope(key_id=key.key_id), token_limit=10**9)
    return made


def ask(served: Served, key: Any, text: str, **more: Any) -> tuple[int, bytes, Any]:
    return served.call("openai", text, token=key.key, **{"session": new_session(), **more})


def is_cached(answer: tuple[int, bytes, Any]) -> bool:
    return b"x-remit-replayed=true" in answer[1] or "x-remit-replayed" in answer[2]


def test_a_hit_is_a_pair_that_costs_nothing(
    anywhere: Served, upstream: Upstream, keys: list[Any], session: str
) -> None:
    first = ask(anywhere, keys[0], "the hours?")
    calls = upstream.count()
    budgeter = TokenBudgeter(anywhere.ledger)
    (before,) = budgeter.status(BudgetScope(key_id=keys[0].key_id))
    again = ask(anywhere, keys[0], "the hours?", session=session)
    (after,) = budgeter.status(BudgetScope(key_id=keys[0].key_id))
    assert upstream.count() == calls
    assert (again[0], again[1]) == (200, first[1])
    assert again[2]["x-remit-replayed"] == "true"
    assert float(again[2]["x-remit-cost-usd"]) == 0
    assert (before.spent_nano, before.spent_tokens) == (after.spent_nano, after.spent_tokens)
    exchange = anywhere.exchange(session)
    meta = exchange.metadata
    assert again[2]["x-remit-exchange"] == exchange.id
    assert meta["cached_from"] == first[2]["x-remit-exchange"]
    assert (meta["cost_usd"], meta["input_tokens"], meta["output_tokens"]) == (0, 0, 0)
    assert meta["response"] == "You said: the hours?"
    third = ask(anywhere, keys[0], "the hours?")
    entry = anywhere.ledger.read(third[2]["x-remit-exchange"])
    assert entry.metadata["cached_from"] == meta["cached_from"]  # always the provider's own answer
    assert not list(check_state(anywhere.ledger, False))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5"])
def test_a_cached_stream_streams(
    anywhere: Served, upstream: Upstream, keys: list[Any], dialect: str, model: str
) -> None:
    def one() -> tuple[int, bytes, Any]:
        return anywhere.call(
            dialect, f"stream {dialect}", model=model, stream=True, token=keys[0].key,
            session=new_session(),
        )  # fmt: skip

    first, calls = one(), upstream.count()
    again = one()
    assert upstream.count() == calls
    assert is_cached(again)
    assert not is_cached(first)
    assert again[2]["content-type"].startswith("text/event-stream")
    assert b"You said: stream" in b"".join(
        json.loads(line[6:]).get("delta", {}).get("text", "").encode()
        if dialect == "anthropic"
        else (json.loads(line[6:])["choices"] or [{"delta": {}}])[0]["delta"]
        .get("content", "").encode()
        for line in again[1].splitlines()
        if line.startswith(b"data: {")
    )  # fmt: skip


def test_nothing_is_shared(anywhere: Served, upstream: Upstream, keys: list[Any]) -> None:
    text, subject = "mine", {"x-remit-subject": "ada"}
    variants: list[Callable[[], Any]] = [
        lambda: ask(anywhere, keys[0], text),
        lambda: ask(anywhere, keys[1], text),
        lambda: ask(anywhere, keys[0], text, headers=subject),
        lambda: ask(anywhere, keys[0], text, headers={"x-remit-subject": "bob"}),
        lambda: ask(anywhere, keys[0], text, headers={"x-remit-contract": "PRC-EXECUTE-001"}),
        lambda: ask(anywhere, keys[0], text, temperature=0.5),
        lambda: ask(anywhere, keys[0], text, model="gpt-4.1"),
        lambda: ask(anywhere, keys[2], text),
    ]
    for one in variants:
        assert not is_cached(one())
    assert [is_cached(one()) for one in variants] == [True] * 7 + [False]


def test_only_whole_answers_of_providers_are_cached(anywhere: Served, keys: list[Any]) -> None:
    failing = f"[[status=400 once]] {new_session()}"
    assert ask(anywhere, keys[0], failing)[0] == 400
    assert not is_cached(ask(anywhere, keys[0], failing))
    named = {"idempotency-key": "one"}
    assert not is_cached(ask(anywhere, keys[0], "named", headers=named))
    assert not is_cached(ask(anywhere, keys[0], "named"))


@pytest.mark.parametrize("target", ["entry", "session", "subject"])
def test_an_erasure_reaches_the_cache(
    anywhere: Served, upstream: Upstream, keys: list[Any], session: str, target: str
) -> None:
    def one() -> tuple[int, bytes, Any]:
        return ask(anywhere, keys[0], f"erased by {target}", session=session,
                   headers={"x-remit-subject": f"of-{target}"})  # fmt: skip

    first = one()
    assert is_cached(one())
    which = {
        "entry": {"entry_id": first[2]["x-remit-exchange"]},
        "session": {"session_id": session},
        "subject": {"subject_id": f"of-{target}"},
    }
    anywhere.ledger.erase(reason="asked", requested_by="Ada", **which[target])
    rows = anywhere.ledger.select("SELECT count(*) FROM idempotency WHERE token = 'cached'")
    assert rows == [(0,)]
    calls = upstream.count()
    assert not is_cached(one())
    assert upstream.count() == calls + 1


def _change(served: Served, sql: str, parameters: tuple[Any, ...] = ()) -> None:
    def change(tx: Transaction) -> None:
        tx.execute_many(sql, [parameters])

    served.ledger.transact(change)


def test_a_changed_row_leads_to_no_other_answer(anywhere: Served, keys: list[Any]) -> None:
    others = [
        ask(anywhere, keys[0], "another request")[2]["x-remit-exchange"],
        ask(anywhere, keys[1], "poisoned")[2]["x-remit-exchange"],
        ask(anywhere, keys[0], "[[status=400]] failed")[2]["x-remit-exchange"],
        anywhere.entries("DISPATCH", "")[0].id if anywhere.entries("DISPATCH", "") else "LED-ffff",
    ]
    for other in others:
        first = ask(anywhere, keys[0], "poisoned")[2]["x-remit-exchange"]
        _change(anywhere, "UPDATE idempotency SET exchange_entry_id = ? WHERE token = 'cached' "
                "AND exchange_entry_id = ?", (other, first))  # fmt: skip
        assert not is_cached(ask(anywhere, keys[0], "poisoned"))
        _change(anywhere, "DELETE FROM idempotency WHERE token = ?", ("cached",))


def test_an_answer_ages_and_a_revoked_key_gets_nothing(anywhere: Served, keys: list[Any]) -> None:
    ask(anywhere, keys[0], "aging")
    assert is_cached(ask(anywhere, keys[0], "aging"))
    _change(anywhere, "UPDATE idempotency SET until_ms = 1 WHERE token = ?", ("cached",))
    assert not is_cached(ask(anywhere, keys[0], "aging"))
    with KeyStore(anywhere.ledger) as store:
        made = store.create(KEYS[2], role="agent", models=())
    TokenBudgeter(anywhere.ledger).allocate(BudgetScope(key_id=made.key_id), token_limit=10**9)
    until(lambda: ask(anywhere, made, "revoked")[0] == 200)
    assert is_cached(ask(anywhere, made, "revoked"))
    anywhere.revoke(made)
    until(lambda: ask(anywhere, made, "revoked")[0] == 401)


def _cached_root(place: Path) -> Path:
    root = new_root(place)
    with (root / "remit.toml").open("a") as file:
        file.write(
            '\n[gateway.answer_cache]\ncontracts = ["PRC-EXECUTE-001"]\n[budget]\nmode = "off"\n'
        )
    return root


def test_an_erasure_during_a_hit_wins(tmp_path: Path) -> None:
    model = ScriptedModel("First.", "Second.")
    with Runtime.open(_cached_root(tmp_path / "root"), providers={"scripted": model}) as runtime:
        asked = prompt_request(
            contract_id="PRC-EXECUTE-001", session_id="SES-RACE0001", work_order_id=""
        )
        first = runtime.gateway.route(asked)
        again = runtime.gateway.route(asked)
        assert again.replayed, again.error_message
        cache: Any = runtime.gateway._path._attempts.cache
        find = cache.find

        async def find_late(*arguments: Any) -> Any:
            found = await find(*arguments)
            assert found is not None
            runtime.ledger.erase(first.exchange_entry_id, reason="asked")
            return found

        cache.find = find_late
        answer = runtime.gateway.route(asked)
        assert answer.content == "Second."
        assert not answer.replayed
        assert "First." not in str([e.metadata for e in runtime.ledger.query(
            session_id="SES-RACE0001", after=first.exchange_entry_id)])  # fmt: skip
        assert len(model.requests) == 2
        assert runtime.ledger.verify().verified
