"""Feedback over HTTP, on a real server, on both stores: who may say what about which call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from tests.server.running import Served, new_session


def _post(served: Served, token: str, **given: Any) -> tuple[int, dict[str, Any]]:
    status, body, _ = served.ask("POST", "/api/feedback", given, token=token,
                                 headers={"content-type": "application/json"})  # fmt: skip
    return status, json.loads(body)


def _call(served: Served, token: str) -> str:
    session = new_session()
    assert served.call("openai", "hello", session=session, token=token)[0] == 200
    return served.exchange(session).id


def test_an_agent_speaks_of_its_own_calls_alone(anywhere: Served) -> None:
    with KeyStore(anywhere.ledger) as keys:
        auditor = keys.create(new_session(), role="auditor").key
    own, other = anywhere.key(), anywhere.key()  # which are waited for
    exchange = _call(anywhere, own.key)
    status, said = _post(anywhere, own.key, target=exchange, score=0.4, reason="too long")
    assert status == 201
    assert (said["target_type"], said["score"], said["key_id"]) == ("exchange", 0.4, own.key_id)
    before = anywhere.ledger.count()
    status, refused = _post(anywhere, other.key, target=exchange, score=1)
    unknown = _post(anywhere, other.key, target="LED-00ffffff", score=1)
    assert status == unknown[0] == 404
    # What is another's is not told from what there is not.
    told = [one["error"]["message"].replace(name, "") for one, name in
            ((refused, exchange), (unknown[1], "LED-00ffffff"))]  # fmt: skip
    assert told[0] == told[1]
    assert _post(anywhere, auditor, target=exchange, score=1)[0] == 403
    assert anywhere.ledger.count() == before
    operator = anywhere.key(role="operator")
    assert _post(anywhere, operator.key, target=exchange, score=1)[0] == 201
    status, body, _ = anywhere.ask("GET", f"/api/feedback?target={exchange}&limit=1", token=auditor)
    page = json.loads(body)
    assert [one["reason"] for one in page["feedback"]] == ["too long"]
    assert page["next_cursor"] == page["feedback"][0]["entry_id"]
    assert anywhere.ask("GET", "/api/feedback", token=own.key)[0] == 403


@pytest.mark.parametrize("anywhere", ["sqlite"], indirect=True)
def test_bad_feedback_is_refused_and_changes_nothing(anywhere: Served) -> None:
    operator = anywhere.key(role="operator").key
    target = _call(anywhere, operator)
    said = _post(anywhere, operator, target=target, score=1)[1]["entry_id"]
    before = anywhere.ledger.count()
    for wrong in (
        {"score": 1.01}, {"score": -0.01}, {"score": float("nan")}, {"score": float("inf")},
        {"score": "a"}, {"score": []}, {"score": 10**400}, {}, {"reason": "why"},
        {"label": "Two Words"}, {"label": "x" * 65}, {"score": 1, "reason": "x" * 2001},
        {"score": 1, "source": "judge"}, {"score": 1, "source": "god"}, {"score": 1, "by": "ann"},
        {"score": 1, "idempotency_key": "x" * 257}, {"score": 1, "target": ""},
        {"score": 1, "target": None}, {"score": 1, "target": "SES-\x00/1"},
        {"score": 1, "reason": "\ud800"},
    ):  # fmt: skip
        status, body = _post(anywhere, operator, **{"target": target, **wrong})
        assert (status, body["error"]["code"]) == (400, "invalid_input"), wrong
    for nothing in ("LED-00ffffff", "LED-x", said, "WO-0", "DEC-0", "SES-0/1", "SES-0", "x" * 200):
        status, body = _post(anywhere, operator, target=nothing, score=1)
        assert (status, body["error"]["code"]) == (404, "not_found"), nothing
    for token in ("", "sk-remit-unknown"):
        assert _post(anywhere, token, target=target, score=1)[0] == 401
    assert anywhere.ledger.count() == before


def test_twice_and_under_a_key(anywhere: Served) -> None:
    own = anywhere.key()
    exchange = _call(anywhere, own.key)
    first = _post(anywhere, own.key, target=exchange, score=0, idempotency_key="k")[1]
    again = _post(anywhere, own.key, target=exchange, score=0, idempotency_key="k")[1]
    assert (again["entry_id"], again["again"]) == (first["entry_id"], True)
    assert _post(anywhere, own.key, target=exchange, score=1, idempotency_key="k")[0] == 409
    later = _post(anywhere, own.key, target=exchange, score=1)[1]
    assert later["replaces"] == first["entry_id"]
    anywhere.ledger.erase(exchange, reason="request 7")
    status, refused = _post(anywhere, own.key, target=exchange, score=1)
    assert (status, refused["error"]["code"]) == (409, "conflict")
