"""Processes that die in the middle of a call."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

from remit.gateway import LeaseLostError, LLMGateway, RouterConfig
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderResponse
from tests.support.processes import Program
from tests.support.requests import prompt_request
from tests.support.wire import Raw, message, serve

_CALLER = """
import sys, threading
from remit.gateway.budget import TokenBudgeter
from remit.gateway import LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from tests.support.processes import Program
from tests.support.requests import anthropic_provider, prompt_request
ledger = LedgerClient(sys.argv[1])
config = RouterConfig(default_timeout_ms=300, lease_margin_ms=200, max_retries=0)
gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
gateway.register_provider("mock", anthropic_provider(sys.argv[2]))
print("ready", flush=True)
def work():
    while True:
        gateway.route(prompt_request(max_tokens=10))
for _ in range(3):
    threading.Thread(target=work).start()
work()
"""


def test_killed_callers_leave_orphans_that_are_settled_once(tmp_path: Path) -> None:
    import json

    path = tmp_path / "ledger.db"
    chance = random.Random(42)
    slow = Raw(json.dumps(message("hi")).encode(), delay_s=0.02)
    with LedgerClient(path) as ledger, serve(slow) as server:
        budgeter = TokenBudgeter(ledger)
        budgeter.allocate(BudgetScope("SES-TESTTEST"), 10_000_000)
        for _ in range(8):
            caller = Program("-c", _CALLER, str(path), server.url, environment=os.environ)
            with caller:
                caller.stdout.readline()
                time.sleep(chance.uniform(0.05, 0.4))
                caller.kill()
        waiting = len(ledger.orphans())
        assert waiting > 0
        time.sleep(0.8)  # until the leases have run out
        config = RouterConfig(default_timeout_ms=300, lease_margin_ms=200)
        gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
        assert len(gateway.recover()) == waiting
        assert gateway.recover() == []
        counts = ledger.count_by_event()
        assert len(server.calls) <= counts["DISPATCH"]
        assert counts["DISPATCH"] == counts["EXCHANGE"] + counts["EXCHANGE_ORPHANED"]
        (state,) = budgeter.status(BudgetScope("SES-TESTTEST"))
        assert state.reserved_tokens == 0
        charged = sum(
            e.metadata.get("settled_tokens", 0)
            + e.metadata.get("input_tokens", 0)
            + e.metadata.get("output_tokens", 0)
            for e in ledger.query(with_content=False)
            if e.event_type in ("EXCHANGE", "EXCHANGE_ORPHANED")
        )
        assert state.spent_tokens == charged
        assert ledger.orphans() == []
        report = ledger.verify()
        assert report.verified, report.problems


def test_released_instead_of_charged(ledger: LedgerClient) -> None:
    settled = threading.Event()

    class Dies:
        def send(self, request: object) -> ProviderResponse:
            settled.wait(25)
            return ProviderResponse("late", "m", 1, 1)

    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), 10_000)
    config = RouterConfig(lease_margin_ms=-30_000, orphan_policy="release")  # runs out at once
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
    gateway.register_provider("mock", Dies())

    failures: list[BaseException] = []

    def call() -> None:
        try:
            gateway.route(prompt_request())
        except LeaseLostError as error:
            failures.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    while not ledger.orphans():
        time.sleep(0.01)
    time.sleep(0.05)
    other = LLMGateway(ledger, budgeter, config, dev_mode=True)
    (orphan_id,) = other.recover()
    settled.set()
    caller.join()
    # the one who was taken for dead wakes up late: only one of the two entries is ever written
    assert len(failures) == 1
    assert ledger.read(orphan_id).metadata["settlement"] == "release"
    counts = ledger.count_by_event()
    assert (counts["DISPATCH"], counts.get("EXCHANGE", 0), counts["EXCHANGE_ORPHANED"]) == (1, 0, 1)
    (state,) = budgeter.status(BudgetScope("SES-TESTTEST"))
    assert (state.spent_tokens, state.reserved_tokens) == (0, 0)


def test_a_live_call_is_left_alone(ledger: LedgerClient) -> None:
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    gateway.route(prompt_request())
    assert gateway.recover() == []
