"""The same thing on a server: whole conversations with ledger and budgets on PostgreSQL."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from remit import Runtime
from remit.ledger import Erased, RetentionSchedule
from tests.support.agents import CLASSIFIED, Scripted
from tests.support.postgres import PostgresServer
from tests.support.wire import message

_CLASSIFY = message(json.dumps(CLASSIFIED))


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database, named by the environment as an operator would."""
    place = postgres.database()
    monkeypatch.setenv("REMIT_DATABASE_URL", place)
    return place


def test_two_runtimes_hold_one_budget(scripted: Scripted, tmp_path: Path, url: str) -> None:
    from remit.gateway.budget import BudgetRefusedError, BudgetScope, TokenBudgeter

    with scripted(message("x")) as (one, _):
        scope = BudgetScope("SES-SHARED00", requested_tokens=100)
        TokenBudgeter(one.ledger).allocate(BudgetScope("SES-SHARED00"), 1_000)
        with Runtime.open(tmp_path / "root", model="anthropic") as two:
            granted: list[str] = []
            lock = threading.Lock()

            def take(runtime: Runtime, name: str) -> None:
                budgeter = TokenBudgeter(runtime.ledger)
                for number in range(10):
                    try:
                        budgeter.reserve(scope, f"{name}-{number}")
                    except BudgetRefusedError:
                        continue
                    with lock:
                        granted.append(name)

            threads = [
                threading.Thread(target=take, args=(runtime, f"{place}{number}"))
                for place, runtime in enumerate((one, two))
                for number in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(granted) == 10  # of sixty that were asked for


def test_retention_runs(scripted: Scripted, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("remit.runtime.runtime._RETENTION_EVERY_S", 0.1)
    flags = {"ledger.retention_days": {"*": 1e-9}}
    script = (_CLASSIFY, message("Noted."))
    with scripted(*script, flags=flags) as (runtime, _):
        with runtime.session() as conversation:
            conversation.turn("a thing to forget")
        RetentionSchedule(runtime.ledger, every_s=60).stop()
        (turn,) = runtime.ledger.query(event_type="TURN_RECORDED")
        assert isinstance(turn.metadata["user_message"], Erased)
        assert runtime.ledger.verify().verified
