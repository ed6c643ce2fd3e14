"""The router's tools over the real router, with a provider that is a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from remit.gateway import LLMGateway
from remit.gateway.auth import KeyStore, NewKey
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import Transaction
from tests.server.mcp.calls import ok, wrong
from tests.server.mcp.running import Served, serving
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.upstream import upstream

REMIT = (sys.executable, "-m", "remit")


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """The environment in which there is a model to ask."""
    with upstream() as running:
        yield {"OPENAI_BASE_URL": f"{running.url}/v1", "OPENAI_API_KEY": "sk-upstream-openai"}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> Iterator[Served]:
    """A server over the real router."""
    root = new_root(tmp_path_factory.mktemp("routed") / "root")
    with serving(root, command=REMIT, env=env) as served:
        yield served


def _key(served: Served, *, tokens: int = 1_000_000, **more: Any) -> NewKey:
    """A key of an agent with a budget."""

    def limit(tx: Transaction, key_id: str) -> dict[str, Any]:
        budgeter.allocate(BudgetScope(key_id=key_id), limits=BudgetLimits(tokens), tx=tx)
        return {}

    with KeyStore(served.ledger) as keys:
        budgeter = TokenBudgeter(served.ledger)
        return keys.create(f"k{tokens}{len(keys.list())}", in_transaction=limit, **more)


def _spent(served: Served, key: NewKey) -> int:
    return TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))[0].spent_tokens


async def test_a_prompt_is_routed_and_explained(real: Served) -> None:
    key = _key(real, agents=["scout"])
    async with real.client(key.key) as client:
        scored = await ok(client, "router_score", prompt="Say hello.")
        told = await ok(client, "router_route", prompt="Say hello.", max_tokens=20)
        assert told["model_id"] == scored["chain"][told["fallback_attempts"]]
        assert told["response"]
        assert told["scores"] == scored["scores"]
    assert _spent(real, key) > 0
    async with real.client() as client:
        for name in ("decision_id", "decision_entry_id", "exchange_entry_id"):
            explained = await ok(client, "router_explain", decision=told[name])
            assert explained["decision_id"] == told["decision_id"]
            assert explained["chosen_model_id"] == told["model_id"]
            assert explained["agent_id"] == "scout"
            again = await ok(client, "router_explain", **{name: told[name]})
            assert again == explained
        assert "Pass the decision_id" in await wrong(client, "router_explain")
        sessions = (await ok(client, "list_sessions"))["sessions"]
        (found,) = [one for one in sessions if one["session_id"] == told["session_id"]]
        assert (found["agent_id"], found["turns"], found["ended"]) == ("scout", 0, False)
        assert await ok(client, "trace_prompt_journey", session_id=told["session_id"])
        assert "no decision 'DEC-0'" in await wrong(client, "router_explain", decision="DEC-0")
        status = await ok(client, "router_status")
        assert "auto" in [route["name"] for route in status["routes"]]
        assert told["model_id"] in [model["model_id"] for model in status["models"]]
    exchange = real.ledger.read(told["exchange_entry_id"])
    assert exchange.metadata["key_id"] == key.key_id
    assert exchange.metadata["agent_id"] == "scout"
    decision = real.ledger.read(told["decision_entry_id"])
    assert json.loads(decision.metadata["content"])["chosen_model_id"] == told["model_id"]
    assert real.ledger.verify().verified


async def test_an_explanation_hides_a_secret(real: Served) -> None:
    secret = f"sk-{'Ab3' * 12}"  # A key that a client put into the field of the model.
    gateway = LLMGateway(real.ledger, dev_mode=True)
    answer = gateway.route(prompt_request(model_id=f"anthropic/{secret}"))
    recorded = real.ledger.read(answer.exchange_entry_id)
    assert secret in str(recorded)
    async with real.client() as client:
        explained = await ok(client, "router_explain", decision=recorded.id)
    assert explained["call"]["entry_id"] == recorded.id
    assert secret not in str(explained)


async def test_a_keys_limits_hold(real: Served) -> None:
    poor = _key(real, tokens=5)
    async with real.client(poor.key) as client:
        assert await wrong(client, "router_route", prompt="Say hello.", max_tokens=20)
    assert _spent(real, poor) == 0
    narrow = _key(real, models=["no-such-model"])
    async with real.client(narrow.key) as client:
        told = await wrong(client, "router_route", prompt="Say hello.", max_tokens=20)
        assert "may not use any model" in told
        assert "may not use any model" in await wrong(client, "router_score", prompt="Say hello.")
    assert _spent(real, narrow) == 0
    first, second = _key(real), _key(real)
    async with real.client(first.key) as client:
        await ok(client, "router_route", prompt="Hello.", session_id="SES-FIRST1", max_tokens=20)
    async with real.client(second.key) as client:
        told = await wrong(
            client, "router_route", prompt="Hello.", session_id="SES-FIRST1", max_tokens=20
        )
        assert told
    assert _spent(real, second) == 0


async def test_a_decision_under_anothers_session_is_not_read(real: Served) -> None:
    """Sessions may have any name; a task of that name is not another key's to begin."""
    first, second = _key(real), _key(real)
    async with real.client(first.key) as client:
        await ok(client, "router_route", prompt="Hello.", session_id="SES-SECOND1", max_tokens=20)
    async with real.client(second.key) as client:
        assert "belongs to another key" in await wrong(
            client, "thought_record", type="plan", task_id="SES-SECOND1", content="x"
        )
        assert "may not read tasks of other keys" in await wrong(
            client, "thought_record_list", task_id="SES-SECOND1"
        )
