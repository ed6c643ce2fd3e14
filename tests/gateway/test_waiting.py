"""Money that other calls only hold is waited for; money that is spent is not."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from typing import Any
from unittest import mock

import pytest

from remit.gateway import (
    KEY_ENDED,
    CircuitBreakerConfig,
    LLMGateway,
    RouteOutcome,
    RouterConfig,
)
from remit.gateway.budget import (
    Amount,
    BudgetLimits,
    BudgetRefusedError,
    BudgetScope,
    TokenBudgeter,
    audit_budgets,
)
from remit.gateway.budget.wait_queue import WaitingRoom
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.providers import MockProvider, ProviderError, ProviderRequest, ProviderResponse
from remit.routing import (
    Candidate,
    EnsembleOptions,
    FallbackChainExhaustedError,
    RouteOptions,
    aroute_request,
    create_thought_record_emitter,
)
from tests.support.requests import prompt_request
from tests.support.waiting import Waits

SESSION = BudgetScope("SES-TESTTEST")
USD = 10**9


def _gateway(ledger: LedgerClient, provider: Any, wait_ms: int = 30_000) -> LLMGateway:
    config = RouterConfig(
        default_provider="anthropic", default_model="claude-sonnet-4-5", budget_wait_ms=wait_ms
    )
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
    gateway.register_provider("anthropic", provider)
    return gateway


class _Talks:
    """Answers after a while; counts how many calls are out."""

    def __init__(self, seconds: float = 0.1, tokens: int = 3_000) -> None:
        self.seconds = seconds
        self.tokens = tokens
        self.out = self.most = self.calls = 0

    async def asend(self, request: ProviderRequest, *, on_text: object = None) -> ProviderResponse:
        self.calls += 1
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.out -= 1
        return ProviderResponse("x", request.model_id, 1_000, self.tokens)


async def test_four_calls_of_64000_tokens_under_five_dollars_are_all_answered(
    ledger: LedgerClient,
) -> None:
    """Each could cost 0.96 USD and more, and costs 0.05."""
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits.of(usd="1.50"))
    provider = _Talks()
    gateway = _gateway(ledger, provider)
    asked = [gateway.aroute(prompt_request(max_tokens=64_000)) for _ in range(4)]
    responses = await asyncio.gather(*asked)
    assert [one.outcome for one in responses] == [RouteOutcome.SUCCESS] * 4
    (state,) = keeper.status(SESSION)
    assert 0.15 * USD < state.spent_nano < 0.3 * USD
    assert (provider.most, state.reserved_nano) == (1, 0)
    assert audit_budgets(ledger).equal
    # With five dollars they are out at once.
    keeper.allocate(SESSION, limits=BudgetLimits.of(usd=5))
    responses = await asyncio.gather(
        *(gateway.aroute(prompt_request(max_tokens=64_000)) for _ in range(4))
    )
    assert [one.outcome for one in responses] == [RouteOutcome.SUCCESS] * 4
    assert keeper.status(SESSION)[0].spent_nano < 5 * USD
    assert provider.most > 1


async def test_while_a_call_waits_nothing_is_on_record_and_then_it_is_told_to_come_again(
    ledger: LedgerClient,
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    gateway = _gateway(ledger, provider := _Talks(), wait_ms=2_000)
    before = ledger.count()
    begun = time.monotonic()
    asked = asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    assert ledger.count() == before
    response = await asked
    assert 2 <= time.monotonic() - begun < 60
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "BUDGET_BUSY")
    assert response.retry_after_s
    assert (provider.calls, gateway.in_flight.waiting_room.waiting) == (0, 0)


async def test_a_call_that_waited_is_not_sent_to_a_circuit_that_opened_meanwhile(
    ledger: LedgerClient,
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.allocate(other := BudgetScope("SES-OTHER001"), limits=BudgetLimits(tokens=10_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    breaker = CircuitBreakerConfig(failure_threshold=1, poll_s=60)  # every permit is fresh
    config = RouterConfig("mock", "m", max_retries=0, circuit_breaker=breaker)
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
    provider = MockProvider(responses=[ProviderError("SERVER_ERROR", "down")])
    gateway.register_provider("mock", provider)
    asked = asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    failed = await gateway.aroute(prompt_request(session_id=other.session_id, max_tokens=500))
    assert failed.error_code == "SERVER_ERROR"
    await asyncio.to_thread(keeper.release, "held")
    refused = await asked
    assert (refused.outcome, refused.error_code) == (RouteOutcome.REJECTED, "CIRCUIT_OPEN")
    assert provider.call_count == 1


async def test_a_call_whose_key_ends_while_it_waits_is_recorded(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    talks = _Talks()
    gateway = _gateway(ledger, talks)
    for reason, recorded in ((KEY_ENDED, 1), (None, 0)):
        before = ledger.count()
        asked = asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=500)))
        while not gateway.in_flight.waiting_room.waiting:
            await asyncio.sleep(0.001)
        asked.cancel(*([reason] if reason else []))
        with pytest.raises(asyncio.CancelledError):
            await asked
        entries = [*ledger.query(limit=None)][before:]
        assert [one.event_type for one in entries] == ["PROMPT_REJECTED"] * recorded
        assert [one.metadata["error_code"] for one in entries] == ["AUTH_ERROR"] * recorded
    assert talks.calls == 0


@pytest.mark.parametrize("is_ensemble", [False, True])
async def test_a_routed_call_whose_key_ends_while_it_waits_is_recorded_once(
    ledger: LedgerClient, is_ensemble: bool
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    gateway = _gateway(ledger, talks := _Talks())
    models = [Candidate(n, "anthropic", {"general": 90}, served_as=f"m{n}") for n in ("a", "b")]
    options = RouteOptions(
        gateway, models,
        decision_emitter=create_thought_record_emitter(ledger, task_id="T", agent_id="agent-1"),
        mode="ensemble" if is_ensemble else "single", request=prompt_request(max_tokens=500),
        ensemble=EnsembleOptions(size=2),
    )  # fmt: skip
    before = ledger.count()
    asked = asyncio.ensure_future(aroute_request("Hello", options))
    while gateway.in_flight.waiting_room.waiting < 1 + is_ensemble:
        await asyncio.sleep(0.001)
    asked.cancel(KEY_ENDED)
    with pytest.raises(asyncio.CancelledError):
        await asked
    entries = [*ledger.query(limit=None)][before:]
    assert [one.metadata["error_code"] for one in entries] == ["AUTH_ERROR"]
    assert talks.calls == 0


async def test_a_refusal_that_is_being_committed_when_the_key_ends_is_recorded_once(
    ledger: LedgerClient,
) -> None:
    gateway = _gateway(ledger, _Talks())
    before, is_held, goes_on = ledger.count(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(tx: Transaction) -> None:
        loop.call_soon_threadsafe(is_held.set)
        goes_on.wait(60)

    held = ledger.submit(hold)
    await is_held.wait()
    with mock.patch.object(ledger, "submit", wraps=ledger.submit) as submit:
        asked = asyncio.ensure_future(gateway.aroute(prompt_request(provider_id="nowhere")))
        while not submit.called:
            await asyncio.sleep(0.001)
    asked.cancel(KEY_ENDED)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await held
    await ledger.submit([LedgerEntry("NOTE", "S", "D", "r")])
    entries = [*ledger.query(limit=None)][before:]
    codes = [one.metadata.get("error_code") for one in entries]
    assert codes == ["PROVIDER_NOT_FOUND", None]


async def test_money_that_is_spent_is_not_waited_for(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    gateway = _gateway(ledger, _Talks())
    waits = asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    response = await asyncio.wait_for(gateway.aroute(prompt_request(max_tokens=1_001)), 10)
    assert response.error_code == "BUDGET_EXHAUSTED"  # though others wait before it
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert gateway.in_flight.waiting_room.waiting == 0


async def test_another_process_settles_and_the_call_goes_on(
    ledger: LedgerClient, target: str
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=5_000))
    keeper.reserve(SESSION, "held", amount=Amount(4_900))
    gateway = _gateway(ledger, _Talks(0, 10))
    asked = asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    script = (
        "import sys\n"
        "from remit.gateway.budget import TokenBudgeter\n"
        "from remit.ledger import LedgerClient\n"
        "with LedgerClient(sys.argv[1]) as ledger:\n"
        "    TokenBudgeter(ledger).release('held')\n"
    )
    command = [sys.executable, "-c", script, target]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)
    response = await asyncio.wait_for(asked, 20)
    assert response.outcome is RouteOutcome.SUCCESS


async def test_many_calls_take_turns_and_none_is_lost(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000_000))
    keeper.reserve(SESSION, "held", amount=Amount(700_000), turns=0)
    gateway = _gateway(ledger, provider := _Talks(0.01, 100))
    asked = [
        asyncio.ensure_future(gateway.aroute(prompt_request(max_tokens=20_000))) for _ in range(60)
    ]
    await asyncio.sleep(0.1)
    gone = random.Random(1).sample(asked, 10)
    for one in gone:
        one.cancel()
    responses = await asyncio.gather(*asked, return_exceptions=True)
    kept = [one for one in responses if not isinstance(one, BaseException)]
    assert {one.outcome for one in kept} == {RouteOutcome.SUCCESS}
    assert len(kept) >= 50
    assert provider.most <= 300_000 // 20_000
    assert gateway.in_flight.waiting_room.waiting == 0
    keeper.release("held")
    assert keeper.status(SESSION)[0].reserved_tokens == 0
    assert audit_budgets(ledger).equal


# -- the room by itself ----------------------------------------------------------------------------


class _Pot:
    """Money on scopes, as a reservation would see it."""

    def __init__(self, room: WaitingRoom, free: dict[str, int]) -> None:
        self.room = room
        self.free = free
        self.least = dict(free)
        self.tries = 0
        self.served: list[int] = []

    async def take(self, number: int, scopes: list[str], amount: int) -> None:
        async def reserve(ahead: bool) -> None:
            self.tries += 1
            await asyncio.sleep(0)
            for scope in scopes:
                if ahead or self.free[scope] < amount:
                    raise BudgetRefusedError("BUDGET_BUSY", "busy", None, 1.0, scope)
            for scope in scopes:
                self.free[scope] -= amount
                self.least[scope] = min(self.least[scope], self.free[scope])

        await self.room.admit(scopes, reserve, Waits())
        self.served.append(number)

    def give(self, scopes: list[str], amount: int) -> None:
        for scope in scopes:
            self.free[scope] += amount
        self.room.freed(scopes)


async def test_first_come_first_served_also_where_a_later_one_would_fit() -> None:
    room = WaitingRoom(10_000)
    pot = _Pot(room, {"s": 5})
    tasks = [asyncio.ensure_future(pot.take(0, ["s"], 8))]
    await asyncio.sleep(0.02)
    for number in range(1, 30):
        tasks.append(asyncio.ensure_future(pot.take(number, ["s"], 1)))
        await asyncio.sleep(0.001)
    assert pot.served == []
    tries = pot.tries
    pot.give(["s"], 3)
    await tasks[0]
    for _ in range(29):
        await asyncio.sleep(0.001)
        pot.give(["s"], 1)
    await asyncio.gather(*tasks)
    assert pot.served == list(range(30))
    assert pot.tries - tries < 30 * 4  # one at a time is woken, not all


async def test_all_attempts_of_a_call_share_one_longest_wait() -> None:
    room = WaitingRoom(10_000)
    tries = 0

    async def reserve(ahead: bool) -> None:
        nonlocal tries
        tries += 1
        raise BudgetRefusedError("BUDGET_BUSY", "busy", None, 1.0, "s")

    with pytest.raises(BudgetRefusedError):
        await room.admit(["s"], reserve, Waits(10.0))
    assert (tries, room.waiting) == (1, 0)


async def test_a_call_that_has_waited_does_not_pass_others(ledger: LedgerClient) -> None:
    room = WaitingRoom(10_000)
    pot = _Pot(room, {"s": 5})
    first = asyncio.ensure_future(pot.take(0, ["s"], 8))
    while not room.waiting:
        await asyncio.sleep(0.001)

    async def reserve(ahead: bool) -> None:
        if ahead:
            raise BudgetRefusedError("BUDGET_BUSY", "busy", None, 1.0, "s")

    with pytest.raises(BudgetRefusedError):
        await room.admit(["s"], reserve, Waits(10.0))
    pot.give(["s"], 3)
    await first


async def test_a_routed_call_waits_once_for_money_and_not_once_for_each_model(
    ledger: LedgerClient,
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(SESSION, "held", amount=Amount(900))
    gateway = _gateway(ledger, _Talks(), wait_ms=100)
    waits: list[float] = []
    admit = gateway.in_flight.waiting_room.admit

    async def counted(scopes: Any, reserve: Any, call: Any) -> Any:
        waits.append(call.waited_s)
        return await admit(scopes, reserve, call)

    gateway.in_flight.waiting_room.admit = counted  # type: ignore[method-assign]
    models = [Candidate(name, "anthropic", {"general": 9}) for name in ("a", "b", "c")]
    options = RouteOptions(gateway, models, request=prompt_request(max_tokens=500))
    with pytest.raises(FallbackChainExhaustedError):
        await aroute_request("Hello", options)
    assert waits[0] == 0
    assert min(waits[1:]) >= 0.1
    assert len(waits) == 3


async def test_who_waits_on_one_scope_is_not_in_the_way_on_another() -> None:
    room = WaitingRoom(10_000)
    pot = _Pot(room, {"org": 100, "a": 0, "b": 100})
    blocked = asyncio.ensure_future(pot.take(0, ["org", "a"], 1))
    await asyncio.sleep(0.02)
    await asyncio.wait_for(pot.take(1, ["org", "b"], 1), 2)
    pot.give(["a"], 1)
    await asyncio.wait_for(blocked, 5)
