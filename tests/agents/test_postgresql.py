"""The same thing on a server: whole conversations with ledger and budgets on PostgreSQL."""

from __future__ import annotations

import json

import pytest

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
