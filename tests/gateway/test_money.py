"""Money: no overspend ever, every bill on record, and the ledger alone tells the same.

The long form of the first test is ``python -m benchmarks.overspend``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.overspend import overspend
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from remit.gateway import (
    CircuitBreakerConfig,
    LeaseLostError,
    LLMGateway,
    RouteOutcome as Outcome,
    RouterConfig,
)
from remit.gateway.auth import Identity, KeyStore
from remit.gateway.budget import (
    BudgetLimits,
    BudgetScope,
    BudgetStatus,
    TokenBudgeter,
    TokenUsage,
    audit_budgets,
)
from remit.gateway.leases import Owner
from remit.kernel.exchange import PromptResponse
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderRequest, ProviderResponse
from remit.providers.prices import PriceTable, Usage
from tests.support.clocks import shared_clock
from tests.support.postgres import PostgresServer
from tests.support.requests import prompt_request
from tests.support.soak import is_soak
from tests.support.stores import empty, outside

SESSION = BudgetScope("SES-TESTTEST")
CHEAP, DEAR = "gpt-4o-mini", "gpt-4"
USD = 10**9
_numbers = itertools.count()


@pytest.fixture
def budgeter(ledger: LedgerClient) -> TokenBudgeter:
    return TokenBudgeter(ledger)


def _gateway(
    ledger: LedgerClient, budgeter: TokenBudgeter | None, provider: Any, mode: Any = "enforce",
    **more: Any,
) -> LLMGateway:  # fmt: skip
    given: dict[str, Any] = {
        "default_provider": "openai", "default_model": DEAR, "retry_base_ms": 1, "retry_max_ms": 1,
        "max_retries": 0, "circuit_breaker": CircuitBreakerConfig(failure_threshold=10**6),
        **more,
    }  # fmt: skip
    gateway = LLMGateway(ledger, budgeter, RouterConfig(**given), dev_mode=True, budget_mode=mode)
    for name in ("openai", "anthropic", "unknown"):
        gateway.register_provider(name, provider)
    return gateway


def _answer(tokens_in: int = 10, tokens_out: int = 5, **more: Any) -> ProviderResponse:
    return ProviderResponse("x", DEAR, tokens_in, tokens_out, **more)


def _bill(tokens_in: int, tokens_out: int, model: str = DEAR, **more: int) -> int:
    price = PriceTable.shipped().find("openai", model)
    assert price is not None
    classes = ("cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
    cached, written, reasoning = [more.get(name, 0) for name in classes]
    return price.cost_nano(Usage(tokens_in, tokens_out, cached, written, reasoning, 0))


def _of(budgeter: TokenBudgeter, scope: BudgetScope = SESSION) -> BudgetStatus:
    (state,) = [one for one in budgeter.status(scope) if one.scope == scope.key]
    return state


def _exchange(ledger: LedgerClient, response: PromptResponse) -> dict[str, Any]:
    entry = ledger.read(response.exchange_entry_id)
    assert entry.event_type == "EXCHANGE"
    return dict(entry.metadata)


# -- the cap, on real servers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "kill"), [("sqlite", False), ("sqlite", True), ("postgresql", True)]
)
def test_calls_at_once_on_two_servers_stay_under_one_cap(
    tmp_path: Path, store: str, kill: bool, request: pytest.FixtureRequest
) -> None:
    """With nobody killed, no call is left over; with one of the two servers killed, some are."""
    on_server = store == "postgresql"
    database = request.getfixturevalue("postgres").database() if on_server else ""
    for number in range(3):
        root = tmp_path / f"root{number}"
        report = overspend(root, calls=150, cap_usd=0.75, database=database, kill=kill)
        assert report.problems == [], str(report)
        assert report.figures["worth USD"] > 2
        assert report.figures["live spent USD"] > 0.5
        if report.figures["orphans"] or not kill:
            break
        if database:  # the kill fell between two calls; once more, from the beginning
            database = request.getfixturevalue("postgres").database()
    assert (report.figures["orphans"] > 0) == kill


# -- prices --------------------------------------------------------------------------------------


def test_a_model_without_a_price_is_refused_under_a_cap_in_dollars(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=USD))
    provider = MockProvider()
    request = prompt_request(provider_id="unknown", model_id="gpt-4")  # of another provider
    response = _gateway(ledger, budgeter, provider).route(request)
    assert (response.outcome, response.error_code) == (Outcome.REJECTED, "UNPRICED")
    assert provider.call_count == 0


def test_what_has_no_price_is_counted_and_never_recorded_as_free(ledger: LedgerClient) -> None:
    budgeter = TokenBudgeter(ledger, allow_unpriced=True)
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=USD))
    cut = ProviderError("SERVER_ERROR", "cut", maybe_billed=True)
    script: list[ProviderResponse | Exception] = [_answer(), cut]
    gateway = _gateway(ledger, budgeter, MockProvider(responses=script))
    for certainty in ("unpriced", "upper_bound"):  # how far the usage is known
        response = gateway.route(prompt_request(provider_id="unknown", model_id="m"))
        told = _exchange(ledger, response)
        assert told["cost_certainty"] == certainty
        assert "cost_usd" not in told
        assert "price_version" in told
        assert not response.cost_known
    state = _of(budgeter)
    assert (state.unpriced_calls, state.spent_nano, state.reserved_nano) == (2, 0, 0)
    assert state.spent_tokens > 15
    assert audit_budgets(ledger).equal


def test_a_bill_above_its_bound_is_counted_whole_and_raises_the_bound(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=10 * USD))
    provider = MockProvider(responses=[_answer(10, 500), _answer()])
    gateway = _gateway(ledger, budgeter, provider)
    before = gateway.cost_bound(prompt_request(), "openai", DEAR)
    assert before is not None
    told = _exchange(ledger, gateway.route(prompt_request()))
    assert told["over_bound"] == ["tokens", "cost"]
    raised = told["raised_bound"]
    assert (raised["provider_id"], raised["model_id"]) == ("openai", DEAR)
    assert _of(budgeter).spent_nano == _bill(10, 500) <= before * raised["percent"] / 100
    # The scope goes on while its limit stands, at the raised bound.
    assert gateway.route(prompt_request()).outcome is Outcome.SUCCESS
    left = 10 * USD - _of(budgeter).spent_nano
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=_of(budgeter).spent_nano + 2 * before))
    assert 2 * before < left
    assert gateway.route(prompt_request()).error_code == "BUDGET_EXHAUSTED"
    assert provider.call_count == 2
    assert audit_budgets(ledger).equal


async def test_usage_beyond_the_models_window_is_charged_at_the_bound_and_raises_nothing(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=USD))
    other = BudgetScope("SES-OTHEROTHER")
    budgeter.allocate(other, limits=BudgetLimits(nano=USD))
    most = 2**53 - 1

    class Mad:
        async def asend(
            self, request: ProviderRequest, *, on_text: object = None
        ) -> ProviderResponse:
            await asyncio.sleep(0.05)
            return _answer(most, most) if request.temperature else _answer()

    gateway = _gateway(ledger, budgeter, Mad())
    requests = [
        prompt_request(temperature=1.0),
        *(prompt_request(session_id=other.session_id) for _ in range(5)),
    ]
    responses = await asyncio.gather(*map(gateway.aroute, requests))
    assert [response.outcome for response in responses] == [Outcome.SUCCESS] * 6
    bound = gateway.cost_bound(prompt_request(), "openai", DEAR)
    assert _of(budgeter).spent_nano == bound
    assert _of(budgeter, other).spent_nano == 5 * _bill(10, 5)
    assert (await gateway.aroute(prompt_request())).outcome is Outcome.SUCCESS
    assert audit_budgets(ledger).equal


def test_a_dearer_fallback_reserves_again_and_is_refused_where_it_does_not_fit(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    request = prompt_request(model_id=CHEAP, max_tokens=1_000)
    cap = 10_000_000  # a cent: the cheap one fits many times, the dear one not once
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=cap))
    provider = MockProvider(responses=[ProviderError("SERVER_ERROR", "down")])
    gateway = _gateway(ledger, budgeter, provider, fallbacks={CHEAP: [f"openai/{DEAR}"]})
    response = gateway.route(request)
    assert (response.outcome, response.error_code) == (Outcome.ERROR, "SERVER_ERROR")
    assert [asked.model_id for asked in provider.requests] == [CHEAP]
    assert (_of(budgeter).spent_nano, _of(budgeter).reserved_nano) == (0, 0)
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=20 * cap))
    provider = MockProvider(responses=[ProviderError("SERVER_ERROR", "down"), _answer()])
    gateway = _gateway(ledger, budgeter, provider, fallbacks={CHEAP: [f"openai/{DEAR}"]})
    assert gateway.route(request).outcome is Outcome.SUCCESS
    assert [asked.model_id for asked in provider.requests] == [CHEAP, DEAR]
    assert _of(budgeter).spent_nano == _bill(10, 5)
    assert _of(budgeter).turns == 2  # one a call, however often it was sent
    assert audit_budgets(ledger).equal


# -- whose money ---------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["user_id", "team_id", "organisation_id"])
async def test_a_cap_is_shared_by_all_keys_below_it(
    ledger: LedgerClient, budgeter: TokenBudgeter, owner: str
) -> None:
    cap = 20 * _bill(10, 100)
    whose: dict[str, Any] = {owner: "both"}
    budgeter.allocate(BudgetScope(**whose), limits=BudgetLimits(nano=cap))
    identities = _identities(ledger, 2, **whose)
    answers = [_answer(10, 100) for _ in range(200)]
    gateway = _gateway(ledger, budgeter, MockProvider(responses=answers))
    responses = await asyncio.gather(
        *(
            gateway.aroute(
                prompt_request(
                    max_tokens=100, session_id=f"SES-SHARED{number % 2:02}", work_order_id=""
                ),
                identity=identities[number % 2],
            )
            for number in range(200)
        )
    )
    outcomes = {response.error_code for response in responses}
    assert outcomes == {None, "BUDGET_EXHAUSTED"}
    state = _of(budgeter, BudgetScope(**whose))
    assert 0 < state.spent_nano <= cap
    paying = {
        entry.metadata["key_id"]
        for entry in ledger.query(event_type="EXCHANGE", with_content=False)
    }
    assert paying == {identity.key_id for identity in identities}
    audit = audit_budgets(ledger)
    assert audit.equal, audit.differences


def test_owners_without_a_key_are_rebuilt(ledger: LedgerClient, budgeter: TokenBudgeter) -> None:
    budgeter.allocate(BudgetScope(user_id="u"), limits=BudgetLimits(nano=USD))
    gateway = _gateway(ledger, budgeter, MockProvider())
    identity = Identity("somebody", "agent", user_id="u")
    asyncio.run(gateway.aroute(prompt_request(), identity=identity))
    audit = audit_budgets(ledger)
    assert audit.equal, audit.differences


@pytest.mark.parametrize(
    "limits", [BudgetLimits(requests_per_minute=1), BudgetLimits(tokens_per_minute=300)]
)
def test_limits_a_minute_say_when_to_come_again(
    ledger: LedgerClient, budgeter: TokenBudgeter, limits: BudgetLimits
) -> None:
    budgeter.allocate(SESSION, limits=limits)
    gateway = _gateway(ledger, budgeter, MockProvider(input_tokens=100, output_tokens=100))
    responses = [gateway.route(prompt_request()) for _ in range(4)]
    assert responses[0].outcome is Outcome.SUCCESS
    refused = [one for one in responses if one.outcome is Outcome.REJECTED]
    assert len(refused) >= 2  # a minute may have begun meanwhile
    for one in refused:
        assert one.error_code == "RATE_LIMITED"
        assert one.retry_after_s is not None
        assert 0 < one.retry_after_s <= 60


# -- the ledger alone ----------------------------------------------------------------------------


class _Scripted:
    """Does what it is told next; its own process may be killed."""

    def __init__(self, script: Sequence[tuple[str, int]], kill: Any) -> None:
        self._script = list(script)
        self._kill = kill

    async def asend(self, request: ProviderRequest, *, on_text: object = None) -> ProviderResponse:
        kind, size = self._script.pop(0) if self._script else ("answer", 1)
        match kind:
            case "answer":
                return _answer(size, size // 2)
            case "too much":
                return _answer(size, 10_000 + size)
            case "silent":
                return _answer(0, 0, usage_reported=False)
            case "cached":
                return _answer(size + 5, 3, cached_input_tokens=size, reasoning_tokens=2)
            case "unbilled":
                raise ProviderError("RATE_LIMITED", "no", True)
            case "cut":
                raise ProviderError("SERVER_ERROR", "cut", True, maybe_billed=True)
            case "bad":
                raise ProviderError("INVALID_REQUEST", "no")
            case "broken":
                raise RuntimeError("broken")
            case "cancelled":
                raise asyncio.CancelledError
            case _:
                self._kill()
                return _answer(size, 1)


_KINDS = ("answer", "answer", "too much", "silent", "cached", "unbilled", "cut", "bad", "broken",
          "cancelled", "killed")  # fmt: skip
_MODELS = (("openai", DEAR), ("openai", CHEAP), ("anthropic", "claude-3-opus"), ("unknown", "m"))
_any_limits = st.builds(
    BudgetLimits,
    st.sampled_from([None, None, 2_000, 40_000]),
    st.sampled_from([None, None, 20_000_000, USD]),
    st.sampled_from([None, None, 3]),
    st.sampled_from([None, None, 4]),
    st.sampled_from([None, None, 5_000]),
    st.sampled_from([None, "day", "week", "month"]),
)
_step = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([3_600, 86_400, 30 * 86_400]), st.just(0)),
    st.tuples(st.just("call"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("call"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("call"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("allocate"), st.integers(0, 6), _any_limits),
    st.tuples(st.just("debit"), st.integers(0, 6), st.integers(0, 500)),
)


def _identities(ledger: LedgerClient, number: int, **owners: Any) -> list[Identity]:
    """Keys that were made, as the door knows them."""
    made = []
    with KeyStore(ledger) as keys:
        for _ in range(number):
            key = keys.create(f"key-{next(_numbers)}", **owners)
            made.append(Identity(key.name, "agent", key_id=key.key_id, **owners))
    return made


def _dead_owner() -> str:
    here = Owner.current()
    return Owner(here.host, here.boot, here.namespace, 2**22 + 1, "1", "dead").encode()


@pytest.mark.soak
@given(
    mode=st.sampled_from(["enforce", "enforce", "warn", "off"]),
    unpriced=st.booleans(),
    policy=st.sampled_from(["charge", "release"]),
    script=st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, 100)), max_size=25),
    steps=st.lists(_step, min_size=4, max_size=20),
    column=st.sampled_from(["spent_nano", "spent_tokens", "turns", "reserved_tokens",
                            "reserved_nano", "unpriced_calls", "window_number",
                            "nano_limit"]),
)  # fmt: skip
@settings(
    max_examples=400 if is_soak() else 20,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_ledger_alone_tells_what_was_spent(
    target: str, mode: str, unpriced: bool, policy: Any,
    script: list[tuple[str, int]], steps: list[tuple[str, int, Any]], column: str,
) -> None:  # fmt: skip
    empty(target)  # an audit reads it all, and there is one after each step
    clock = SimpleNamespace(now=time.time())
    with LedgerClient(target) as ledger, shared_clock(lambda: clock.now):
        _spend_and_audit(ledger, target, mode, unpriced, policy, script, steps, column, clock)


def _spend_and_audit(
    ledger: LedgerClient, target: str, mode: str, unpriced: bool, policy: Any,
    script: list[tuple[str, int]], steps: list[tuple[str, int, Any]], column: str, clock: Any,
) -> None:  # fmt: skip
    budgeter = TokenBudgeter(ledger, allow_unpriced=unpriced)
    n = next(_numbers)
    owners: dict[str, Any] = {"user_id": f"U{n}", "team_id": f"T{n}", "organisation_id": f"O{n}"}
    identities: list[Identity | None] = [None, None, *_identities(ledger, 2, **owners)]
    other = _gateway(ledger, budgeter, None, orphan_policy=policy)
    orders = {DEAR: [f"openai/{CHEAP}"], CHEAP: [f"openai/{DEAR}", "unknown/m"]}
    provider = _Scripted(script, other.recover)
    gateway = _gateway(ledger, budgeter, provider, mode, max_retries=1, fallbacks=orders)
    gateway.in_flight.stages.owner = _dead_owner()  # whatever it leaves can be settled at once
    key = identities[2]
    assert key is not None
    scopes = [
        BudgetScope(f"SES-{n}"),
        BudgetScope(f"SES-{n}", agent_id="agent-1"),
        BudgetScope(f"SES-{n}", "WO-1"),
        BudgetScope(f"SES-{n}", "WO-1", "agent-1"),
        BudgetScope(key_id=key.key_id, **owners),
        BudgetScope(user_id=f"U{n}"),
        BudgetScope(organisation_id=f"O{n}"),
    ]
    for kind, which, what in [("allocate", 0, BudgetLimits()), *steps]:
        if kind == "wait":
            clock.now += which
        elif kind == "allocate":
            budgeter.allocate(scopes[which], limits=what)
        elif kind == "debit":
            if budgeter.status(scopes[which]):
                cost = None if what % 3 == 0 else what
                budgeter.debit(scopes[which], TokenUsage(what, 1, cost_nano=cost))
        else:
            provider_id, model_id = _MODELS[what]
            request = prompt_request(
                session_id=f"SES-{n}", work_order_id=("", "WO-1")[which % 2],
                provider_id=provider_id, model_id=model_id,
            )  # fmt: skip
            call = gateway.aroute(request, identity=identities[which])
            with contextlib.suppress(LeaseLostError, asyncio.CancelledError):
                asyncio.run(call)
        audit = audit_budgets(ledger)
        assert audit.equal, audit.differences
        assert audit.held_calls == 0
    counts = ledger.count_by_event()
    ended = counts.get("EXCHANGE", 0) + counts.get("EXCHANGE_ORPHANED", 0)
    assert counts.get("DISPATCH", 0) == ended
    # What somebody changed past Remit is found, and mended from the ledger.
    before = [_without_minute(state) for state in budgeter.list()]
    outside(
        target,
        f"UPDATE budgets SET {column} = coalesce({column}, 0) + 1 WHERE scope = 'session:SES-{n}'",
    )
    audit = audit_budgets(ledger, repair=True)
    assert [(one.scope, one.field) for one in audit.differences] == [(f"session:SES-{n}", column)]
    assert audit_budgets(ledger).equal
    assert [_without_minute(state) for state in budgeter.list()] == before


def _without_minute(state: BudgetStatus) -> dict[str, Any]:
    return {
        name: getattr(state, name)
        for name in BudgetStatus.__slots__
        if not name.startswith("minute")
    }


def test_accounts_that_were_deleted_or_made_up_are_mended(
    ledger: LedgerClient, budgeter: TokenBudgeter, target: str
) -> None:
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=USD))
    gateway = _gateway(ledger, budgeter, MockProvider())
    gateway.route(prompt_request())
    before = [_without_minute(state) for state in budgeter.list()]
    for statement in (
        "DELETE FROM budgets",
        "INSERT INTO budgets (scope, token_limit) VALUES ('user:nobody', 5)",
    ):
        outside(target, statement)
        assert not audit_budgets(ledger).equal
        audit_budgets(ledger, repair=True)
        assert audit_budgets(ledger).equal
        assert [_without_minute(state) for state in budgeter.list()] == before


def test_calls_that_are_out_are_not_taken_for_a_difference(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=USD, turns=10))
    seen = []

    class Looks:
        def send(self, request: ProviderRequest) -> ProviderResponse:
            seen.append(audit_budgets(ledger))
            seen.append(audit_budgets(ledger, repair=True))
            return _answer()

    _gateway(ledger, budgeter, Looks()).route(prompt_request())
    assert [(audit.equal, audit.held_calls) for audit in seen] == [(True, 1)] * 2
    assert seen[0].held_tokens > 100
    assert audit_budgets(ledger).held_calls == 0


# -- a commit that fails -------------------------------------------------------------------------


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.database()
