"""Processes that die in the middle of a call."""

from __future__ import annotations

import threading
import time

import pytest

from remit.gateway import LeaseLostError, LLMGateway, RouterConfig
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient, LedgerWriteError
from remit.providers import MockProvider, ProviderResponse
from remit.server.refusals import no_record
from tests.support.requests import prompt_request
from tests.support.stores import outside


@pytest.mark.any_store
def test_a_refused_record_says_whether_its_call_was_sent(ledger: LedgerClient, target: str) -> None:
    provider = MockProvider()
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("mock", provider)
    stop = "CREATE TRIGGER stop{} BEFORE INSERT ON entries {} BEGIN SELECT RAISE(ABORT, 'no'); END"
    outside(target, stop.format(1, "WHEN NEW.event_type = 'EXCHANGE'"))
    with pytest.raises(LedgerWriteError) as unrecorded:
        gateway.route(prompt_request())
    assert len(provider.requests) == 1
    outside(target, stop.format(2, ""))
    with pytest.raises(LedgerWriteError) as unsent:
        gateway.route(prompt_request())
    assert len(provider.requests) == 1
    lost = LeaseLostError("The call was settled.")
    for error, said in (
        (unrecorded.value, "was sent to"), (lost, "was sent to"), (unsent.value, "was not sent to")
    ):  # fmt: skip
        assert f"{said} a provider" in no_record(error).message


@pytest.mark.any_store
def test_the_reason_of_an_orphan_outlasts_a_refused_recovery(
    ledger: LedgerClient, target: str
) -> None:
    gateway = LLMGateway(ledger, None, RouterConfig(lease_margin_ms=-30_000), dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    outside(
        target,
        "CREATE TRIGGER stop BEFORE INSERT ON entries WHEN NEW.event_type LIKE 'EXCHANGE%' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    for refused in (lambda: gateway.route(prompt_request()), gateway.recover):
        with pytest.raises(LedgerWriteError):
            refused()
    outside(target, "DROP TRIGGER stop")
    (orphan_id,) = gateway.recover()
    assert "The answer came, but could not be put on record" in ledger.read(orphan_id).reason


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
