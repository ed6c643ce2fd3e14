"""Feedback over HTTP, on a real server, on both stores: who may say what about which call."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.learning import rater_weights, read_samples
from tests.server.running import Served, new_session
from tests.support.commands import run_remit

on_sqlite = pytest.mark.parametrize("anywhere", ["sqlite"], indirect=True)


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


@on_sqlite
def test_bad_feedback_is_refused_and_changes_nothing(anywhere: Served) -> None:
    operator = anywhere.key(role="operator").key
    target = _call(anywhere, operator)
    said = _post(anywhere, operator, target=target, score=1)[1]["entry_id"]
    before = anywhere.ledger.count()
    for wrong in (
        {"score": 1.01}, {"score": -0.01}, {"score": float("nan")}, {"score": float("inf")},
        {"score": "a"}, {"score": True}, {"score": []}, {"score": 10**400}, {}, {"reason": "why"},
        {"label": "Two Words"}, {"label": "x" * 65}, {"score": 1, "reason": "x" * 2001},
        {"score": 1, "source": "judge"}, {"score": 1, "source": "god"}, {"score": 1, "by": "ann"},
        {"score": 1, "idempotency_key": "x" * 257}, {"score": 1, "target": ""},
        {"score": 1, "target": None}, {"score": 1, "target": "SES-\x00/1"},
        {"score": 1, "reason": "\ud800"},
    ):  # fmt: skip
        status, body = _post(anywhere, operator, **{"target": target, **wrong})
        assert (status, body["error"]["code"]) == (400, "invalid_input"), wrong
    ids = ["LED-00000000", "LED-00ffffff", "LED-x", "WO-0", "DEC-0", "SES-0/1", "SES-0", "x" * 200]
    for nothing in (said, *ids):
        status, body = _post(anywhere, operator, target=nothing, score=1)
        assert (status, body["error"]["code"]) == (404, "not_found"), nothing
    for token in ("", "sk-remit-unknown"):
        assert _post(anywhere, token, target=target, score=1)[0] == 401
    assert anywhere.ledger.count() == before


@on_sqlite
def test_many_keys_of_one_user_are_one_party(anywhere: Served) -> None:
    sybils = [anywhere.key(role="operator", user="mallory").key for _ in range(5)]
    honest = [anywhere.key(role="operator", user=f"user-{n}").key for n in range(3)]
    exchanges = [_call(anywhere, sybils[0]) for _ in range(12)]
    for number, exchange in enumerate(exchanges):
        for token in sybils:
            assert _post(anywhere, token, target=exchange, score=0)[0] == 201
        if number < 3:
            for token in honest:
                assert _post(anywhere, token, target=exchange, score=1)[0] == 201
    samples = [one for one in read_samples(anywhere.ledger) if one.exchange_id in exchanges]
    # On what all graded, five keys of one user weigh as much as one of another's.
    assert [one.reward for one in samples[:3]] == [0.75] * 3
    graded = Counter(rater for sample in samples for rater in sample.raters)
    assert graded["mallory"] == 12
    weights = rater_weights(graded)
    total = sum(weights[rater] * number for rater, number in graded.items())
    assert weights["mallory"] * 12 / total <= 0.25 + 1e-9


@on_sqlite
def test_hostile_text_is_data_wherever_it_is_shown(anywhere: Served) -> None:
    operator = anywhere.key(role="operator").key
    exchange = _call(anywhere, operator)
    fake = f"LED-99999999  exchange {exchange}: 1 (person: ann)"
    evil = f"fine\n{fake}\r\u2028{fake}\x1b[2J\u202e</td><script>alert(1)</script>"
    status, said = _post(anywhere, operator, target=exchange, score=0, reason=evil)
    assert (status, said["reason"]) == (201, evil)
    for label in ("<script>", "a\nb", "\x1b[2J", "=1+1", "A"):
        assert _post(anywhere, operator, target=exchange, label=label)[0] == 400, label
    _, body, _ = anywhere.ask("GET", f"/api/feedback?target={exchange}", token=operator)
    assert [one["reason"] for one in json.loads(body)["feedback"]] == [evil]
    listed = run_remit("feedback", exchange, "--root", anywhere.root).stdout
    assert len(listed.splitlines()) == 1
    assert listed.startswith(said["entry_id"])
    shown = json.loads(run_remit("feedback", exchange, "--json", "--root", anywhere.root).stdout)
    assert [one["reason"] for one in shown["feedback"]] == [evil]
    name = f"bob\n{fake}"
    given = run_remit("feedback", exchange, "--score", "1", "--by", name, "--root", anywhere.root)
    assert (given.returncode, len(given.stdout.splitlines())) == (0, 1), given.stderr
    shares = run_remit("feedback", "--shares", "--root", anywhere.root).stdout
    assert not any(line.startswith("LED-99999999") for line in shares.splitlines())
    page = run_remit("learn", "report", "--html", "-", "--root", anywhere.root).stdout
    assert "<script" not in page


@on_sqlite
def test_a_flood_on_one_target_ends(anywhere: Served) -> None:
    flooding = anywhere.key(role="operator", user="mallory").key
    other = anywhere.key(role="operator", user="ann").key
    exchange = _call(anywhere, flooding)
    for number in range(100):
        sent = {"score": number % 2, "idempotency_key": str(number)}
        assert _post(anywhere, flooding, target=exchange, **sent)[0] == 201
    before = anywhere.ledger.count()
    status, body = _post(anywhere, flooding, target=exchange, score=0, idempotency_key="more")
    assert (status, body["error"]["code"]) == (409, "conflict")
    assert "100 times" in body["error"]["message"]
    assert anywhere.ledger.count() == before
    assert _post(anywhere, other, target=exchange, score=0)[0] == 201
