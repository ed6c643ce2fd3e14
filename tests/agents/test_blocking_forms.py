"""Names of the agents' parts that programs without an event loop call."""

from __future__ import annotations

import importlib

import pytest

from remit.agents import SessionManager
from remit.ledger import LedgerClient
from tests.support.agents import Scripted
from tests.support.wire import message

_METHODS = {
    "remit": "Runtime.open Runtime.close Runtime.agent Runtime.session",
    "remit.ledger": "LedgerClient.write LedgerClient.write_many LedgerClient.read "
    "LedgerClient.read_all LedgerClient.read_by_event_type LedgerClient.read_by_submission "
    "LedgerClient.query LedgerClient.count LedgerClient.head LedgerClient.verify "
    "LedgerClient.verify_chain LedgerClient.checkpoint LedgerClient.prove LedgerClient.export "
    "LedgerClient.erase LedgerClient.orphans LedgerClient.scoped",
    "remit.gateway": "LLMGateway.route LLMGateway.aroute LLMGateway.register_provider",
    "remit.budget": "TokenBudgeter.allocate TokenBudgeter.check TokenBudgeter.reserve "
    "TokenBudgeter.settle TokenBudgeter.release TokenBudgeter.debit TokenBudgeter.status",
    "remit.contracts": "ContractLoader.load",
    "remit.worker": "HO1Executor.execute",
    "remit.tools": "ToolDispatcher.execute",
    "remit.supervisor": "HO2Supervisor.handle_turn",
    "remit.sessions": "SessionManager.add_turn",
}


@pytest.mark.parametrize("module", _METHODS)
def test_the_named_methods_exist(module: str) -> None:
    for name in _METHODS[module].split():
        owner, method = name.split(".")
        assert callable(getattr(getattr(importlib.import_module(module), owner), method))


def test_a_turn_is_added_without_an_event_loop(ledger: LedgerClient) -> None:
    session = SessionManager(ledger)
    session.start()
    entry = ledger.read(session.add_turn("hello", "good day"))
    assert (entry.event_type, entry.decision) == ("TURN_RECORDED", "RECORDED")
    assert (entry.submission_id, entry.reason) == (session.session_id, "Turn 1 recorded")
    assert entry.metadata["turn_number"] == 1
    assert entry.metadata["user_message"] == "hello"
    assert entry.metadata["response"] == "good day"
    assert session.turn_count == 1
    session.add_turn("and now?", "still here")
    resumed = SessionManager(ledger, session.session_id)
    assert [turn.user_message for turn in resumed.recent_turns(5)] == ["hello", "and now?"]


def test_a_turn_is_handled_without_an_event_loop(scripted: Scripted) -> None:
    with scripted(message("Hello."), flags={"supervisor.classify": False}) as (runtime, _):
        supervisor = runtime.session()._supervisor
        result = supervisor.handle_turn("hi")
        assert (result.response, result.quality_gate_passed) == ("Hello.", True)
        (turn,) = runtime.ledger.read_by_event_type("TURN_RECORDED")
    assert (turn.id, turn.metadata["user_message"]) == (result.turn_entry_id, "hi")
