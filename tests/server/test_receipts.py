"""Receipts of calls that clients made over HTTP."""

from __future__ import annotations

import hashlib
import json

from tests.server.running import Served, new_session


def test_receipts_of_calls_under_a_key(anywhere: Served) -> None:
    session = new_session()
    made = anywhere.key(user="receipts-ann", models=("gpt-4o-mini",))
    key = made.key
    operator = anywhere.key(role="operator").key
    assert anywhere.call("openai", "hello", session=session, token=key)[0] == 200
    assert anywhere.call("openai", "hello", session=session, token=key, model="gpt-4o")[0] == 403
    assert anywhere.call("openai", "[[status=500]]", session=session, token=key)[0] >= 500
    path = f"/api/ledger/receipts/{session}?format=agentboundary"
    status, body, _ = anywhere.ask("GET", path, token=operator)
    assert status == 200
    receipts = json.loads(body)
    answered, rejected, *failed = receipts
    assert {one["actor"]["id"] for one in receipts} == {made.key_id}
    assert {one["policy"]["decision"] for one in (answered, *failed)} == {"allow"}
    assert answered["execution"]["status"] == "success"
    assert answered["agent"]["model"] == "gpt-4o-mini"
    (exchange, *_) = anywhere.entries("EXCHANGE", session)
    assert answered["arguments_hash"] == exchange.metadata["context_hash"]
    assert (rejected["policy"]["decision"], rejected["execution"]["status"]) == ("deny", "blocked")
    assert rejected["arguments_hash"] == hashlib.sha256(b"{}").hexdigest()
    assert rejected["execution"]["error_code"]
    assert {one["execution"]["status"] for one in failed} == {"failure"}
