"""The journey as data, on both stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from remit.ledger import LedgerClient, LedgerEntry
from remit.views import journey_page, journey_text, open_journey, prompt_journey
from remit.views.entries import between_ms, place_of
from remit.views.turn_ranges import Place, Places
from remit.views.turn_search import find_places
from tests.views.story import SESSION, Story, tell


@pytest.fixture
def story(ledger: LedgerClient) -> Story:
    story = Story(ledger)
    tell(story)
    return story


def _turn(story: Story, number: int) -> dict[str, Any]:
    (turn,) = prompt_journey(story.ledger, session_id=SESSION, turn=number)["turns"]
    assert turn["turn_number"] == number
    return turn  # type: ignore[no-any-return]


def _ids(value: Any) -> Iterator[str]:
    """Every entry id that stands as one below ``value``."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key.endswith("entry_id") and isinstance(item, str):
                yield item
            elif key.endswith("entry_ids"):
                yield from item
            elif key not in ("prompt", "attention", "shown", "left_out"):
                yield from _ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _ids(item)


def test_a_whole_session(story: Story) -> None:
    journey = prompt_journey(story.ledger, session_id=SESSION)
    assert json.loads(json.dumps(journey)) == journey
    assert (journey["session_id"], journey["agent_id"]) == (SESSION, "admin-001")
    assert journey["started_at"] == story.ledger.read(journey["start_entry_id"]).timestamp
    assert journey["ended_at"] is None
    told = [(t["turn_number"], t["outcome"], t["user_message"]) for t in journey["turns"]]
    assert told == [
        (1, "answered", "hello"),
        (2, "answered", "compare the two reports"),
        (3, "answered", "send the summary"),
        (4, "escalated", "what did the board decide?"),
        (5, "waiting", "delete the old reports"),
    ]
    story.end()
    assert prompt_journey(story.ledger, session_id=SESSION)["ended_at"] is not None


def test_every_entry_stands_in_one_turn_and_leads_to_it(story: Story) -> None:
    where: dict[str, int] = {}
    for turn in prompt_journey(story.ledger, session_id=SESSION)["turns"]:
        for entry_id in set(_ids(turn)):
            assert where.setdefault(entry_id, turn["turn_number"]) == turn["turn_number"]
    entries = [e for e in story.ledger.query() if e.event_type != "SESSION_START"]
    for entry in entries:
        if entry.id == story.ids["granted"]:
            continue  # it names no session
        journey = prompt_journey(story.ledger, entry_id=entry.id)
        assert [turn["turn_number"] for turn in journey["turns"]] == [where[entry.id]], entry
        assert journey["focus"] == entry.id
    assert where[story.ids["granted"]] == 3


def test_orders_at_once_keep_their_own_steps(story: Story) -> None:
    ids, turn = story.ids, _turn(story, 2)
    left, right, merge = turn["work_orders"]
    assert [o["step"] for o in (left, right)] == ["read left", "read right"]
    assert merge["depends_on"] == [ids["left"], ids["right"]]
    assert merge["parent_wo_id"] == ids["left"]
    assert {o["state"] for o in turn["work_orders"]} == {"completed"}
    assert (left["contract_id"], left["contract_version"]) == ("PRC-SYNTHESIZE-001", "1.2.0")
    orphan, first, tool, _ = left["steps"]
    assert [step["kind"] for step in left["steps"]] == [
        "orphaned_call", "model_call", "tool_call", "model_call",
    ]  # fmt: skip
    assert first["entry_id"] == ids["first"]
    assert first["llm_call_entry_id"]
    assert first["content_blocks"][0]["name"] == "read_file"
    assert tool["entry_id"] == ids["tool"]
    assert tool["intent_entry_ids"] == [ids["intent"]]
    assert (tool["status"], tool["arguments"]) == ("ok", {"path": "left.txt"})
    assert tool["result"]["bytes"] == 33
    assert tool["elapsed_ms"] is not None
    assert orphan["entry_id"] == ids["late"]  # it was written in the range of another turn
    assert left["ended"]["output_result"] == {"text": "Revenue grew."}
    assert left["planned"]["constraints"]["token_budget"] == 1000
    assert [item["ref"] for item in turn["left_out"]] == ["SES-OTHER0001 turn 7", "LED-00000003"]
    assert turn["left_out"][0]["wo_id"] == ids["left"]
    (gate,) = turn["gates"]
    assert gate["entry_id"] == ids["gate"]
    assert gate["verdict"] == "accept"
    assert gate["work_order_ids"] == [ids["left"], ids["right"], merge["wo_id"]]


@pytest.mark.any_store
def test_a_failed_attempt_stands_under_the_one_that_answered(story: Story) -> None:
    right = _turn(story, 2)["work_orders"][1]
    (call,) = right["steps"]
    assert call["entry_id"] == story.ids["retried"]
    assert call["prompt"][0] == {"role": "system", "content": "You read reports."}
    assert call["requested_model_id"] == "model-b"
    assert call["cached_input_tokens"] == 64
    (failed,) = call["attempts"]
    assert failed["entry_id"] == story.ids["failed"]
    assert (failed["error_code"], failed["error_message"]) == ("SERVER_ERROR", "529 overloaded")
    assert (right["llm_calls"], right["failed_calls"]) == (2, 1)


@pytest.mark.any_store
def test_an_unknown_price_is_never_zero(story: Story) -> None:
    turn = _turn(story, 2)
    left, right, _ = turn["work_orders"]
    assert left["steps"][1]["cost_usd"] is None
    assert left["cost_usd"] is None
    assert (left["known_cost_usd"], left["unpriced_calls"]) == (0.00325, 1)
    assert right["cost_usd"] == 0.00125
    assert turn["cost_usd"] is None
    assert _turn(story, 4)["cost_usd"] == 0.0  # a price that is known, and 0


@pytest.mark.any_store
def test_totals_are_the_sums_of_the_turns(story: Story) -> None:
    journey = prompt_journey(story.ledger, session_id=SESSION)
    totals, turns = journey["totals"], journey["turns"]
    for key in ("llm_calls", "failed_calls", "tool_calls", "input_tokens", "output_tokens",
                "unpriced_calls", "orphaned_calls", "settled_tokens"):  # fmt: skip
        assert totals[key] == sum(turn[key] for turn in turns), key
    assert totals["known_cost_usd"] == pytest.approx(sum(t["known_cost_usd"] for t in turns))
    assert totals["turns"] == 5
    assert totals["work_orders"] == sum(len(turn["work_orders"]) for turn in turns) == 8
    one = prompt_journey(story.ledger, session_id=SESSION, turn=2)
    assert {k: one["totals"][k] for k in ("turns", "work_orders", "llm_calls")} == {
        "turns": 1, "work_orders": 3, "llm_calls": 5,
    }  # fmt: skip


@pytest.mark.any_store
def test_a_resumed_order(story: Story) -> None:
    ids = story.ids
    (order,) = _turn(story, 3)["work_orders"]
    unknown, resumed, question, tool = order["steps"]
    assert (unknown["kind"], unknown["status"]) == ("tool_call", "unknown")
    assert unknown["entry_id"] is None
    assert unknown["intent_entry_ids"] == [ids["unknown"]]
    assert unknown["arguments"] == {"to": "ada@example.com"}
    assert resumed["kind"] == "resumed"
    assert [bool(e.get("resumed")) for e in order["executing"]] == [False, True]
    assert (question["approval_kind"], question["status"]) == ("unknown_outcome", "granted")
    assert question["decided"]["entry_id"] == ids["granted"]
    assert question["decided"]["decided_by"] == "grace"
    assert question["decided"]["decision_reason"] == "the outbox was empty"
    assert (tool["tool_id"], tool["status"]) == ("send_mail", "ok")


@pytest.mark.any_store
def test_an_order_that_waits(story: Story) -> None:
    journey = prompt_journey(story.ledger, work_order_id=story.ids["open"])
    (turn,) = journey["turns"]
    assert (turn["ended_at"], turn["response"], turn["entry_id"]) == (None, None, None)
    (order,) = turn["work_orders"]
    assert order["waiting_for"] == [story.ids["asked"]]
    assert (order["state"], order["ended"]) == ("executing", None)
    assert order["steps"][0]["status"] == "waiting"
    assert journey["focus"] == story.ids["open"]
    story.write(
        "APPROVAL_DENIED", "hot", story.ids["open"], request_id=story.ids["asked"],
        decided_by="grace",
    )  # fmt: skip
    story.write("WO_FAILED", "ho1", story.ids["open"], error_code="approval_denied",
                error_message="no", cost={})  # fmt: skip
    story.record(5, "delete the old reports", "I may not.", outcome="cancelled")
    turn = _turn(story, 5)
    assert turn["outcome"] == "cancelled"
    (order,) = turn["work_orders"]
    assert (order["state"], order["waiting_for"]) == ("failed", [])
    assert order["steps"][0]["status"] == "denied"
    assert order["ended"]["error_code"] == "approval_denied"
    assert len(order["steps"]) == 1  # the decision is no step of its own


@pytest.mark.any_store
def test_orders_by_themselves(ledger: LedgerClient) -> None:
    """The rows of a batch run at once beside a turn: each is a piece of its own."""
    story = Story(ledger)
    story.start()
    first, second = story.plan(step="row"), story.plan(step="row")
    turn = story.plan(1, "how far are you?")
    for order in (second, first, turn):
        story.begin(order)
    calls = {order: story.ask(order, response=f"of {order}") for order in (first, second, turn)}
    story.done(second)
    story.done(turn)
    story.gate(turn)
    story.record(1, "how far are you?")
    third = story.plan(step="row")
    asked = story.write("APPROVAL_REQUESTED", "ho1", third, tool_id="x", kind="approval")
    story.done(first)
    journey = prompt_journey(ledger, session_id=SESSION)
    told = [(t["kind"], t["outcome"], t["work_orders"][0]["wo_id"]) for t in journey["turns"]]
    assert told == [
        ("order", "completed", first), ("order", "completed", second),
        ("turn", "answered", turn), ("order", "waiting", third),
    ]  # fmt: skip
    for piece in journey["turns"][:3]:
        (order,) = piece["work_orders"]
        assert [step["entry_id"] for step in order["steps"]] == [calls[order["wo_id"]]]
    assert journey["totals"]["turns"] == 1
    assert journey["totals"]["work_orders"] == 4
    for entry_id, order in ((calls[first], first), (asked, third), (calls[turn], turn)):
        (piece,) = prompt_journey(ledger, entry_id=entry_id)["turns"]
        assert piece["work_orders"][0]["wo_id"] == order
    story.write("WO_FAILED", "ho1", third, error_code="cancelled", error_message="", cost={})
    (piece,) = prompt_journey(ledger, work_order_id=third)["turns"]
    assert piece["work_orders"][0]["steps"][0]["status"] == "void"
    assert piece["ended_at"] == piece["work_orders"][0]["ended_at"]


@pytest.mark.any_store
def test_a_degraded_turn_shows_its_direct_call(ledger: LedgerClient) -> None:
    story = Story(ledger)
    story.start()
    order = story.plan(1)
    story.write("DEGRADATION", "ho2", order, error_code="internal_error", error_message="broken")
    call = story.exchange("", prompt=[{"role": "user", "content": "hello"}])
    story.record(1)
    (turn,) = prompt_journey(ledger, session_id=SESSION)["turns"]
    assert turn["outcome"] == "degraded"
    assert turn["degradation"]["error_code"] == "internal_error"
    assert [step["entry_id"] for step in turn["calls"]] == [call]
    assert turn["work_orders"][0]["state"] == "dispatched"


@pytest.mark.any_store
def test_a_session_of_calls_alone(ledger: LedgerClient) -> None:
    """What a client of the gateway leaves: no turns, only calls."""
    story = Story(ledger, "key-7/2026-11-22")
    first = story.exchange("", prompt=[{"role": "user", "content": "one"}], response="1")
    second = story.exchange("WO-of-the-client", prompt="two", response="2")
    refused = ledger.write(
        LedgerEntry("PROMPT_REJECTED", "PRC-A-001", "REJECTED", "no", metadata={
            "agent_id": "a", "session_id": story.session, "contract_id": "PRC-A-001",
            "error_code": "BUDGET_EXHAUSTED", "error_message": "spent"})
    )  # fmt: skip
    journey = prompt_journey(ledger, session_id=story.session)
    one, two, rest = journey["turns"]
    assert {turn["kind"] for turn in journey["turns"]} == {"call"}
    assert (one["user_message"], one["response"], one["outcome"]) == ("one", "1", "success")
    assert [step["entry_id"] for step in one["calls"]] == [first]
    assert two["work_orders"][0]["wo_id"] == "WO-of-the-client"
    assert two["work_orders"][0]["planned"] is None
    assert [step["entry_id"] for step in two["work_orders"][0]["steps"]] == [second]
    assert [note["entry_id"] for note in rest["notes"]] == [refused]
    assert journey["totals"]["turns"] == 0
    assert journey["started_at"] is None


@pytest.mark.any_store
def test_an_answer_from_the_record_is_paid_once(ledger: LedgerClient) -> None:
    story = Story(ledger)
    order = story.plan(1)
    story.begin(order)
    call = story.ask(order)
    story.done(order)
    story.record(1)
    again = story.plan(2)
    story.begin(again)
    story.note(again, call)
    story.note(again, "", outcome="rejected", dispatch_entry_id="", latency_ms=0.0)
    story.done(again)
    story.record(2)
    turn = _turn(story, 2)
    replayed, refused = turn["work_orders"][0]["steps"]
    assert (replayed["entry_id"], replayed["replayed"]) == (call, True)
    assert (replayed["response"], replayed["cost_usd"]) == ("hi", 0.0)
    assert (refused["entry_id"], refused["outcome"]) == (None, "rejected")
    assert turn["llm_calls"] == 0
    (turn,) = prompt_journey(ledger, session_id=SESSION, turn=2, with_content=False)["turns"]
    assert turn["work_orders"][0]["steps"][0]["response"].keys() == {"$content", "bytes"}


def test_erased_content_says_under_which_entry(story: Story) -> None:
    call = _turn(story, 2)["work_orders"][1]["steps"][0]
    story.ledger.erase(call["entry_id"], reason="asked for", requested_by="dpo")
    (erasure,) = story.ledger.read_by_event_type("ERASURE")
    call = _turn(story, 2)["work_orders"][1]["steps"][0]
    assert call["response"] == {"$erased": erasure.id}
    assert call["prompt"] == [{"$erased": erasure.id}] * 2


DISGUISES: list[dict[str, Any]] = [
    {"$erased": "LED-00000001"},
    {"$erased": "LED-00000001", "to": "mallory"},
    {"$content": f"hmac-sha256:{'0' * 64}", "bytes": 3},
    {"$messages": "0" * 64, "count": 1},
    {"to": [{"$erased": None}]},
]


@pytest.mark.any_store
@pytest.mark.parametrize("disguise", DISGUISES, ids=str)
def test_what_a_model_wrote_is_never_taken_for_content_that_is_gone(
    ledger: LedgerClient, disguise: dict[str, Any]
) -> None:
    story = Story(ledger)
    order = story.plan(1)
    story.begin(order)
    asked = story.write("APPROVAL_REQUESTED", "ho1", order, tool_id="pay", kind="approval",
                        arguments=disguise)  # fmt: skip
    story.intend(order, "k", "pay", **disguise)
    story.used(order, "k", "pay", result=disguise)
    (turn,) = prompt_journey(ledger, session_id=SESSION)["turns"]
    approval, tool = turn["work_orders"][0]["steps"]
    for shown in (approval["arguments"], tool["arguments"], tool["result"]):
        assert shown == _escaped(disguise)
    journey = prompt_journey(ledger, entry_id=asked)
    page = journey_page(journey)
    lines = "\n".join(journey_text(journey, colour=False, width=400, full=True))
    for text in (page, lines):
        assert "erased under" not in text
        assert "not shown" not in text
    for word in [*_escaped(disguise), *(("mallory",) if "mallory" in str(disguise) else ())]:
        assert word in page
        assert word in lines


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {f"${k}" if k.startswith("$") else k: _escaped(v) for k, v in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def test_without_content_no_word_is_told(story: Story) -> None:
    journey = prompt_journey(story.ledger, session_id=SESSION, with_content=False)
    text = json.dumps(journey)
    for word in ("Revenue", "compare the two", "ada@example", "outbox", "529 overloaded"):
        assert word not in text
    assert "$content" in text
    assert journey["totals"] == prompt_journey(story.ledger, session_id=SESSION)["totals"]


class _Counting:
    """A ledger that counts what is read of it with content."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self.read = ledger.read
        self.given = 0
        self.read_of = 0

    def query(self, **filters: Any) -> Iterator[LedgerEntry]:
        for entry in self._ledger.query(**filters):
            self.given += filters.get("with_content", True)
            self.read_of += 1
            yield entry


@pytest.mark.any_store
def test_turns_are_read_as_they_are_asked_for(ledger: LedgerClient) -> None:
    story = Story(ledger)
    story.start()
    for number in range(1, 31):
        story.turn(number, f"question {number}")
    counting = _Counting(ledger)
    journey = open_journey(counting, session_id=SESSION)  # type: ignore[arg-type]
    assert counting.given == 0
    turns = journey["turns"]
    assert next(turns)["turn_number"] == 1
    after_one = counting.given
    assert after_one <= 12
    assert next(turns)["turn_number"] == 2
    assert counting.given <= 2 * after_one
    assert len(list(turns)) == 28
    assert counting.given <= ledger.count()  # nothing was read twice


def _same_turn(ledger: LedgerClient, session: str) -> None:
    """Each entry leads to the turn that is its own by the whole session, and to all of that."""
    whole = find_places(ledger, session)
    entries = list(ledger.query(session_id=session, with_content=False))
    for entry in entries:
        if entry.event_type in ("SESSION_START", "SESSION_END"):
            continue
        near = find_places(ledger, session, entry)
        expected = [_of(entries, whole, place) for place in whole.of_entry(entry)]
        assert [_of(entries, near, place) for place in near.of_entry(entry)] == expected
        assert (near.start, near.end) == (whole.start, whole.end)


def _of(entries: list[LedgerEntry], places: Places, place: Place) -> Any:
    if place.order:
        return place.kind, place.order
    inside = {
        place_of(entry.id) for entry in entries
        if place.after < place_of(entry.id) <= place.last and places.has(place, entry)
    }  # fmt: skip
    return place.kind, place.number, place.closed, sorted({*inside, *place.strays})


@pytest.mark.any_store
def test_an_entry_leads_to_its_turn_without_the_rest_of_the_session(story: Story) -> None:
    for number in range(20, 32):
        story.turn(number, f"question {number}")
    late = story.plan(32, "slow")
    story.record(32, "slow", "it goes on")
    for number in range(33, 42):
        story.turn(number, f"question {number}")
    story.begin(late)
    story.exchange(late)
    story.plan(None, "a row")
    story.exchange("WO-OF-A-CLIENT")
    story.exchange()
    story.plan(43, "open")
    _same_turn(story.ledger, SESSION)
    calls = Story(story.ledger, "SES-CALLS0001")
    for number in range(20):
        calls.exchange(f"WO-{number}" if number % 3 else "")
    _same_turn(story.ledger, calls.session)
    rows = Story(story.ledger, "SES-ROWS00001")
    for _ in range(5):
        rows.exchange(rows.plan())
    rows.end()
    _same_turn(story.ledger, rows.session)


_number = count(1)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.permutations([1] * 5 + [2] * 5 + [3] * 5))
@example([3] * 4 + [1] * 5 + [2] * 5 + [3])  # two others end before the one that began first
def test_turns_that_run_at_once_are_told_apart(tmp_path: Path, order: list[int]) -> None:
    """Three turns of one session, their entries in any order: each has its own, all of it."""
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        story = Story(ledger, f"SES-MIXED{next(_number):08d}")
        names: dict[int, str] = {}
        steps: dict[int, Iterator[Any]] = {}

        def run(turn: int) -> Iterator[None]:
            names[turn] = wo = story.plan(turn, f"question {turn}")
            yield
            story.begin(wo)
            yield
            exchange = story.exchange(wo, response=f"answer {turn}")
            yield
            story.note(wo, exchange)
            story.done(wo)
            yield
            story.record(turn, f"question {turn}", f"answer {turn}")
            yield

        for turn in order:
            next(steps.setdefault(turn, run(turn)))
        journey = prompt_journey(ledger, session_id=story.session)
        assert sorted(turn["turn_number"] for turn in journey["turns"]) == [1, 2, 3]
        for turn in journey["turns"]:
            number = turn["turn_number"]
            (one,) = turn["work_orders"]
            assert one["wo_id"] == names[number]
            assert one["state"] == "completed"
            (step,) = one["steps"]
            assert step["response"] == turn["response"] == f"answer {number}"
            assert step["llm_call_entry_id"]
            (turn_again,) = prompt_journey(ledger, work_order_id=names[number])["turns"]
            assert turn_again == turn
        _same_turn(ledger, story.session)


@pytest.mark.any_store
def test_a_client_call_is_one_journey_with_all_its_attempts(ledger: LedgerClient) -> None:
    """Two clients of one session call at once; the first needs three attempts."""
    story = Story(ledger, "key-7/2026-11-22")
    ask = [{"role": "user", "content": "one"}]
    first = story.fail("", took=0.1)
    other = story.exchange("", prompt=[{"role": "user", "content": "two"}], response="2")
    second = story.fail("", took=0.1, retry_of=first, attempt=2)
    refused = ledger.write(
        LedgerEntry("PROMPT_REJECTED", "PRC-A-001", "REJECTED", "no", metadata={
            "agent_id": "a", "session_id": story.session, "contract_id": "PRC-A-001",
            "error_code": "BUDGET_EXHAUSTED", "error_message": "spent"})
    )  # fmt: skip
    last = story.exchange("", prompt=ask, response="1", retry_of=second, attempt=3, took=0.2)
    whole = prompt_journey(ledger, session_id=story.session)["turns"]
    assert [turn["kind"] for turn in whole] == ["call"] * 3
    two, no, one = whole
    assert [step["entry_id"] for step in two["calls"]] == [other]
    assert (no["calls"], [note["entry_id"] for note in no["notes"]]) == ([], [refused])
    (step,) = one["calls"]
    assert step["entry_id"] == last
    assert [attempt["entry_id"] for attempt in step["attempts"]] == [first, second]
    assert (one["llm_calls"], one["failed_calls"], one["notes"]) == (3, 2, [])
    assert one["started_at"] == step["attempts"][0]["started_at"]
    assert one["elapsed_ms"] == between_ms(one["started_at"], step["timestamp"])
    for entry_id in (first, second, last, ledger.read(first).metadata["dispatch_entry_id"]):
        found = prompt_journey(ledger, entry_id=entry_id)
        assert found["turns"] == [one], entry_id
        assert found["totals"]["llm_calls"] == 3
    assert prompt_journey(ledger, entry_id=other)["turns"] == [two]
    assert prompt_journey(ledger, entry_id=refused)["turns"] == [no]
