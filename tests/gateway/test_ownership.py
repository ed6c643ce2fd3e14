"""Whose calls are settled at once, and whose are left to their lease."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import LeaseLostError, LLMGateway, RouterConfig
from remit.gateway.budget import BudgetScope, TokenBudgeter, audit_budgets
from remit.gateway.leases import Owner, process_identity as ownership
from remit.ledger import LedgerClient, LedgerEntry, LedgerWriteError
from remit.ledger.postgres import store
from remit.providers import MockProvider, ProviderResponse
from remit.server.refusals import no_record
from tests.support.postgres import PostgresServer, run_sql
from tests.support.processes import Program
from tests.support.requests import anthropic_provider, prompt_request
from tests.support.stores import outside
from tests.support.wire import Raw, serve

_SESSION = BudgetScope("SES-TESTTEST")
_CALLER = """
import sys
from remit.gateway.budget import TokenBudgeter
from remit.gateway import LeaseLostError, LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from tests.support.requests import anthropic_provider, prompt_request
ledger = LedgerClient(sys.argv[1])
config = RouterConfig(
    default_timeout_ms=int(sys.argv[3]), lease_margin_ms=int(sys.argv[4]), max_retries=0
)
gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
gateway.register_provider("mock", anthropic_provider(sys.argv[2]))
try:
    asked = prompt_request(idempotency_key=sys.argv[5] or None)
    print(gateway.route(asked).outcome.name, flush=True)
except LeaseLostError:
    print("LEASE LOST", flush=True)
"""
_MINUTES = (300_000, 300_000)


def _call(target: str, url: str, lease: tuple[int, int], key: str = "") -> Program:
    """A process in the middle of a call whose provider takes its time."""
    line = ("-c", _CALLER, target, url, *map(str, lease), key)
    return Program(*line, environment=os.environ)


def _wait_for(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _of(pid: int) -> Owner:
    """The owner that a process would call itself."""
    return replace(Owner.current(), pid=pid, start=ownership._start_of(pid) or "")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_host_with_the_separator_is_read_back_as_another_name() -> None:
    owner = replace(Owner.current(), host="a|b")
    assert Owner.parse(owner.encode()) == replace(owner, host="a_b")


@pytest.mark.parametrize("digits", ["²", "①"])
def test_a_number_that_is_none_is_nobody(digits: str) -> None:
    assert Owner.parse(f"host|boot|namespace|{digits}|1|t") is None


def test_the_living_are_not_judged(sleeper: subprocess.Popen[bytes]) -> None:
    assert not Owner.current().is_surely_dead()
    assert not _of(sleeper.pid).is_surely_dead()


# -- life and death ------------------------------------------------------------------------------


def test_the_dead_are(sleeper: subprocess.Popen[bytes]) -> None:
    owner = _of(sleeper.pid)
    sleeper.kill()
    _wait_for(lambda: _state_of(sleeper.pid) == "Z")
    assert owner.is_surely_dead()  # of whom nothing is left but what the parent has not read
    sleeper.wait()
    assert owner.is_surely_dead()


def test_a_number_used_again_is_somebody_else(sleeper: subprocess.Popen[bytes]) -> None:
    owner = _of(sleeper.pid)
    before = replace(owner, start=str(int(owner.start) - 1))
    assert before.is_surely_dead()


@pytest.mark.parametrize("change", [{"boot": "another"}, {"namespace": "pid:[1]"}, {"start": ""}])
def test_who_cannot_be_seen_is_never_judged(
    sleeper: subprocess.Popen[bytes], change: dict[str, Any]
) -> None:
    owner = replace(_of(sleeper.pid), **change)
    sleeper.kill()
    sleeper.wait()
    assert _of(os.getpid()).boot
    assert not owner.is_surely_dead()


def test_a_process_that_proc_hides_is_not_judged(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with the mount option ``hidepid``, which shows a user's own processes only."""
    owner = _of(sleeper.pid)
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text(owner.boot)
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(owner.namespace)
    monkeypatch.setattr(ownership, "_PROC", tmp_path)
    assert not owner.is_surely_dead()


# -- what becomes of their calls -----------------------------------------------------------------


def test_a_killed_process_is_settled_though_its_lease_has_minutes_to_go(target: str) -> None:
    with LedgerClient(target) as ledger, serve(Raw(delay_s=60)) as provider:
        budgeter = TokenBudgeter(ledger)
        budgeter.allocate(_SESSION, 10_000)
        gateway = LLMGateway(ledger, budgeter, dev_mode=True)
        caller = _call(target, provider.url, _MINUTES)
        _wait_for(lambda: provider.calls)
        ((owner, until),) = ledger.select("SELECT owner, lease_until_ms FROM in_flight")
        assert until > (time.time() + 500) * 1000
        assert gateway.recover() == []  # it lives
        assert budgeter.status(_SESSION)[0].reserved_tokens > 0
        caller.kill()
        with caller:
            pass
        (orphan_id,) = gateway.recover()
        assert Owner.parse(owner) is not None
        assert ledger.read(orphan_id).event_type == "EXCHANGE_ORPHANED"
        assert budgeter.status(_SESSION)[0].reserved_tokens == 0
        assert gateway.recover() == []
        assert audit_budgets(ledger).equal


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that is stopped and started."""
    server = PostgresServer(tmp_path_factory.mktemp("away") / "data")
    yield server
    server.stop()


@pytest.mark.parametrize("how", ["killed, and its judge is new", "its judge loses it"])
def test_whoever_could_not_renew_while_the_store_was_away_has_a_lease_for_it(
    away: PostgresServer, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = away.database()
    with LedgerClient(target) as ledger, serve(Raw(delay_s=600)) as provider:
        TokenBudgeter(ledger).allocate(_SESSION, 10_000)
        caller = _call(target, provider.url, _MINUTES)
        try:
            _wait_for(lambda: provider.calls)
            if how.startswith("killed"):
                away.kill()
                away.start()
            else:
                monkeypatch.setattr(store, "_UP", "SELECT 10000000")  # it did not go: we did
                killing = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                run_sql(target, f"{killing} pg_backend_pid() AND datname = current_database()")
                ledger.write(LedgerEntry("NOTE", "x", "d", "r"))
            # As a process of another machine sees it, whose clock went on meanwhile.
            hidden = replace(_of(caller.pid), namespace="pid:[1]").encode()
            run_sql(target, f"UPDATE in_flight SET owner = '{hidden}', lease_until_ms = 1")
            judge = ledger
            if how.startswith("killed"):
                judge = LedgerClient(target)
            with judge:
                hour = RouterConfig(default_timeout_ms=3_600_000)
                assert LLMGateway(judge, TokenBudgeter(judge), hour, dev_mode=True).recover() == []
                short = RouterConfig(default_timeout_ms=1, lease_margin_ms=0)
                over = LLMGateway(judge, TokenBudgeter(judge), short, dev_mode=True)
                assert len(over.recover()) == 1  # who has not come back by then does not
        finally:
            caller.kill()
            with caller:
                pass


def test_the_key_of_a_call_without_an_answer_is_nobody_elses_whatever_its_lease(
    target: str,
) -> None:
    about: dict[str, Any] = {"idempotency_key": "one", "max_tokens": 10}
    with LedgerClient(target) as ledger, serve(Raw(delay_s=600)) as provider:
        TokenBudgeter(ledger).allocate(_SESSION, 10_000)
        gateway = LLMGateway(ledger, TokenBudgeter(ledger), dev_mode=True)
        gateway.register_provider("mock", anthropic_provider(provider.url))
        caller = _call(target, provider.url, _MINUTES, "one")
        try:
            _wait_for(lambda: provider.calls)
            outside(target, "UPDATE idempotency SET until_ms = 1")  # it is suspended, say
            outside(target, "UPDATE in_flight SET lease_until_ms = 1")
            for _ in range(2):
                refused = gateway.route(prompt_request(**about))
                assert refused.error_code == "IDEMPOTENCY_CONFLICT", refused
                assert gateway.recover() == []
            assert len(provider.calls) == 1
        finally:
            caller.kill()
            with caller:
                pass
        assert len(gateway.recover()) == 1
        assert ledger.select("SELECT 1 FROM idempotency") == []


# -- Processes that die in the middle of a call ---------------------------------------------------


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
