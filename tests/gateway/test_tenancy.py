"""Nobody works in another's session, nor is answered from another's record."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from remit.gateway import Call, Choice, LLMGateway, Model, PromptRequest, default_session
from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.exchange import ModelCapabilities
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers import Body, MockProvider
from remit.providers.wire import CHAT
from tests.support.requests import prompt_request

_PLANNED = {"session_id": "SES-PLANNED1", "work_order_id": "WO-LATER-1"}

ANN = Identity("ann", "agent", key_id="KEY-ANN")
BOB = Identity("bob", "agent", key_id="KEY-BOB")


@pytest.fixture
def gateway(ledger: LedgerClient) -> LLMGateway:
    budgeter = TokenBudgeter(ledger)
    for identity in (ANN, BOB):
        budgeter.allocate(BudgetScope(key_id=identity.key_id), limits=BudgetLimits(tokens=10**6))
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    return gateway


async def _code(
    gateway: LLMGateway, who: Identity, session_id: str, order: str = "", **more: Any
) -> str | None:
    """The error code of a call in a session and an order."""
    given = {"max_tokens": 500, "session_id": session_id, "work_order_id": order, **more}
    return (await gateway.aroute(prompt_request(**given), identity=who)).error_code


def _again(ledger: LedgerClient) -> LLMGateway:
    """A process that knows nothing but the record."""
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    return gateway


async def test_a_session_is_the_first_keys(gateway: LLMGateway, ledger: LedgerClient) -> None:
    assert await _code(gateway, ANN, "SES-OFANN001") is None
    assert await _code(gateway, BOB, "SES-OFANN001") == "SESSION_NOT_YOURS"
    assert await _code(gateway, ANN, "SES-OFANN001") is None
    assert len(ledger.read_by_event_type("DISPATCH")) == 2
    assert await _code(_again(ledger), BOB, "SES-OFANN001") == "SESSION_NOT_YOURS"


async def test_the_runtimes_own_sessions_and_orders_are_closed_to_keys(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    for event_type, names in (
        ("SESSION_START", {"session_id": "SES-RUNTIME1"}),
        ("WO_PLANNED", {"session_id": "SES-RUNTIME2", "work_order_id": "WO-PLANNED-1"}),
    ):
        entry = LedgerEntry(event_type, "x", event_type, "", metadata={"provenance": names})
        ledger.write(entry)
    assert await _code(gateway, ANN, "SES-RUNTIME1") == "SESSION_NOT_YOURS"
    assert await _code(gateway, ANN, "SES-ANNSOWN1", "WO-PLANNED-1") == "SESSION_NOT_YOURS"


async def test_a_token_for_one_session_works_in_no_other(gateway: LLMGateway) -> None:
    token = Identity("ann", "agent", key_id="KEY-ANN", session_id="SES-TOKEN001",
                     work_order_id="WO-1")  # fmt: skip
    assert await _code(gateway, token, "SES-TOKEN001", "WO-1") is None
    assert await _code(gateway, token, "SES-OTHER001", "WO-1") == "AUTH_ERROR"
    assert await _code(gateway, token, "SES-TOKEN001", "WO-2") == "AUTH_ERROR"


async def test_a_token_is_held_to_its_keys_agents_and_tiers_where_it_names_none(
    gateway: LLMGateway,
) -> None:
    for narrow in ({"tiers": ("hot",)}, {"agents": ("another",)}):
        key = Identity("ann", "agent", key_id="KEY-ANN", **narrow)
        token = Identity("ann", "agent", key_id="KEY-ANN", within=key)
        assert await _code(gateway, token, "SES-NARROW01", "WO-1", tier="ho1") == "AUTH_ERROR"


async def test_names_without_keys_do_not_share_recorded_answers(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    TokenBudgeter(ledger).allocate(BudgetScope("SES-SHARED01"), 10**6)
    request = prompt_request(max_tokens=500, session_id="SES-SHARED01", idempotency_key="one")
    first, second = (Identity(name, "operator") for name in ("a", "b"))
    assert not (await gateway.aroute(request, identity=first)).replayed
    assert (await gateway.aroute(request, identity=first)).replayed
    assert not (await gateway.aroute(request, identity=second)).replayed


async def test_of_two_keys_that_race_for_a_session_one_has_it(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    for number in range(10):
        request = prompt_request(
            max_tokens=500, session_id=f"SES-RACE{number:04}", work_order_id="WO-1"
        )
        calls = [gateway.aroute(request, identity=who) for who in (ANN, BOB) * 4]
        codes = Counter([response.error_code for response in await asyncio.gather(*calls)])
        assert codes == {None: 4, "SESSION_NOT_YOURS": 4}
    dispatches = ledger.read_by_event_type("DISPATCH")
    rejections = ledger.read_by_event_type("PROMPT_REJECTED")
    assert (len(dispatches), len(rejections)) == (40, 40)
    assert ledger.select("SELECT count(*) FROM in_flight") == [(0,)]
    reserved = TokenBudgeter(ledger).status(BudgetScope(key_id="KEY-BOB"))[0].reserved_tokens
    assert reserved == 0


async def test_an_order_that_is_planned_between_two_calls_is_closed_to_the_second(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    assert await _code(gateway, ANN, "SES-OFANN002", "WO-LATER-1") is None
    ledger.write(LedgerEntry("WO_PLANNED", "x", "PLANNED", "", metadata={"provenance": _PLANNED}))
    assert await _code(gateway, ANN, "SES-OFANN002", "WO-LATER-1") == "SESSION_NOT_YOURS"


async def test_a_session_in_which_an_operator_calls_at_once_is_closed_to_keys(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    operator = Identity("op", "operator", key_id="KEY-ANN")
    for number in range(10):
        request = prompt_request(
            max_tokens=500, session_id=f"SES-BOTH{number:04}", work_order_id=""
        )
        first, second = await asyncio.gather(
            gateway.aroute(request, identity=operator), gateway.aroute(request, identity=BOB)
        )
        assert first.error_code is None  # whoever operates the root may call everywhere
        dispatched = [
            entry.id for entry in ledger.query(event_type="DISPATCH", session_id=request.session_id)
        ]
        if second.error_code is None:  # then it came first
            assert dispatched == [second.dispatch_entry_id, first.dispatch_entry_id]
        else:
            assert second.error_code == "SESSION_NOT_YOURS"
            assert dispatched == [first.dispatch_entry_id]


async def test_whose_session_it_is_is_said_before_what_else_is_wrong(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    assert await _code(gateway, ANN, "SES-OFANN003") is None
    for changes in (
        {"provider_id": "nobody", "model_id": "m"},
        {"max_tokens": 10**9},
        {"idempotency_key": "one"},
    ):
        assert await _code(gateway, BOB, "SES-OFANN003", **changes) == "SESSION_NOT_YOURS"


async def test_a_key_that_was_refused_its_session_can_be_used_elsewhere_at_once(
    gateway: LLMGateway,
) -> None:
    key = {"idempotency_key": "one"}
    assert await _code(gateway, ANN, "SES-OFANN004", **key) is None
    assert await _code(gateway, BOB, "SES-OFANN004", **key) == "SESSION_NOT_YOURS"
    own = prompt_request(
        max_tokens=500, session_id="SES-OFBOB004", work_order_id="", idempotency_key="one"
    )
    answered = await gateway.aroute(own, identity=BOB)
    assert (answered.error_code, answered.replayed) == (None, False)


class _Route:
    """A chooser with one route, of one model."""

    def __init__(self) -> None:
        self.asked = 0

    def knows(self, name: str) -> bool:
        return name == "auto"

    def named(self, name: str) -> tuple[str, str] | None:
        return None

    async def choose(self, call: Call) -> Choice:
        self.asked += 1
        return Choice([Model("mock", "mock-model-1", "mock-model-1")], "auto")

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        return ModelCapabilities()


async def test_a_router_hears_nothing_of_anothers_session(gateway: LLMGateway) -> None:
    route = _Route()
    gateway.register_router(route)
    for who, code in ((ANN, None), (BOB, "SESSION_NOT_YOURS")):
        assert await _code(gateway, who, "SES-ROUTED01", "WO-1", model_id="auto") == code
        assert route.asked == 1


@pytest.mark.parametrize("mode", ["enforce", "warn", "off"])
async def test_a_session_is_closed_whatever_budgets_do(ledger: LedgerClient, mode: Any) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope(key_id="KEY-BOB"), limits=BudgetLimits(tokens=1))
    budgeter.allocate(BudgetScope(key_id="KEY-ANN"), limits=BudgetLimits(tokens=10**6))
    gateway = LLMGateway(ledger, budgeter, dev_mode=True, budget_mode=mode)
    gateway.register_provider("mock", MockProvider())
    assert await _code(gateway, ANN, "SES-OFANN005") is None
    assert await _code(gateway, BOB, "SES-OFANN005") == "SESSION_NOT_YOURS"
    assert ledger.read_by_event_type("BUDGET_WARNING") == []
    assert len(ledger.read_by_event_type("DISPATCH")) == 1


async def test_a_default_session_is_its_keys_before_it_is_begun(ledger: LedgerClient) -> None:
    """Its id can be guessed: who names it first must not have it."""
    one, two = (Identity("x", "agent", key_id=f"KEY-{name * 8}") for name in ("A1", "B2"))
    gateway = LLMGateway(ledger, None, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    for day in ("20261123", "20991231"):
        request = prompt_request(session_id=default_session(two, day), work_order_id="")
        refused = await gateway.aroute(request, identity=one)
        assert refused.error_code == "SESSION_NOT_YOURS"
        assert (await gateway.aroute(request, identity=two)).error_code is None
        again = await gateway.aroute(request, identity=one)
        assert again.error_message == refused.error_message, "it tells whether there is one"
    # A user's second key goes on with what the first began.
    first, second = (replace(who, user_id="ann") for who in (one, two))
    request = prompt_request(session_id=default_session(first, "20261124"), work_order_id="")
    assert (await gateway.aroute(request, identity=second)).error_code == "SESSION_NOT_YOURS"
    for who in (first, second):
        assert (await gateway.aroute(request, identity=who)).error_code is None


async def test_a_work_order_is_the_first_keys(gateway: LLMGateway, ledger: LedgerClient) -> None:
    def call(session_id: str, order: str = "WO-MINE") -> PromptRequest:
        return prompt_request(max_tokens=500, session_id=session_id, work_order_id=order)

    assert await _code(gateway, ANN, "SES-OFANN001", "WO-MINE") is None
    assert await _code(gateway, ANN, "SES-OFANN002", "WO-MINE") is None
    used = await gateway.aroute(call("SES-OFBOB001"), identity=BOB)
    assert used.error_code == "SESSION_NOT_YOURS"
    entry = LedgerEntry("WO_PLANNED", "x", "x", "", metadata={"work_order_id": "WO-PLANNED-2"})
    ledger.write(entry)
    planned = await gateway.aroute(call("SES-OFBOB001", "WO-PLANNED-2"), identity=BOB)
    assert planned.error_message == used.error_message, "it tells whose it is"
    assert await _code(gateway, BOB, "SES-OFBOB001", "WO-OTHER") is None
    assert await _code(_again(ledger), BOB, "SES-OFBOB001", "WO-MINE") == "SESSION_NOT_YOURS"


async def test_an_erased_answer_is_not_given_again(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    request = prompt_request(
        max_tokens=500, session_id="SES-ERASED01", work_order_id="", idempotency_key="one"
    )
    first = await gateway.aroute(request, identity=ANN)
    assert (await gateway.aroute(request, identity=ANN)).replayed
    assert not (
        await gateway.aroute(replace(request, session_id="SES-OFBOB009"), identity=BOB)
    ).replayed
    ledger.erase(first.exchange_entry_id, reason="asked for", requested_by="ann")
    erased = await gateway.aroute(request, identity=ANN)
    assert (erased.error_code, erased.content) == ("IDEMPOTENCY_ERASED", "")
    assert "was erased" in (erased.error_message or "")


async def test_a_call_like_an_admitted_one_is_held_to_all_that_differs(
    gateway: LLMGateway, ledger: LedgerClient
) -> None:
    raw = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}'
    body = Body.read(CHAT, raw)
    request = prompt_request(
        prompt="", body=body, model_id="mock/m", session_id="SES-OFANN001",
        max_tokens=None, temperature=None, work_order_id="", provider_id=None,
    )  # fmt: skip
    for _ in range(2):
        assert (await gateway.aroute(request, identity=ANN)).error_code is None
    for code, identity, changes in (
        ("SESSION_NOT_YOURS", BOB, {}),
        ("SESSION_NOT_YOURS", ANN, {"work_order_id": "WO-SES-OFBOB001-1"}),
        ("INVALID_INPUT", ANN, {"temperature": 9.0}),
        ("INVALID_INPUT", ANN, {"max_tokens": 0}),
        ("INVALID_INPUT", ANN, {"agent_id": "\x00"}),
        ("INVALID_INPUT", ANN, {"input_schema": {"type": "object", "required": ["x"]}}),
        ("AUTH_ERROR", ANN, {"for_key_id": "KEY-BOB"}),
        ("AUTH_ERROR", replace(ANN, tiers=("hot",)), {}),
        ("AUTH_ERROR", replace(ANN, agents=("another",)), {}),
        ("AUTH_ERROR", replace(ANN, role="auditor"), {}),
    ):
        changed = replace(request, **changes)
        refused = await gateway.aroute(changed, identity=identity)
        assert refused.error_code == code, (code, changes)
    assert (await gateway.aroute(request, identity=ANN)).error_code is None
    assert len(ledger.read_by_event_type("DISPATCH")) == 3
