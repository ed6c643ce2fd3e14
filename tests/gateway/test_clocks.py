"""Wall clocks that are wrong, set back or ahead: processes with their own on one ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.gateway import LLMGateway
from remit.gateway.auth import (
    AgentTokenProvider,
    AgentTokens,
    AuthenticationError,
    AuthLimits,
    Directory,
    KeyStore,
    expiry_of,
    shown_keys,
)
from remit.gateway.budget import (
    BudgetLimits,
    BudgetScope,
    TokenBudgeter,
    TokenUsage,
    audit_budgets,
)
from remit.gateway.leases import Owner
from remit.kernel.budget_windows import window_at
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient
from tests.support.clocks import shared_clock
from tests.support.stores import empty, outside
from tests.support.wire import Raw, serve

HOUR_S, TEN_YEARS_S = 3600, 10 * 365 * 86_400
MINUTE = BudgetScope("SES-MINUTES1")
CALLS = BudgetScope("SES-TESTTEST")

# A wall clock of the process's own: what every module, imported after it, reads.
_SHIFTED = """
import sys, time, datetime as module
ahead = int(sys.argv[1])
real_time, real_ns, real = time.time, time.time_ns, module.datetime
time.time = lambda: real_time() + ahead
time.time_ns = lambda: real_ns() + ahead * 10**9
class datetime(real):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
module.datetime = datetime
"""

_MINUTES = """
from remit.gateway.budget import BudgetRefusedError, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient, LedgerEntry
with LedgerClient(sys.argv[2]) as ledger:
    ledger.write(LedgerEntry("NOTE", "x", "d", "r"))
    keeper, scope = TokenBudgeter(ledger), BudgetScope("SES-MINUTES1", requested_tokens=1)
    waits = []
    for number in range(int(sys.argv[4])):
        try:
            keeper.reserve(scope, f"{sys.argv[3]}-{number}")
        except BudgetRefusedError as refused:
            assert refused.code == "RATE_LIMITED", refused.code
            waits.append(refused.retry_after_s)
    print(__import__("json").dumps(waits))
"""

_CALLER = """
from remit.gateway.budget import TokenBudgeter
from remit.gateway import LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from tests.support.requests import anthropic_provider, prompt_request
ledger = LedgerClient(sys.argv[2])
config = RouterConfig(default_timeout_ms=600_000, lease_margin_ms=0, max_retries=0)
gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
gateway.register_provider("mock", anthropic_provider(sys.argv[3]))
gateway.route(prompt_request(max_tokens=10))
"""

_RECOVERER = """
from remit.gateway.budget import TokenBudgeter
from remit.gateway import LLMGateway
from remit.ledger import LedgerClient
with LedgerClient(sys.argv[2]) as ledger:
    print(len(LLMGateway(ledger, TokenBudgeter(ledger), dev_mode=True).recover()))
"""


def _start(script: str, ahead_s: int, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SHIFTED + script, str(ahead_s), *arguments],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=dict(os.environ),
    )  # fmt: skip


def _said(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


def test_no_process_locks_a_minute_for_the_others_or_gets_one_more(target: str) -> None:
    """Whoever comes first, an hour or ten years off: a minute is sixty seconds for all of them."""
    with LedgerClient(target) as ledger:
        keeper = TokenBudgeter(ledger)
        keeper.allocate(MINUTE, limits=BudgetLimits(requests_per_minute=5))
        for name, ahead_s in (("a", HOUR_S), ("b", -TEN_YEARS_S), ("c", TEN_YEARS_S), ("d", 0)):
            waits = _said(_start(_MINUTES, ahead_s, target, name, "3"))
            assert all(0 < wait <= 60 for wait in waits), waits
        (minute,) = {row[0] for row in ledger.select("SELECT minute FROM budgets")}
        assert abs(minute - ledger.now_ms // 60_000) <= 1
        held = ledger.select("SELECT count(*) FROM holds")[0][0]
        assert 5 <= held <= 10  # of 12: two minutes at the most were gone through
        times = [entry.timestamp for entry in ledger.read_by_event_type("NOTE")]
        years = [int(one[:4]) - datetime.now(UTC).year for one in times]
        assert years[1] < -8 < 8 < years[2], times
        assert abs(years[3]) <= 1, times  # it was not held up
        assert ledger.verify().verified


@pytest.mark.parametrize("ahead_s", [HOUR_S, -TEN_YEARS_S])
def test_a_call_that_is_out_is_settled_by_no_process_with_another_clock(
    target: str, ahead_s: int
) -> None:
    with LedgerClient(target) as ledger, serve(Raw(delay_s=600)) as provider:
        gateway = LLMGateway(ledger, TokenBudgeter(ledger), dev_mode=True)
        TokenBudgeter(ledger).allocate(CALLS, 100_000)
        caller = _start(_CALLER, ahead_s, target, provider.url)
        try:
            while not provider.calls:
                time.sleep(0.02)
            # As seen from a container whose processes are hidden: the lease alone decides.
            ((owner,),) = ledger.select("SELECT owner FROM in_flight")
            known = Owner.parse(owner)
            assert known is not None
            hidden = owner.replace(known.namespace, "pid:[1]")
            outside(target, f"UPDATE in_flight SET owner = '{hidden}'")
            assert gateway.recover() == []
            assert _said(_start(_RECOVERER, -ahead_s, target)) == 0
            ((until_ms,),) = ledger.select("SELECT lease_until_ms FROM in_flight")
            assert 0 < until_ms - ledger.now_ms <= 600_000
        finally:
            caller.kill()
            caller.communicate()


def test_of_another_boot_nothing_lives_on_one_machine(target: str) -> None:
    owner = Owner.current()
    earlier = Owner(owner.host, "an-earlier-boot", owner.namespace, owner.pid, owner.start, "x")
    assert earlier.is_surely_dead(one_machine=True)
    assert not earlier.is_surely_dead()  # it may be another machine's
    # PostgreSQL's two schemes name the same server.
    for place in (target, target.replace("postgresql://", "postgres://", 1)):
        with LedgerClient(place) as ledger:
            assert ledger.is_of_one_machine == ("postgresql" not in target)


@pytest.mark.parametrize("apart_s", [300, -300])
def test_a_machine_with_another_clock_moves_no_deadline(target: str, apart_s: int) -> None:
    """Expiries, periods of grace and approvals count from the clock of the database."""
    now_s = time.time() + apart_s
    with LedgerClient(target) as ledger, shared_clock(lambda: now_s):
        now = ledger.wall_time

        def seconds(expires: str) -> float:
            return (datetime.fromisoformat(expires) - now).total_seconds()

        with KeyStore(ledger) as keys:
            keys.create("a", role="agent", expires=expiry_of("60s", now))
            keys.rotate(keys.create("b", role="agent").key_id, grace_s=20)
            with pytest.raises(InvalidInputError, match="is in the past"):
                keys.create("c", role="agent", expires=now)
            short, rotated = keys.list()
        assert seconds(short.expires) == 60
        assert seconds(rotated.old_until) == 20
        queue = ApprovalQueue(ledger, ApprovalSettings.model_validate({"valid_s": 60, "tools": {}}))
        tool = Tool("refund", "Pay an order back.", {"type": "object"}, print)
        asked = queue.request(tool, {}, session_id="SES-APPROVED", agent_id="client")
        queue.decide(asked.request_id, granted=True, by="Ann")
        assert seconds(queue.get(asked.request_id).expires_at) == 60


@pytest.mark.parametrize("apart_s", [300, -300])
def test_a_server_with_another_clock_refuses_a_key_when_it_expires(
    target: str, apart_s: int
) -> None:
    clock = SimpleNamespace(now=time.time() + apart_s)
    limits = AuthLimits(revocation_s=0.5, stale_after_s=60, refused_log_s=60)
    with LedgerClient(target) as ledger, shared_clock(lambda: clock.now):
        with KeyStore(ledger) as keys:
            token = keys.create("a", role="agent", expires=expiry_of("120s", ledger.wall_time)).key
        with KeyStore(ledger, limits) as keys:
            assert keys.authenticate(token).name == "a"
        clock.now += 121
        with KeyStore(ledger, limits) as keys, pytest.raises(AuthenticationError):
            keys.authenticate(token)


@pytest.mark.parametrize("apart_s", [300, -300])
def test_a_machine_with_another_clock_judges_every_expiry_by_the_databases(
    target: str, apart_s: int
) -> None:
    clock = SimpleNamespace(now=time.time() + apart_s)
    limits = AuthLimits(revocation_s=0.5, stale_after_s=60, refused_log_s=60)
    tool = Tool("refund", "Pay an order back.", {"type": "object"}, print)
    with LedgerClient(target) as ledger, shared_clock(lambda: clock.now):
        queue = ApprovalQueue(
            ledger, ApprovalSettings.model_validate({"valid_s": 120, "tools": {}})
        )
        asked = queue.request(tool, {}, session_id="SES-APPROVED", agent_id="client")
        queue.decide(asked.request_id, granted=True, by="Ann")
        directory, budgeter = Directory(ledger), TokenBudgeter(ledger)

        def states(keys: KeyStore, token: str) -> tuple[str, str, bool, bool, bool]:
            (shown,) = shown_keys(keys.list(), directory, budgeter)
            tokens = AgentTokens(b"s" * 32, lambda: keys.now_s)
            return (
                keys.find("a").state_at(ledger.wall_time),
                shown["state"],
                _holds(lambda: keys.current("a")),
                _holds(lambda: AgentTokenProvider(tokens, keys).authenticate(token)),
                queue.get(asked.request_id).usable(ledger.wall_time),
            )

        with KeyStore(ledger, limits) as keys:
            made = keys.create("a", role="agent", expires=expiry_of("120s", ledger.wall_time))
            tokens = AgentTokens(b"s" * 32, lambda: keys.now_s)
            token = tokens.issue("scout", ttl_s=120)
            behind = tokens.issue("scout", key_id=made.key_id, ttl_s=120)
            assert states(keys, token) == ("live", "live", True, True, True)
            assert states(keys, behind) == ("live", "live", True, True, True)
            clock.now += 1
            keys.rotate("a")
            assert not states(keys, behind)[3]  # issued before the rotation
        clock.now += 120
        with KeyStore(ledger, limits) as keys:
            assert states(keys, token) == ("expired", "expired", False, False, False)


def _holds(check: Callable[[], object]) -> bool:
    try:
        check()
    except (AuthenticationError, ConflictError):
        return False
    return True


_NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


_STEPS_S = st.lists(
    st.integers(0, 40_000) | st.sampled_from([-50_000, 50_000, -TEN_YEARS_S, TEN_YEARS_S]),
    min_size=1, max_size=12,
)  # fmt: skip


@given(steps=_STEPS_S, window=st.sampled_from(["day", "week", "month"]))
@settings(
    max_examples=8, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_a_window_neither_stops_for_years_nor_begins_twice(
    target: str, steps: list[int], window: Any
) -> None:
    """Whatever the wall clock does, a window ends within two; and the ledger tells the same."""
    empty(target)
    clock = SimpleNamespace(now=_NOW.timestamp())
    scope = BudgetScope("SES-WINDOWS1", requested_tokens=10)
    with LedgerClient(target) as ledger, shared_clock(lambda: clock.now):
        keeper = TokenBudgeter(ledger)
        keeper.allocate(scope, limits=BudgetLimits(tokens=15, window=window, time_zone="UTC"))
        begun = 0
        for step in steps:
            clock.now = max(clock.now + step, 86_400.0)
            keeper.debit(scope, TokenUsage(10, 0, cost_nano=0))
            (state,) = keeper.list()
            end = window_at(window, "UTC", clock.now)[1]
            assert end <= state.window_end
            days = {"day": 3, "week": 15, "month": 63}[window]
            assert state.window_end - clock.now <= days * 86_400
            resets = state.window_number
            assert resets == begun or step > 0  # a clock set back begins none
            begun = resets
        audit = audit_budgets(ledger)
        assert audit.equal, audit
