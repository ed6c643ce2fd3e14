"""Accounts of budgets: a model of them beside the real ones, whatever is done in whatever order."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from remit.gateway import InFlightCalls
from remit.gateway.budget import (
    Amount,
    BudgetLimits,
    BudgetRefusedError,
    BudgetScope,
    BudgetStatus,
    DebitResult,
    Hold,
    TokenBudgeter,
    TokenUsage,
    audit_budgets,
)
from remit.gateway.call_transactions import StartCall
from remit.gateway.leases import Owner
from remit.kernel.budget_windows import window_at
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from tests.support.clocks import shared_clock
from tests.support.soak import is_soak
from tests.support.stores import outside
from tests.support.waiting import Waits

_numbers = itertools.count()
_few = st.sampled_from([None, None, 301, 120, 61, 60, 0])  # met exactly, and missed by one
_LIMITS = st.builds(
    BudgetLimits,
    _few,
    _few,
    st.sampled_from([None, None, 6, 2]),
    st.sampled_from([None, 5, 1]),
    _few,
    st.sampled_from([None, None, "day", "week", "month"]),
    st.just(""),
    st.sampled_from(["refuse", "clamp"]),
).map(lambda limits: replace(limits, time_zone="Asia/Kathmandu" if limits.window else ""))


def _lowerable(tokens: int, nano: int, output: int) -> Amount:
    """A call of so many tokens in, that cost so much, and of so long an answer."""

    def lowered(most: int) -> Amount:
        return Amount(tokens + most, nano + 2 * most)

    return structs.replace(lowered(output), output=output, lowered=lowered)


_AMOUNTS = st.one_of(
    st.builds(
        Amount,
        st.sampled_from([0, 1, 20, 30, 60]),
        st.sampled_from([None, 0, 1, 20, 30]),
        st.sampled_from([True] * 7 + [False]),
    ),
    st.builds(
        _lowerable, st.sampled_from([0, 10]), st.sampled_from([0, 5]), st.sampled_from([1, 25, 60])
    ),
)


class _Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1_000_000_020.0

    def time(self) -> float:
        return self.now

    @property
    def minute(self) -> int:
        return int(self.now // 60)


@dataclass
class _Call:
    """A hold as the model remembers it."""

    path: tuple[str, ...]
    amount: Amount
    minute: int


@dataclass
class _Account:
    """One account, kept by adding up what happened to it."""

    limits: BudgetLimits
    spent_tokens: int = 0
    spent_nano: int = 0
    turns: int = 0
    unpriced: int = 0
    window_end: int = 0
    minute: int = 0
    held: dict[int, _Call] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    requests: list[int] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)

    def sums(self) -> dict[str, int]:
        return {
            "spent_tokens": self.spent_tokens,
            "spent_nano": self.spent_nano,
            "reserved_tokens": sum(call.amount.tokens for call in self.held.values()),
            "reserved_nano": sum(call.amount.nano or 0 for call in self.held.values()),
            "turns": self.turns,
            "unpriced_calls": self.unpriced,
        }

    def begin_window(self, now: float) -> None:
        """The window that ``now`` is in, with nothing spent and nothing held."""
        window = self.limits.window
        self.window_end = window_at(window, self.limits.time_zone, now)[1] if window else 0
        self.spent_tokens = self.spent_nano = self.turns = self.unpriced = 0
        self.held = {}

    def end_sooner(self, now: float) -> None:
        """A window that a clock far ahead began stands for the next one."""
        days = {"day": 3, "week": 15, "month": 63}[self.limits.window or ""]
        if self.window_end - now > days * 86_400:
            for _ in range(2):
                now = window_at(self.limits.window or "", self.limits.time_zone, now)[1]
            self.window_end = int(now)

    def at(self, now: float) -> _Account:
        """As it is in the window of ``now``."""
        if not self.window_end or now < self.window_end:
            return self
        turned = replace(self)
        turned.begin_window(now)
        return turned

    def lacks(self, amount: Amount) -> bool:
        """Whether ``amount`` is more than what is not spent."""
        tokens, nano = self.limits.tokens, self.limits.nano
        return (tokens is not None and self.spent_tokens + amount.tokens > tokens) or (
            nano is not None and self.spent_nano + (amount.nano or 0) > nano
        )

    def of_minute(self, minute: int) -> tuple[int, int]:
        """Requests and tokens of the minute that counts now."""
        if self.minute not in (minute, minute + 1):
            return 0, 0
        return (
            sum(one == self.minute for one in self.requests),
            sum(tokens for one, tokens in self.tokens if one == self.minute),
        )

    def turn_to(self, minute: int) -> None:
        """Begin a minute, unless the clock was set back by no more than one."""
        if self.minute not in (minute, minute + 1):
            self.minute, self.requests, self.tokens = minute, [], []

    def refuses(self, amount: Amount, turns: int, minute: int) -> set[str]:
        """Every code that would be a true answer."""
        sums, limits, codes = self.sums(), self.limits, set[str]()
        requests, tokens = self.of_minute(minute)

        def over(limit: int | None, used: int) -> bool:
            return limit is not None and used > limit

        if over(limits.turns, self.turns + turns):
            codes.add("TURN_LIMIT")
        if over(limits.requests_per_minute, requests + turns):
            codes.add("RATE_LIMITED")
        if over(limits.tokens_per_minute, tokens + amount.tokens):
            codes.add("RATE_LIMITED")
        used = sums["spent_tokens"] + sums["reserved_tokens"]
        if over(limits.tokens, used + amount.tokens):
            spent = over(limits.tokens, self.spent_tokens + amount.tokens)
            codes.add("BUDGET_EXHAUSTED" if spent else "BUDGET_BUSY")
        if limits.nano is not None and amount.nano is None:
            codes.add("UNPRICED")
        used = sums["spent_nano"] + sums["reserved_nano"]
        if over(limits.nano, used + (amount.nano or 0)):
            spent = over(limits.nano, self.spent_nano + (amount.nano or 0))
            codes.add("BUDGET_EXHAUSTED" if spent else "BUDGET_BUSY")
        limited = (limits.tokens, limits.nano, limits.tokens_per_minute) != (None, None, None)
        if not amount.bounded and limited:
            codes.add("UNBOUNDED")
        return codes


class Accounts(RuleBasedStateMachine):
    """Everything that can be done to accounts that share their path's wider part."""

    def __init__(self, ledger: LedgerClient) -> None:
        super().__init__()
        self.ledger = ledger
        self.clock = _Clock()
        self.patches = shared_clock(self.clock.time)
        self.budgeter = TokenBudgeter(ledger)
        self.model: dict[str, _Account] = {}
        self.calls: dict[int, tuple[_Call, str]] = {}
        self.dead = InFlightCalls(ledger, self.budgeter, charging=True)
        self.dead.stages.owner = _dead_owner()
        self.living = InFlightCalls(ledger, self.budgeter, charging=True)

    def teardown(self) -> None:
        for number, (_, name) in list(self.calls.items()):
            if name:
                self._end(number, 0, 0)
        self.living.recover("charge")
        self.patches.close()

    @initialize(limits=st.lists(st.none() | _LIMITS, min_size=7, max_size=7))
    def begin(self, limits: list[BudgetLimits | None]) -> None:
        n = next(_numbers)
        shared: dict[str, Any] = {
            "user_id": f"U{n}",
            "team_id": f"T{n}",
            "organisation_id": f"O{n}",
        }
        self.scopes = [
            BudgetScope(f"S{n}", "W", "A", key_id=f"K{n}", **shared),
            BudgetScope(f"S{n}", "V", "A", key_id=f"L{n}", **shared),
            BudgetScope(f"S{n}", "W"),
            BudgetScope(key_id=f"K{n}", **shared),
        ]
        self.targets = [
            BudgetScope(organisation_id=f"O{n}"),
            BudgetScope(user_id=f"U{n}"),
            BudgetScope(key_id=f"K{n}"),
            BudgetScope(f"S{n}"),
            BudgetScope(f"S{n}", agent_id="A"),
            BudgetScope(f"S{n}", "W"),
            BudgetScope(f"S{n}", "W", "A"),
        ]
        for which, one in enumerate(limits):
            if one is not None:
                self.allocate(which, one)

    def _accounts(self, path: tuple[str, ...]) -> list[_Account]:
        return [self.model[key] for key in path if key in self.model]

    @rule(which=st.integers(0, 6), limits=_LIMITS)
    def allocate_one(self, which: int, limits: BudgetLimits) -> None:
        self.allocate(which, limits)

    def allocate(self, which: int, limits: BudgetLimits) -> None:
        """For the first time, or anew: what was spent and is held stays, but for a new window."""
        scope = self.targets[which]
        self.budgeter.allocate(scope, limits=limits)
        account = self.model.get(scope.key)
        if account is None:
            account = self.model[scope.key] = _Account(limits)
            account.begin_window(self.clock.now)
        else:
            before, account.limits = account.limits, limits
            if before.window != limits.window:
                account.begin_window(self.clock.now)

    @rule(which=st.integers(0, 3), amount=_AMOUNTS)
    def ask(self, which: int, amount: Amount) -> None:
        self.reserve(which, amount, 1, True)

    @rule(which=st.integers(0, 3), amount=_AMOUNTS, turns=st.integers(0, 1), enforce=st.booleans())
    def ask_otherwise(self, which: int, amount: Amount, turns: int, enforce: bool) -> None:
        self.reserve(which, amount, turns, enforce)

    def reserve(self, which: int, amount: Amount, turns: int, enforce: bool) -> None:
        number = next(_numbers)
        scope = self.scopes[which]

        def take() -> None:
            self.budgeter.reserve(scope, f"R{number}", amount=amount, turns=turns, enforce=enforce)

        if turns:
            checked = self.budgeter.check(scope, amount)
            if enforce:
                self._begin(scope.path, amount, turns, True, number, f"R{number}", take, checked)
                return
        self._begin(scope.path, amount, turns, enforce, number, f"R{number}", take)

    @rule(which=st.integers(0, 3), amount=_AMOUNTS)
    def begin_and_be_killed(self, which: int, amount: Amount) -> None:
        """A call of a process that will not end it."""
        number = next(_numbers)
        scope = self.scopes[which]
        told = {"contract_id": "PRC-A-001", "agent_id": "", "session_id": ""}
        entry = LedgerEntry("DISPATCH", "PRC-A-001", "DISPATCHED", "r", metadata=told)
        about = ("", "", "", "PRC-A-001", "")
        prepared = (self.ledger.prepare(entry),)
        step = StartCall(prepared, scope.path, amount, 1, True, 60_000, about, 1, Waits())

        async def run() -> None:
            await self.dead.submit(step)

        self._begin(scope.path, amount, 1, True, number, "", lambda: asyncio.run(run()))

    def _begin_windows(self, accounts: list[_Account]) -> None:
        for account in accounts:
            if account.at(self.clock.now) is not account:
                account.begin_window(self.clock.now)
            elif account.window_end and account.limits.window:
                account.end_sooner(self.clock.now)

    def _begin(
        self, path: tuple[str, ...], amount: Amount, turns: int, enforce: bool, number: int,
        name: str, take: Callable[[], None], checked: Any = None,
    ) -> None:  # fmt: skip
        now, minute = self.clock.now, self.clock.minute
        kept = self._accounts(path)
        accounts = [account.at(now) for account in kept]
        if not name:  # a step of many leaves windows begun, also where it is refused itself
            self._begin_windows(kept)
        asked = amount
        if enforce or checked is not None:
            amount = _longest(accounts, asked)
        codes = set().union(*(one.refuses(amount, turns, minute) for one in accounts))
        if not accounts:
            codes = {"NOT_ALLOCATED"}
        if checked is not None:
            assert checked.allowed == (not codes)
            assert checked.allowed or checked.code in codes
        if enforce and codes:
            with pytest.raises(BudgetRefusedError) as refused:
                take()
            assert refused.value.code in codes
            # Where waiting does not help, nobody is told to wait.
            assert not refused.value.busy or codes == {"BUDGET_BUSY"}
            if refused.value.code == "RATE_LIMITED":
                assert refused.value.retry_after_s == 60 - self.clock.now % 60
            return
        take()
        self._begin_windows(kept)
        call = _Call(path, amount, minute)
        for account in kept:
            account.turn_to(minute)
            account.held[number] = call
            account.seen.add(number)
            account.turns += turns
            account.requests += [account.minute] * turns
            account.tokens.append((account.minute, amount.tokens))
        self.calls[number] = (call, name)
        if enforce:
            for state in self._live():
                if state.scope in path:
                    _assert_within(state)

    @rule(pick=st.integers(0, 20), tokens=st.integers(0, 40), nano=st.none() | st.integers(0, 30))
    def settle(self, pick: int, tokens: int, nano: int | None) -> None:
        mine = [number for number, (_, name) in self.calls.items() if name]
        if mine:
            self._end(mine[pick % len(mine)], tokens, nano)

    @rule(pick=st.integers(0, 20))
    def release(self, pick: int) -> None:
        mine = [number for number, (_, name) in self.calls.items() if name]
        if mine:
            number = mine[pick % len(mine)]
            self.budgeter.release(self.calls[number][1])
            self._settled(number, 0, 0)

    def _end(self, number: int, tokens: int, nano: int | None) -> None:
        name = self.calls[number][1]
        assert self.budgeter.settle(name, TokenUsage(tokens, 0, cost_nano=nano)).success
        assert not self.budgeter.settle(name, TokenUsage(tokens, 0, cost_nano=nano)).success
        self._settled(number, tokens, nano)

    def _settled(self, number: int, tokens: int, nano: int | None) -> None:
        call, _ = self.calls.pop(number)
        amount = call.amount
        for account in self._accounts(call.path):
            if account.minute == call.minute and number in account.seen:
                account.tokens.append((call.minute, tokens - amount.tokens))
            if account.held.pop(number, None) is None:
                continue  # allocated, or in a window that began, while the call was out
            account.spent_tokens += tokens
            account.spent_nano += nano or 0
            account.unpriced += nano is None and tokens > 0

    @rule(which=st.integers(0, 3), tokens=st.integers(0, 100), nano=st.none() | st.integers(0, 100))
    def charge(self, which: int, tokens: int, nano: int | None) -> None:
        """What was spent elsewhere is charged whatever the limits say."""
        scope, usage = self.scopes[which], TokenUsage(tokens, 0, cost_nano=nano)
        accounts = self._accounts(scope.path)
        if not accounts:
            with pytest.raises(BudgetRefusedError, match="allocated"):
                self.budgeter.debit(scope, usage)
            return
        self.budgeter.debit(scope, usage)
        self._begin_windows(accounts)
        for account in accounts:
            account.turn_to(self.clock.minute)
            account.spent_tokens += tokens
            account.spent_nano += nano or 0
            account.unpriced += nano is None and tokens > 0
            account.tokens.append((account.minute, tokens))

    @rule(policy=st.sampled_from(["charge", "release"]))
    def recover(self, policy: Any) -> None:
        killed = [number for number, (_, name) in self.calls.items() if not name]
        ids = self.living.recover(policy)
        assert len(ids) == len(killed)
        for number in killed:
            amount = self.calls[number][0].amount
            charged = policy == "charge"
            self._settled(number, amount.tokens if charged else 0, amount.nano if charged else 0)

    @rule(seconds=st.sampled_from([1, 20, 59, 60, 200, 40_000, 86_400, 8 * 86_400]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(seconds=st.sampled_from([1, 60, 70, 50_000]))
    def set_the_clock_back(self, seconds: int) -> None:
        self.clock.now -= seconds

    def _live(self) -> list[BudgetStatus]:
        return self.budgeter.states(scope.key for scope in self.targets)

    @invariant()
    def the_accounts_are_the_models(self) -> None:
        live = {state.scope: state for state in self._live()}
        assert live.keys() == self.model.keys()
        for key, kept in self.model.items():
            state, account = live[key], kept.at(self.clock.now)
            assert state.window_end == account.window_end
            assert state.limits == account.limits
            assert {name: getattr(state, name) for name in account.sums()} == account.sums()
            assert (state.minute_requests, state.minute_tokens) == account.of_minute(state.minute)


def _longest(accounts: list[_Account], asked: Amount) -> Amount:
    """What is held of a call that may be lowered, tried out one by one."""
    short = [account for account in accounts if account.lacks(asked)]
    clamp = all(account.limits.on_short == "clamp" for account in short)
    if not short or not clamp or asked.lowered is None:
        return asked
    for most in range(asked.output - 1, 0, -1):
        lowered = asked.lowered(most)
        if not any(account.lacks(lowered) for account in short):
            return lowered
    return asked


def _assert_within(state: BudgetStatus) -> None:
    """What a reservation has left behind is within every limit."""
    for limit, used in (
        (state.token_limit, state.spent_tokens + state.reserved_tokens),
        (state.nano_limit, state.spent_nano + state.reserved_nano),
        (state.turn_limit, state.turns),
        (state.requests_per_minute, state.minute_requests),
        (state.tokens_per_minute, state.minute_tokens),
    ):
        assert limit is None or used <= limit


def _dead_owner() -> str:
    here = Owner.current()
    return Owner(here.host, here.boot, here.namespace, 2**22 + 1, "1", "dead").encode()


@pytest.mark.soak
def test_whatever_is_done_the_accounts_are_right(ledger: LedgerClient, target: str) -> None:
    # The arithmetic is the same on both; a transaction on PostgreSQL takes longer.
    examples = (4 if target.startswith("postgresql://") else 10) * (30 if is_soak() else 1)

    class Here(Accounts):
        def __init__(self) -> None:
            super().__init__(ledger)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],  # to shrink a run of real transactions takes too long
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- single properties ---------------------------------------------------------------------------


@pytest.fixture
def clock() -> Iterator[_Clock]:
    one = _Clock()
    with shared_clock(one.time):
        yield one


def test_a_refusal_never_rounds_an_amount_to_zero(ledger: LedgerClient) -> None:
    keeper, scope = TokenBudgeter(ledger), BudgetScope("S", "W")
    keeper.allocate(scope, limits=BudgetLimits(nano=10))
    for nano, needed in ((499, "0.000000499"), (1_234_567_890, "1.234568")):
        message = rf"has 0\.00000001 USD left, and the call may cost {needed};"
        with pytest.raises(BudgetRefusedError, match=message):
            keeper.reserve(scope, needed, amount=Amount(1, nano))


def test_a_refused_call_under_a_clock_ahead_does_not_begin_a_minute(ledger: LedgerClient) -> None:
    state = Accounts(ledger)
    of_order, of_agent = BudgetLimits(tokens=300), BudgetLimits(tokens_per_minute=0)
    state.begin(limits=[None, None, None, None, None, of_order, of_agent])
    state.begin_and_be_killed(which=0, amount=Amount(60))  # refused
    state.set_the_clock_back(seconds=60)
    state.begin_and_be_killed(which=2, amount=Amount(1))
    state.the_accounts_are_the_models()
    state.teardown()


def test_a_hold_is_read_back_also_of_an_earlier_version() -> None:
    for hold in (
        Hold(("a", "b"), 5, None, 1, 7),
        Hold((), 0, 2**62, 0, 0, bounded=False),
        Hold(("a", "b"), 5, 6, 1, 7, True, (0, 3), 120, ("p", "m"), 25),
    ):
        assert Hold.decode(hold.encode()) == hold
    text = '{"scopes":["a"],"tokens":5,"nano":null,"turns":1,"minute":7,"bounded":true}'
    assert Hold.decode(text) == Hold(("a",), 5, None, 1, 7)


def test_a_transaction_that_fails_holds_nothing(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    scope = BudgetScope("S", requested_tokens=10)
    keeper.allocate(scope, 100)

    def call(tx: Any) -> None:
        keeper.reserve(scope, "1", tx=tx)
        raise InvalidInputError("no")

    with pytest.raises(InvalidInputError):
        ledger.transact(call)
    assert keeper.status(scope)[0].reserved_tokens == 0
    assert ledger.select("SELECT count(*) FROM holds") == [(0,)]


@pytest.mark.parametrize("nano", [10**9 + 1, 8_000_000_123_456_789, 2**62 - 1])
def test_a_limit_in_dollars_is_rebuilt_to_the_nano(ledger: LedgerClient, nano: int) -> None:
    """Or it is refused."""
    keeper = TokenBudgeter(ledger)
    InFlightCalls(ledger, keeper, charging=True)
    try:
        limits = BudgetLimits(nano=nano)
    except InvalidInputError:
        assert nano > 8 * 10**15
        return
    keeper.allocate(BudgetScope("S"), limits=limits)
    audit = audit_budgets(ledger)
    assert audit.equal, audit.differences


def test_an_audit_of_a_busy_ledger_is_true(ledger: LedgerClient) -> None:
    """Debits go on while it is adding up."""
    keeper = TokenBudgeter(ledger)
    InFlightCalls(ledger, keeper, charging=True)
    scope = BudgetScope("S")
    keeper.allocate(scope, 10**9)
    for _ in range(3):
        keeper.debit(scope, TokenUsage(1, 1, cost_nano=5))
    meanwhile: list[DebitResult] = []

    def progress(done: int, total: int) -> None:
        if len(meanwhile) < 20:
            meanwhile.append(keeper.debit(scope, TokenUsage(2, 2, cost_nano=7)))

    begun = time.monotonic()
    assert audit_budgets(ledger, progress=progress).equal
    assert meanwhile
    assert time.monotonic() - begun < 60
    assert keeper.status(scope)[0].spent_nano == 15 + 7 * len(meanwhile)


def test_a_bill_above_its_bound_raises_the_bound_of_its_model(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    scope = BudgetScope("S")
    keeper.allocate(scope, limits=BudgetLimits(tokens=1_000, nano=1_000))
    asked = Amount(100, 50, model=("p", "m"))

    def held() -> tuple[int, int]:
        keeper.reserve(scope, "held", amount=asked)
        (state,) = keeper.status(scope)
        keeper.release("held")
        return state.reserved_tokens, state.reserved_nano

    for usage, after in (
        (TokenUsage(100, 0, cost_nano=50), (100, 50)),  # not above
        (TokenUsage(10, 0, cost_nano=51), (102, 51)),  # 102 percent, whichever was above
        (TokenUsage(204, 0, cost_nano=1), (204, 102)),  # of what was held, which was raised
        (TokenUsage(50, 0), (204, 102)),  # never lowered
        (TokenUsage(2**50, 0), (204, 102)),  # a bill of another account
    ):
        keeper.reserve(scope, "1", amount=asked)
        if usage.total < 1_000:
            keeper.settle("1", usage)
        else:
            keeper.allocate(BudgetScope("T"), limits=BudgetLimits())
            keeper.reserve(BudgetScope("T"), "2", amount=asked)
            keeper.settle("2", usage)
            keeper.release("1")
            keeper.allocate(scope, limits=BudgetLimits(tokens=9_000, nano=9_000))
        assert held() == after
    keeper.reserve(BudgetScope("T"), "4", amount=asked)
    (state,) = keeper.status(BudgetScope("T"))
    assert state.reserved_tokens == 1_000  # one absurd bill bars no model for ever
    keeper.reserve(scope, "3", amount=structs.replace(asked, model=("p", "other")))
    assert keeper.status(scope)[0].reserved_tokens == 100


def test_an_account_that_is_full_takes_the_next_bill_too(ledger: LedgerClient, target: str) -> None:
    keeper = TokenBudgeter(ledger)
    scope = BudgetScope("S")
    keeper.allocate(scope, 1_000)
    outside(target, f"UPDATE budgets SET spent_tokens = {2**62 - 1}, spent_nano = {2**62 - 1}")
    keeper.debit(scope, TokenUsage(2**53 - 1, 0, cost_nano=2**53 - 1))
    (state,) = keeper.status(scope)
    assert min(state.spent_tokens, state.spent_nano) >= 2**62 - 1
    assert not keeper.check(BudgetScope("S", requested_tokens=1)).allowed
