"""What a turn costs the ledger: commits, reads and entries, of which none may become more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from remit.agents.supervisor import thread_tools
from remit.agents.tools import Tool
from remit.ledger import LedgerClient, LedgerWriteError
from remit.ledger.sqlite import SqliteStore
from remit.runtime import Runtime
from tests.support.agents import TEXT, Scripted, anthropic_runtime, tools_only
from tests.support.wire import message, tool_use

_CALL = ["DISPATCH", "EXCHANGE", "LLM_CALL"]
_TOOL = ["TOOL_INTENT", "TOOL_CALL"]
_BEGIN = ["WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "BUDGET_ALLOCATED"]
_END = ["WO_COMPLETED", "WO_CHAIN_COMPLETE", "WO_QUALITY_GATE", "TURN_RECORDED"]


@dataclass
class _Counted:
    """What was done to a store: units of each commit, and statements that read."""

    commits: list[int] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)


@contextmanager
def _counting(ledger: LedgerClient) -> Iterator[_Counted]:
    counted = _Counted()
    run, select, before = SqliteStore.run, SqliteStore.select, ledger.count()

    def counted_run(store: SqliteStore, units: Any) -> Any:
        if "Breakers" not in repr(units[0].call):  # looked at by the clock, as below
            counted.commits.append(len(units))
        return run(store, units)

    def counted_select(store: SqliteStore, sql: str, parameters: Any = ()) -> Any:
        if "breakers" not in sql:  # read now and then by the clock, whatever is done
            counted.reads.append(sql)
        return select(store, sql, parameters)

    with (
        patch.object(SqliteStore, "run", counted_run),
        patch.object(SqliteStore, "select", counted_select),
    ):
        yield counted
    counted.entries = [entry.event_type for entry in ledger.query(after=before - 1)]


def test_a_plain_turn(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, _):
        session = runtime.agent("a").session()
        session.turn("the first one")
        with _counting(runtime.ledger) as counted:
            assert session.turn("hello").response == "Hello."
    assert counted.entries == [*_BEGIN, *_CALL, *_END]
    assert counted.commits == [1] * 4  # the lease; up to DISPATCH; EXCHANGE; the rest
    assert len(counted.reads) <= 2, counted.reads  # the number is free; what the budget has left


def test_a_turn_with_two_tools_one_after_the_other(scripted: Scripted) -> None:
    script = (
        message("Hello."),
        tools_only(tool_use("look", {"text": "a"})),
        tools_only(tool_use("look", {"text": "b"})),
        message("Seen."),
    )
    look = Tool("look", "Look.", TEXT, lambda text: text, on_unknown="retry")
    with scripted(*script) as (runtime, _):
        session = runtime.agent("a", tools=[look]).session()
        session.turn("the first one")
        with _counting(runtime.ledger) as counted:
            assert session.turn("look twice").response == "Seen."
    assert counted.entries == [*_BEGIN, *(_CALL + _TOOL) * 2, *_CALL, *_END]
    # Beside a plain turn's, for each tool: its intent; its result up to DISPATCH; EXCHANGE.
    assert counted.commits == [1] * 10
    assert len(counted.reads) <= 4, counted.reads  # a tool may have called models, too


def _sent(call: Any) -> str:
    return json.dumps(call.body["messages"])


def test_what_another_process_did_in_the_session_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, message("Hello.")) as (runtime, server):
        session = runtime.agent("a").session()
        session.turn("the first")
        with Runtime.open(root) as other:
            other.agent("a").session(session.session_id).turn("from elsewhere")
        assert session.turn("the third").turn_number == 3
        assert "from elsewhere" in _sent(server.calls[-1])
        assert "the first" in _sent(server.calls[-1])


def test_what_was_erased_is_not_shown_again(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a").session()
        session.turn("my name is Ann")
        first = session.turn("a second one").turn_entry_id
        assert "Ann" in _sent(server.calls[-1])
        (told,) = runtime.ledger.query(event_type="TURN_RECORDED", limit=1)
        runtime.ledger.erase(told.id, reason="asked for")
        session.turn("a third one")
        assert "Ann" not in _sent(server.calls[-1])
        assert told.id != first


def test_what_another_session_left_open_is_seen_in_the_next_turn(scripted: Scripted) -> None:
    opening = tools_only(tool_use("open_thread", {"title": "Send Ann the report"}))
    script = (message("Hello."), opening, message("I will."), message("Hello again."))
    with scripted(*script) as (runtime, server):
        agent = runtime.agent("a", tools=thread_tools(), shares_sessions=True)
        session = agent.session()
        session.turn("the first")
        agent.session().turn("note it")
        session.turn("the second")
        body = json.dumps(server.calls[-1].body)
        assert "Send Ann the report" in body


def test_a_refused_call_has_its_order_on_record_before_it(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a", max_retries=0).session(tokens=10)
        before = runtime.ledger.count()
        assert not session.turn("hello").quality_gate_passed
        entries = [entry.event_type for entry in runtime.ledger.query(after=before - 1)]
        assert not server.calls
    assert entries[: len(_BEGIN) + 1] == [*_BEGIN, "PROMPT_REJECTED"]


def test_nothing_is_sent_where_the_order_cannot_be_put_on_record(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a").session()
        session.turn("the first")

        def refused(*_: Any) -> str:
            raise LedgerWriteError("The disk is full.")

        monkeypatch.setattr("remit.gateway.budget.budgeter._allocate", refused)
        before, sent = runtime.ledger.count(), len(server.calls)
        with pytest.raises(LedgerWriteError):
            session.turn("the second")
        assert (runtime.ledger.count(), len(server.calls)) == (before, sent)
        monkeypatch.undo()
        assert session.turn("the third").turn_number == 2
        assert runtime.ledger.verify().verified
