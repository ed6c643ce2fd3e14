"""What ADMIN can tell of sessions, budgets and journeys, all of it read from the ledger."""

from __future__ import annotations

from collections.abc import Callable

from remit.ledger import LedgerEntry
from remit.runtime import Conversation
from tests.agents.admin.conftest import Office
from tests.support.wire import message, tool_use

Offices = Callable[..., Office]


def _talk(office: Office, *messages: str) -> Conversation:
    conversation = office.runtime.session()
    for one in messages:
        conversation.turn(one)
    return conversation


def test_an_overview_adds_up_what_the_session_used(office: Offices) -> None:
    it = office(message("Let me see.", tool_use("list_sessions", {})), message("One."))
    session = _talk(it, "list the sessions").session_id
    told = it.output("session_overview", session_id=session)
    assert told["status"] == "ok"
    assert (told["session_id"], told["turns"], told["ended"]) == (session, 1, False)
    assert (told["llm_calls"], told["input_tokens"], told["output_tokens"]) == (3, 33, 21)
    assert told["models"] == {"claude-test-1": 3}
    assert told["tools"] == {"list_sessions": 1}
    assert told["open_approvals"] == []
    assert told["unfinished_turn"] is None
    # Asked in a turn, that one is meant where none is named.
    assert it.output("session_overview", session=session)["session_id"] == session
    assert "Name a session" in it.error("session_overview")
    assert "no session SES-UNKNOWN1" in it.error("session_overview", session_id="SES-UNKNOWN1")
    assert it.run("session_overview", session_id="../../etc").status == "error"


def test_both_sides_of_every_turn_come_back(office: Offices) -> None:
    it = office(*(message(f"answer {number}") for number in range(1, 26)))
    session = _talk(it, *(f"question {number}" for number in range(1, 26))).session_id
    window = it.output("reconstruct_session", session_id=session, from_turn=3, to_turn=5)
    assert [(t["user_message"], t["response"]) for t in window["turn_list"]] == [
        (f"question {n}", f"answer {n}") for n in (3, 4, 5)
    ]
    assert all(turn["entry_id"].startswith("LED-") for turn in window["turn_list"])
    assert "note" not in window
    latest = it.output("reconstruct_session", session=session)
    assert (latest["turns"], latest["from_turn"], latest["to_turn"]) == (25, 6, 25)
    assert len(latest["turn_list"]) == 20
    end = it.output("reconstruct_session", session_id=session, from_turn=24, to_turn=99)
    assert [turn["turn_number"] for turn in end["turn_list"]] == [24, 25]
    assert "none from 26" in it.error("reconstruct_session", session_id=session, from_turn=26)
    ledger = it.runtime.ledger
    ledger.erase(window["turn_list"][0]["entry_id"], reason="asked to")
    (third,) = it.output(
        "reconstruct_session", session_id=session, from_turn=3, to_turn=3
    )["turn_list"]  # fmt: skip
    assert list(third["user_message"]) == ["$erased"]
    short = it.output("reconstruct_session", session=session, most=4096)
    assert "note" in short
    nothing = _talk(it).session_id
    assert it.output("reconstruct_session", session_id=nothing)["turn_list"] == []


def test_a_journey_is_told_with_the_ids_of_its_entries(office: Offices) -> None:
    it = office(message("Let me see.", tool_use("list_sessions", {})), message("One."))
    session = _talk(it, "list the sessions").session_id
    told = it.output("trace_prompt_journey", session_id=session)
    (turn,) = told["turns"]
    assert (turn["user_message"], turn["response"]) == ("list the sessions", "One.")
    assert turn["outcome"] == "answered"
    steps = [
        step for order in turn["work_orders"] for step in order["steps"] if step["kind"] != "note"
    ]
    kinds = [step["kind"] for step in steps]
    assert kinds == ["model_call", "model_call", "tool_call", "model_call"]
    tool = steps[2]
    assert (tool["tool_id"], tool["status"]) == ("list_sessions", "ok")
    assert all("prompt" not in step for step in steps)
    read = {entry.id: entry.event_type for entry in it.runtime.ledger.read_all()}
    assert read[turn["entry_id"]] == "TURN_RECORDED"
    assert [read[step["entry_id"]] for step in steps] == [
        "EXCHANGE", "EXCHANGE", "TOOL_CALL", "EXCHANGE",
    ]  # fmt: skip
    assert [read[gate["entry_id"]] for gate in turn["gates"]] == ["WO_QUALITY_GATE"]
    order = turn["work_orders"][1]["wo_id"]
    for which in ({"work_order_id": order}, {"entry_id": tool["entry_id"]}):
        found = it.output("trace_prompt_journey", **which)
        assert [one["entry_id"] for one in found["turns"]] == [turn["entry_id"]]
        assert found["focus"] in which.values()
    assert it.output("trace_prompt_journey", session=session)["turns"][0] == turn


def test_budgets_are_told_as_they_stand(office: Offices) -> None:
    it = office(message("hello"), message("good day"))
    first = _talk(it, "hi")
    agent = it.runtime.agent("frugal", session_usd=0.5, session_tokens=9_000)
    second = agent.session()
    everything = it.output("budget_status")
    assert everything["spent_tokens"] == 36
    assert everything["count"] == 2
    # The busiest first; the other one has its own limits.
    assert [row["scope"] for row in everything["scopes"]] == [
        f"session:{first.session_id}", f"session:{second.session_id}",
    ]  # fmt: skip
    told = it.output("budget_status", session_id=second.session_id)
    assert (told["count"], told["spent_tokens"], told["spent_usd"]) == (1, 0, 0.0)
    (row,) = told["scopes"]
    assert (row["limit_usd"], row["token_limit"]) == (0.5, 9_000)
    assert len(it.output("budget_status", max_scopes=1)["scopes"]) == 1
    assert "no budget" in it.error("budget_status", session_id="SES-UNKNOWN1")


def test_what_calls_used_and_cost(office: Offices) -> None:
    it = office(message("hello"), message("good day"))
    _talk(it, "hi", "good morning")
    calls = it.runtime.ledger.read_by_event_type("EXCHANGE")
    told = it.output("usage", by="model")
    assert told["calls"] == len(calls)
    assert told["input_tokens"] == sum(call.metadata["input_tokens"] for call in calls)
    assert [row["name"] for row in told["rows"]] == ["claude-test-1"]
    (day,) = it.output("usage", by="day")["rows"]
    assert day["name"] == calls[-1].timestamp[:10]
    assert {key: told[key] for key in day if key != "name"} == {
        key: value for key, value in day.items() if key != "name"
    }
    assert [row["name"] for row in it.output("usage", by="key")["rows"]] == ["(none)"]
    assert it.output("usage", by="agent")["count"] == 1
    # What a key spent is its owner's; what nobody can read of an entry counts as nothing.
    ledger = it.runtime.ledger
    about = {"key_id": "KEY-1", "user_id": "ada"}
    ledger.write(LedgerEntry("KEY_CREATED", "KEY-1", "CREATED", "Key created", metadata=about))
    spent = {"key_id": "KEY-1", "outcome": "success", "input_tokens": 5, "cost_usd": 0.25}
    ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "r", metadata=spent))
    ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "r", metadata={"input_tokens": "many"}))
    first = it.output("usage", by="user")["rows"][0]
    assert first == {
        "name": "ada", "calls": 1, "failed": 0, "input_tokens": 5, "output_tokens": 0,
        "tokens": 5, "usd": 0.25, "exact": True, "unpriced_calls": 0,
    }  # fmt: skip
    assert it.run("usage", by="colour").status == "error"
    assert it.run("usage", days=0).status == "error"


def test_why_a_model_answered(office: Offices) -> None:
    it = office(message("hello"))
    session = _talk(it, "hi").session_id
    told = it.output("explain_route", session_id=session)
    assert told == it.output("explain_route", session=session)
    assert told == it.output("explain_route", entry_id=told["call"]["entry_id"])
    assert told["call"]["provider_id"] == "anthropic"
    assert told["call"]["tokens"]["input"] > 0
    said = " ".join(told["why"])
    assert "anthropic/" in said
    assert "no call in that session" in it.error("explain_route", session_id="SES-UNKNOWN1")
    assert "Name a session" in it.error("explain_route")
    started = it.runtime.ledger.read_by_event_type("SESSION_START")[0]
    assert "neither a routing decision nor" in it.error("explain_route", entry_id=started.id)
    (tool,) = [
        t for t in it.tools(it.runtime.loaded.settings.tools) if t.tool_id == "explain_route"
    ]
    assert tool.describe is not None
    assert tool.describe(told) == said


def test_sessions_are_listed_and_the_ledger_verified(office: Offices) -> None:
    it = office(message("hello"))
    conversation = _talk(it, "hi")
    for ended in (False, True):
        (row,) = it.output("list_sessions")["sessions"]
        assert (row["session_id"], row["turns"]) == (conversation.session_id, 1)
        assert row["ended"] is ended
        conversation.close()
    assert it.output("verify_ledger")["verified"] is True
