"""One party that floods a server with feedback, and feedback that is hostile text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.learning import rater_shares, read_samples
from tests.server.running import Served, new_session
from tests.server.test_feedback import _call, _post
from tests.support.commands import run_remit
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("anywhere", ["sqlite"], indirect=True)


def key(served: Served, **given: Any) -> str:
    with KeyStore(served.ledger) as keys:
        made = keys.create(new_session(), role="operator", **given)
    TokenBudgeter(served.ledger).allocate(BudgetScope(key_id=made.key_id), by="test")
    until(lambda: served.ask("GET", "/v1/models", token=made.key)[0] == 200)
    return made.key


def test_many_keys_of_one_user_are_one_party(anywhere: Served) -> None:
    sybils = [key(anywhere, user_id="mallory") for _ in range(5)]
    honest = [key(anywhere, user_id=f"user-{n}") for n in range(3)]
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
    shares = {one.rater: one for one in rater_shares(samples)}
    assert shares["mallory"].graded == 12
    assert shares["mallory"].share <= 0.25 + 1e-9


def test_a_flood_on_one_target_ends(anywhere: Served) -> None:
    flooding = key(anywhere, user_id="mallory")
    other = key(anywhere, user_id="ann")
    exchange = _call(anywhere, flooding)
    for number in range(100):
        status, said = _post(
            anywhere, flooding, target=exchange, score=number % 2, idempotency_key=str(number)
        )
        assert status == 201
    before = anywhere.ledger.count()
    status, body = _post(anywhere, flooding, target=exchange, score=0, idempotency_key="more")
    assert (status, body["error"]["code"]) == (409, "conflict")
    assert "100 times" in body["error"]["message"]
    again = _post(anywhere, flooding, target=exchange, score=1, idempotency_key="99")[1]
    assert (again["again"], again["entry_id"]) == (True, said["entry_id"])
    assert anywhere.ledger.count() == before
    assert _post(anywhere, other, target=exchange, score=0)[0] == 201


def test_hostile_text_is_data_wherever_it_is_shown(anywhere: Served) -> None:
    operator = key(anywhere)
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
