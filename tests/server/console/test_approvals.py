"""Requests for approval as a person reads and decides them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remit.ledger import LedgerEntry
from tests.server.console.client import signed_in
from tests.server.running import Served, new_session, serving
from tests.support.upstream import Upstream

_TOOLS = [{"name": "refund", "description": "Pay an order back.", "input_schema": {}}]


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("served") / "root", upstream.url, checked=False
    ) as running:
        yield running


def test_the_wish_of_a_person_stands_before_the_result_of_a_tool(served: Served) -> None:
    session, visitor = new_session(), signed_in(served)
    result = [{"type": "tool_result", "tool_use_id": "T1", "content": "lost by the carrier"}]
    odd = {"role": "user", "content": 5}, {"role": "user"}, {"role": "tool", "content": "x"}
    _call(served, session, "Where is my samovar?", "", *odd, {"role": "user", "content": result})
    page = visitor.get(f"/console/approvals/{_request(served, session)}").text
    assert page.index("Where is my samovar?") < page.index("lost by the carrier")
    talk = visitor.get(f"/console/sessions/{session}").text
    assert "(empty)" not in talk
    assert "No text: the model called a tool." in talk


def _call(
    served: Served, session: str, prompt: str, response: str, *more: dict[str, object]
) -> str:
    return served.ledger.write(
        LedgerEntry("EXCHANGE", "PRC-1", "SUCCESS", "Exchange completed", metadata={
            "session_id": session, "agent_id": "clerk", "outcome": "success", "tools": _TOOLS,
            "prompt": [{"role": "user", "content": prompt}, *more], "response": response,
            "finish_reason": "end_turn" if response else "tool_use"})
    )  # fmt: skip


def _request(served: Served, session: str, kind: str = "approval") -> str:
    return served.ledger.write(
        LedgerEntry("APPROVAL_REQUESTED", session, "APPROVAL_REQUESTED", "x", metadata={
            "provenance": {"agent_id": "clerk", "agent_class": "OPERATOR", "session_id": session},
            "tool_id": "refund", "arguments": {"order": 12, "amount_usd": 1249.5},
            "idempotency_key": session, "kind": kind, "parameters": {"type": "object"}})
    )  # fmt: skip


def test_the_amount_the_conversation_and_the_tool_come_first(served: Served) -> None:
    session, visitor = new_session(), signed_in(served)
    _call(served, session, "My teapot came broken.", "I will refund it.")
    request = _request(served, session)
    page = visitor.get("/console/approvals").text
    card = page[page.index(f'action="/console/approvals/{request}"') - 4_000 :]
    for text in ("amount_usd <strong>1,249.50</strong>", "Pay an order back.",
                 "My teapot came broken.", "I will refund it.", "Exact arguments",
                 "session.resume()"):  # fmt: skip
        assert text in card, text
    assert card.index("1,249.50") < card.index("My teapot") < card.index("Exact arguments")
    start = visitor.get("/").text
    assert "<td>refund(" in start
    assert "<td>amount_usd 1,249.50 </td>" in start
    assert visitor.decide(f"/console/approvals/{request}", {"verdict": "grant"}).status == 303
    _call(served, session, "tool result", "Your money is on its way.")
    decided = visitor.get(f"/console/approvals/{request}").text
    assert "Conversation after" in decided
    assert "Your money is on its way." in decided
    assert "expires if unused" in decided
    provenance = {"agent_id": "clerk", "agent_class": "OPERATOR", "session_id": session}
    served.ledger.write(LedgerEntry("TOOL_INTENT", session, "x", "x", metadata={
        "provenance": provenance, "tool_id": "refund", "approval": request}))  # fmt: skip
    used = visitor.get(f"/console/approvals/{request}").text
    assert "used by" in used
    assert "expires if unused" not in used


def test_an_unknown_outcome_has_three_answers_with_their_consequences(served: Served) -> None:
    visitor = signed_in(served)
    path = f"/console/approvals/{_request(served, new_session(), 'unknown_outcome')}"
    page = visitor.get(path).text
    for button in ("Run it again", "It happened (record the result)", "Do not run"):
        assert f">{button}</button></dt><dd>" in page
    # Without the result the model would not know what happened.
    assert visitor.decide(path, {"verdict": "happened", "reason": " "}).status == 400
    assert visitor.decide(path, {"verdict": "x"}).status == 400
    told = visitor.decide(path, {"verdict": "happened", "reason": "receipt 4711"})
    assert told.status == 303
    (denied,) = served.ledger.query(
        event_type="APPROVAL_DENIED", submission_id=path.rpartition("/")[2]
    )
    assert denied.metadata["decision_reason"] == "It happened: receipt 4711"
