"""An approval is for one exact action, by one person, until a time, and is used once."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.agents import Approval, ApprovalError, ApprovalQueue, Permit, arguments_hash
from remit.agents.tools import Tool
from remit.agents.worker import tool_permissions
from remit.agents.workorders import ApprovalNeeded
from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient, LedgerEntry
from remit.runtime import Conversation, Runtime
from tests.support.agents import Scripted, anthropic_runtime, tools_only
from tests.support.waiting import at_once
from tests.support.wire import WireServer, message, tool_use
from tests.upgrade.conftest import unpack

SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "usd": {"type": "number", "maximum": 100}},
    "required": ["order"],
    "additionalProperties": False,
}
REFUND = Tool("refund", "Pay an order back.", SCHEMA, print)
WANTED = {"order": 12, "usd": 5}
SESSION = "SES-APPROVED"
OTHERS = 1000


def _settings(**tools: Any) -> ApprovalSettings:
    return ApprovalSettings.model_validate({"valid_s": 3600.0, "tools": tools})


@pytest.fixture
def queue(ledger: LedgerClient) -> ApprovalQueue:
    return ApprovalQueue(ledger, _settings())


def _ask(queue: ApprovalQueue, arguments: Mapping[str, Any] = WANTED, **who: Any) -> Approval:
    return queue.request(REFUND, arguments, session_id=SESSION, agent_id="client", **who)


def _granted(queue: ApprovalQueue, arguments: Mapping[str, Any] = WANTED) -> Approval:
    """What Ann granted."""
    approval = _ask(queue, arguments)
    queue.decide(approval.request_id, granted=True, by="Ann")
    return approval


def _intent(approval: Approval, **other: Any) -> LedgerEntry:
    """The intent of what was approved, or of something else."""
    action = {
        "tool_id": approval.tool_id,
        "arguments": dict(approval.arguments),
        "idempotency_key": approval.idempotency_key,
    }
    return LedgerEntry(
        event_type="TOOL_INTENT",
        submission_id=SESSION,
        decision="TOOL_INTENT",
        reason=f"TOOL_INTENT for {SESSION}",
        metadata={
            "provenance": {"agent_id": "client", "agent_class": "X", "session_id": SESSION},
            "scope": {"tier": "ho1"},
            **action,
            **other,
        },
    )


def _begin(ledger: LedgerClient, permit: Permit, intent: LedgerEntry, tool: Tool = REFUND) -> str:
    return ledger.transact(permit.begin(intent, tool.digest, ledger.prepare))


def test_1000_replayed_or_edited_approvals_are_refused(
    ledger: LedgerClient, queue: ApprovalQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    approval = _granted(queue)
    other = _granted(queue, {"order": 13})
    permit = queue.permit(approval.request_id)
    changed = replace(REFUND, description="Pay an order back, and the next ten.")
    before = ledger.count()
    # A changed tool before its first call; then the first call; then everything again.
    assert "definition" in _begin(ledger, permit, _intent(approval), changed)
    assert ledger.count() == before
    assert _begin(ledger, permit, _intent(approval)) == ""
    assert ledger.count() == before + 1

    async def replay() -> list[str]:
        def attempt(number: int) -> Any:
            kind = number % 5
            intent, tool, used = _intent(approval), REFUND, permit
            if kind == 1:
                intent = _intent(approval, arguments={**WANTED, "usd": 5 + number})
            elif kind == 2:
                intent = _intent(approval, tool_id="payout")
            elif kind == 3:
                intent = _intent(approval, idempotency_key=f"{SESSION}/another/{number}")
            elif kind == 4:
                tool, used = changed, queue.permit(other.request_id)
                intent = _intent(other)
            return ledger.submit(used.begin(intent, tool.digest, ledger.prepare))

        return await asyncio.gather(*(attempt(number) for number in range(OTHERS)))

    refusals = asyncio.run(replay())
    assert ledger.count() == before + 1
    refused = sum(bool(problem) for problem in refusals)
    kinds = Counter(" ".join(problem.split()[-4:-1]) for problem in refusals)
    assert len(kinds) == 5, kinds
    assert refused == OTHERS
    assert "used already" in refusals[0]
    (intent,) = ledger.query(event_type="TOOL_INTENT")
    assert intent.metadata["approval"] == approval.request_id
    assert queue.get(approval.request_id).used_by == intent.id
    with capsys.disabled():
        print(
            f"\n{refused:,} of {OTHERS:,} replayed or edited approvals refused; "
            "a changed tool refused before its first call"
        )


def test_of_many_that_begin_at_once_one_does(ledger: LedgerClient, queue: ApprovalQueue) -> None:
    approval = _granted(queue)
    together, outcomes = threading.Barrier(8), []

    def begin() -> None:
        permit = queue.permit(approval.request_id)
        together.wait()
        outcomes.append(_begin(ledger, permit, _intent(approval)))

    at_once(lambda _: begin(), range(8))
    assert outcomes.count("") == 1
    assert ledger.count() == 3


def test_one_that_ran_out_of_time_is_refused(ledger: LedgerClient, queue: ApprovalQueue) -> None:
    approval = _ask(queue)
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    queue.decide(approval.request_id, granted=True, by="Ann", until=soon)
    permit = queue.permit(approval.request_id)
    while datetime.now(UTC) <= soon + timedelta(milliseconds=50):
        threading.Event().wait(0.05)
    assert f"expired at {queue.get(approval.request_id).expires_at}" in _begin(
        ledger, permit, _intent(approval)
    )
    assert not queue.get(approval.request_id).usable(ledger.wall_time)
    assert _ask(queue).request_id != approval.request_id  # asking again is another request


def test_until_is_bounded(queue: ApprovalQueue) -> None:
    approval = _ask(queue)
    now = datetime.now(UTC)
    for until in (now - timedelta(seconds=1), now + timedelta(seconds=3700)):
        with pytest.raises(InvalidInputError, match="cannot expire at"):
            queue.decide(approval.request_id, granted=True, by="Ann", until=until)
    queue.decide(approval.request_id, granted=True, by="Ann")
    expires = datetime.fromisoformat(queue.get(approval.request_id).expires_at)
    assert timedelta(minutes=59) < expires - now < timedelta(minutes=61)


def test_the_same_action_is_asked_for_once_until_it_is_used(
    ledger: LedgerClient, queue: ApprovalQueue
) -> None:
    first = _ask(queue)
    assert _ask(queue).request_id == first.request_id
    assert _ask(queue, {"order": 13}).request_id != first.request_id
    queue.decide(first.request_id, granted=True, by="Ann")
    granted = _ask(queue)
    assert (granted.request_id, granted.state) == (first.request_id, "granted")
    assert _begin(ledger, queue.permit(first.request_id), _intent(granted)) == ""
    again = _ask(queue)
    assert (again.request_id != first.request_id, again.state) == (True, "pending")


def test_hashes_are_content_and_go_with_it(ledger: LedgerClient, queue: ApprovalQueue) -> None:
    approval = _ask(queue)
    entry_id = queue.decide(approval.request_id, granted=True, by="Ann")
    known = arguments_hash(WANTED)
    for found in (approval.request_id, entry_id):
        assert ledger.read(found).metadata["arguments_hash"] == known
    permit = queue.permit(approval.request_id)
    ledger.erase(approval.request_id, reason="asked to")
    records = [
        str(row) for row in ledger.transact(lambda tx: tx.execute("SELECT record FROM entries"))
    ]
    assert not any(known in record for record in records)
    erased = queue.permit(approval.request_id)
    assert "erased" in _begin(ledger, erased, _intent(approval))
    assert permit.granted.id == entry_id


def test_what_is_not_granted_permits_nothing(ledger: LedgerClient, queue: ApprovalQueue) -> None:
    approval = _ask(queue)
    with pytest.raises(ApprovalError, match="not granted"):
        queue.permit(approval.request_id)
    denial = queue.decide(approval.request_id, granted=False, by="Ann")
    with pytest.raises(ApprovalError, match="not granted"):
        queue.permit(approval.request_id)
    request = ledger.read(approval.request_id)
    forged = Permit(request, ledger.read(denial))
    assert "does not grant" in _begin(ledger, forged, _intent(approval))
    said = ledger.read(denial).metadata
    worker = {**said, "provenance": {**said["provenance"], "agent_class": "KERNEL.semantic"}}
    grant = LedgerEntry(
        "APPROVAL_GRANTED", request.id, "GRANTED", "x", metadata=worker, id="LED-0000ffff"
    )
    assert "does not grant" in _begin(ledger, Permit(request, grant), _intent(approval))


# -- changed arguments -----------------------------------------------------------------------


def test_a_person_changes_the_arguments_within_the_schema(
    ledger: LedgerClient, queue: ApprovalQueue
) -> None:
    approval = _ask(queue)
    for wrong in ({"usd": 5}, {"order": "12"}, {"order": 1, "usd": 101}, {"order": 1, "x": 1}):
        with pytest.raises(InvalidInputError, match="do not fit refund"):
            queue.decide(approval.request_id, granted=True, by="Ann", arguments=wrong)
    with pytest.raises(InvalidInputError):
        queue.decide(approval.request_id, granted=True, by="Ann", arguments={"order": math.inf})
    edited = {"order": 12, "usd": 1}
    queue.decide(approval.request_id, granted=True, by="Ann", arguments=edited)
    decided = queue.get(approval.request_id)
    assert (decided.arguments, decided.requested_arguments) == (edited, WANTED)
    (grant,) = ledger.query(event_type="APPROVAL_GRANTED")
    assert grant.metadata["arguments_hash"] == arguments_hash(edited) != arguments_hash(WANTED)
    permit = queue.permit(approval.request_id)
    assert "other arguments" in _begin(ledger, permit, _intent(approval))
    assert _begin(ledger, permit, _intent(decided)) == ""


def test_changed_arguments_that_were_erased_permit_nothing(
    ledger: LedgerClient, queue: ApprovalQueue
) -> None:
    approval = _ask(queue)
    edited = {"order": 12, "usd": 1}
    grant_id = queue.decide(approval.request_id, granted=True, by="Ann", arguments=edited)
    ledger.erase(grant_id, reason="asked to")
    permit = queue.permit(approval.request_id)
    assert permit.instead_of(WANTED) == WANTED
    assert "erased" in _begin(ledger, permit, _intent(approval))


def test_true_and_1_are_not_the_same_arguments(ledger: LedgerClient, queue: ApprovalQueue) -> None:
    flag = Tool("flag", "Sets it.", {"type": "object", "properties": {"to": {}}}, print)
    about: dict[str, Any] = {"session_id": SESSION, "agent_id": "client"}
    first = queue.request(flag, {"to": True}, **about).request_id
    assert queue.request(flag, {"to": 1}, **about).request_id != first
    queue.decide(first, granted=True, by="Ann", arguments={"to": 1})
    decided = queue.get(first)
    assert decided.arguments["to"] is not True
    permit = queue.permit(first)
    assert permit.instead_of({"to": 1.0})["to"] is not True
    assert permit.instead_of({"to": True}) == decided.arguments
    assert _begin(ledger, permit, _intent(decided), flag) == ""


def test_what_one_client_of_a_session_was_granted_is_no_others(queue: ApprovalQueue) -> None:
    mine = _ask(queue, requested_by="KEY-1")
    queue.decide(mine.request_id, granted=True, by="Ann")
    assert _ask(queue, requested_by="KEY-2").request_id != mine.request_id
    other = queue.request(
        REFUND, WANTED, session_id=SESSION, agent_id="other", requested_by="KEY-1"
    )
    assert other.request_id != mine.request_id
    assert _ask(queue, requested_by="KEY-1").request_id == mine.request_id


# -- several people --------------------------------------------------------------------------


def test_several_people_who_are_several(ledger: LedgerClient) -> None:
    queue = ApprovalQueue(ledger, _settings(refund={"people": 2}))
    approval = _ask(queue, requested_by="Eve")
    request = approval.request_id
    assert approval.people == 2
    with pytest.raises(ApprovalError, match="Eve requested refund"):
        queue.decide(request, granted=True, by=" eve")
    with pytest.raises(ApprovalError, match="Eve requested refund"):
        queue.decide(request, granted=True, by="key 7", person="Eve")
    queue.decide(request, granted=True, by="Ann")
    half = queue.get(request)
    assert (half.state, half.signed_by) == ("pending", ("Ann",))
    with pytest.raises(ApprovalError, match="not granted"):
        queue.permit(request)
    for name in ("Ann", "ANN ", "\uff21nn"):
        with pytest.raises(ApprovalError, match="already"):
            queue.decide(request, granted=True, by=name)
    with pytest.raises(ApprovalError, match="already"):
        queue.decide(request, granted=True, by="key 8", person="Ann")
    queue.decide(request, granted=True, by="Bob")
    assert queue.get(request).state == "granted"
    assert _begin(ledger, queue.permit(request), _intent(approval)) == ""


def test_they_agree_on_the_same_arguments_or_not_at_all(ledger: LedgerClient) -> None:
    queue = ApprovalQueue(ledger, _settings(refund={"people": 2}))
    request = _ask(queue).request_id
    less = {"order": 12, "usd": 1}
    queue.decide(request, granted=True, by="Ann")
    queue.decide(request, granted=True, by="Bob", arguments=less)
    assert queue.get(request).state == "pending"
    assert queue.get(request).arguments == less
    with pytest.raises(ApprovalError, match="Bob changed the arguments"):
        queue.decide(request, granted=True, by="Cid")
    queue.decide(request, granted=True, by="Ann", arguments=less)
    decided = queue.get(request)
    assert (decided.state, decided.arguments) == ("granted", less)
    denied = _ask(queue, {"order": 14}).request_id
    queue.decide(denied, granted=True, by="Ann")
    queue.decide(denied, granted=False, by="Bob")
    assert queue.get(denied).state == "denied"


def test_what_several_grant_ends_with_the_first_of_them(ledger: LedgerClient) -> None:
    queue = ApprovalQueue(ledger, _settings(refund={"people": 2}))
    soon = datetime.now(UTC) + timedelta(minutes=1)
    request = _ask(queue).request_id
    queue.decide(request, granted=True, by="Ann", until=soon)
    queue.decide(request, granted=True, by="Bob")
    assert datetime.fromisoformat(queue.get(request).expires_at) == soon
    late = _ask(queue, {"order": 13}).request_id
    queue.decide(late, granted=True, by="Ann", until=datetime.now(UTC) + timedelta(seconds=0.2))
    time.sleep(0.3)
    queue.decide(late, granted=True, by="Bob")
    half = queue.get(late)
    assert (half.state, half.signed_by) == ("pending", ("Bob",))
    queue.decide(late, granted=True, by="Ann")
    assert queue.get(late).state == "granted"


@pytest.mark.parametrize(
    "name", ["Ann Lee", "ann\u00a0 lee", "ann\u200b lee", "a\u00adnn lee", "\u202eann lee\u2066"]
)
def test_no_spelling_of_a_name_makes_another_person(ledger: LedgerClient, name: str) -> None:
    queue = ApprovalQueue(ledger, _settings(refund={"people": 2, "approvers": ["ann lee", "bob"]}))
    request = _ask(queue, requested_by="ann lee").request_id
    with pytest.raises(ApprovalError, match="requested"):
        queue.decide(request, granted=True, by=name)
    with pytest.raises(ApprovalError, match="may not approve"):
        queue.decide(request, granted=True, by="eve")
    with pytest.raises(ApprovalError, match="missing"):
        queue.decide(request, granted=True, by="\u200b")


def test_only_those_who_are_named_approve(ledger: LedgerClient) -> None:
    queue = ApprovalQueue(ledger, _settings(refund={"people": 2, "approvers": ["ann", "bob"]}))
    request = _ask(queue, requested_by="dan").request_id
    with pytest.raises(ApprovalError, match="may not approve"):
        queue.decide(request, granted=True, by="cid")
    queue.decide(request, granted=True, by="ann")
    with pytest.raises(ApprovalError, match="already"):
        queue.decide(request, granted=True, by="ann")
    queue.decide(request, granted=True, by="bob")
    assert queue.get(request).state == "granted"


# -- turns -----------------------------------------------------------------------------------


def _pay(paid: list[dict[str, Any]], description: str = "Pay an order back.") -> Tool:
    def pay(**arguments: Any) -> dict[str, Any]:
        paid.append(arguments)
        return {"paid": arguments}

    return Tool("refund", description, SCHEMA, pay)


@contextmanager
def _asked(
    root: Path, monkeypatch: pytest.MonkeyPatch, paid: list[dict[str, Any]], answer: str
) -> Iterator[tuple[Runtime, WireServer, Conversation[Any], ApprovalNeeded]]:
    """A turn of a clerk that waits for a refund to be approved, before it says ``answer``."""
    script = tools_only(tool_use("refund", WANTED, "t1")), message(answer)
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, server):
        session = runtime.agent("clerk", tools=[_pay(paid)], approve=["refund"]).session()
        (request,) = session.turn("refund it").waiting_for
        yield runtime, server, session, request


def test_what_a_person_changed_runs_and_the_model_is_shown_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[dict[str, Any]] = []
    with _asked(tmp_path / "root", monkeypatch, paid, "Done.") as asked:
        runtime, server, session, request = asked
        runtime.approvals.decide(
            request.request_id, granted=True, by="Ann", arguments={"order": 12, "usd": 1}
        )
        result = session.resume()
        shown = server.calls[-1].body["messages"][-1]["content"][0]["content"]
        (intent,) = runtime.ledger.query(event_type="TOOL_INTENT")
        (call,) = runtime.ledger.query(event_type="TOOL_CALL")
        used = runtime.approvals.get(request.request_id).used_by
    assert result is not None
    assert result.response == "Done."
    assert paid == [{"order": 12, "usd": 1}]
    assert shown == (
        'Ann changed the arguments; it ran with {"order":12,"usd":1}\n{"paid":{"order":12,"usd":1}}'
    )
    assert intent.metadata["approval"] == request.request_id
    assert used == intent.id
    assert call.metadata["arguments"] == {"order": 12, "usd": 1}


def test_a_tool_that_changed_after_the_grant_is_refused_before_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[dict[str, Any]] = []
    with _asked(tmp_path / "root", monkeypatch, paid, "I could not.") as asked:
        runtime, server, session, request = asked
        runtime.approvals.decide(request.request_id, granted=True, by="Ann")
        changed = runtime.agent(
            "clerk", tools=[_pay(paid, "Pay it back twice.")], approve=["refund"]
        )
        result = changed.session(session.session_id).resume()
        shown = server.calls[-1].body["messages"][-1]["content"][0]
        (call,) = runtime.ledger.query(event_type="TOOL_CALL")
        assert not list(runtime.ledger.query(event_type="TOOL_INTENT"))
        assert runtime.ledger.verify().verified
    assert result is not None
    assert paid == []
    assert call.metadata["status"] == "refused"
    assert shown["is_error"]
    assert shown["content"] == (
        "refused: approval_invalid: the definition of refund was changed after "
        f"{request.request_id}."
    )


def test_who_the_session_is_for_is_who_asked(scripted: Scripted) -> None:
    script = tools_only(tool_use("refund", WANTED, "t1")), message("Done.")
    flags = {"approvals.tools": {"refund": {}}}
    with scripted(*script, flags=flags) as (runtime, _):
        agent = runtime.agent("clerk", tools=[_pay([])], approve=["refund"])
        (request,) = agent.session(user="eve").turn("refund it").waiting_for
        assert runtime.approvals.get(request.request_id).requested_by == "eve"
        with pytest.raises(ApprovalError, match="eve requested refund"):
            runtime.approvals.decide(request.request_id, granted=True, by="eve")
        runtime.approvals.decide(request.request_id, granted=True, by="ann")


def test_approvals_of_the_version_before_hold_for_what_they_name_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and grants that name neither hash nor time, in a root of an earlier version."""
    paid: list[dict[str, Any]] = []
    asks = tools_only(tool_use("refund", WANTED, "t1"))
    place = unpack(tmp_path, "51d42c2").path
    options: dict[str, Any] = {"flags": {"model.default": "anthropic"}}
    with anthropic_runtime(place, monkeypatch, asks, message("Done."), **options) as (runtime, _):
        agent = runtime.agent("clerk", tools=[_pay(paid)], approve=["refund"])
        session = agent.session()
        with monkeypatch.context() as before:
            before.setattr(tool_permissions, "action_fields", lambda *_: {})
            (waiting,) = session.turn("refund it").waiting_for
        request_id = waiting.request_id
        old = runtime.ledger.read(request_id)
        assert not old.metadata.keys() & {"arguments_hash", "tool_digest", "parameters"}
        approval = runtime.approvals.get(request_id)
        assert (approval.tool_digest, approval.arguments) == ("", WANTED)
        with pytest.raises(InvalidInputError, match="an earlier version of Remit wrote"):
            runtime.approvals.decide(request_id, granted=True, by="Ann", arguments={"order": 1})
        provenance = {**old.metadata["provenance"], "agent_id": "Ann", "agent_class": "OPERATOR"}
        said = {"request_id": request_id, "tool_id": "refund", "decided_by": "Ann"}
        runtime.ledger.write(
            LedgerEntry(
                "APPROVAL_GRANTED", request_id, "GRANTED", "refund", metadata={
                    "provenance": provenance, "scope": {"tier": "ho1"}, **said,
                    "decision_reason": "",
                },
            )
        )  # fmt: skip
        permit = runtime.approvals.permit(request_id)
        other = _intent(approval, arguments={"order": 13})
        assert "other arguments" in _begin(runtime.ledger, permit, other)
        result = session.resume()
        assert result is not None
        assert (result.response, paid) == ("Done.", [WANTED])
        assert "used already" in _begin(runtime.ledger, permit, _intent(approval))
        assert runtime.ledger.verify().verified
