"""What single pages say, of a console without a server around it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, content, entry_id
from remit.packages.gates import GateReport
from remit.server.console import verification
from tests.ledger.segments.writing import cut_off
from tests.server.asgi import AsgiRequest
from tests.server.console.conftest import Inside
from tests.server.console.test_wrong_types import RECORD


def test_why_says_codes_in_words_and_has_them_on_demand(inside: Inside) -> None:
    ledger = inside.ledger
    named = {"session_id": "SES-WHY", "agent_id": "a", "model_id": "m", "prompt": "hi"}
    ledger.write(LedgerEntry("THOUGHT_RECORD", "SES-WHY", "routing_decision", "x", metadata={
        "decision_id": "DEC-1", "content": RECORD, "attempts": [{"model_id": "m",
        "outcome": "error", "error_code": "SERVER_ERROR", "error_message": "overloaded"}],
        "skipped": [{"model_id": "n", "code": "ENSEMBLE_BUDGET", "reason": "gone"}]}))  # fmt: skip
    decision = next(ledger.query(event_type="THOUGHT_RECORD")).id
    failed, refused = (
        ledger.write(LedgerEntry(event, "SES-WHY", "x", "x", metadata={**named,
            "outcome": "error", "error_code": code, "error_message": "nothing came",
            "fallback_from": [{"model_id": "o", "error_code": "CIRCUIT_OPEN"}]}))
        for event, code in (("EXCHANGE", "TIMEOUT"), ("PROMPT_REJECTED", "BUDGET_EXHAUSTED"))
    )  # fmt: skip
    for path, words, codes in (
        ("", ["circuit breaker open"], {"CIRCUIT_OPEN"}),
        (f"/{failed}", ["timed out", "circuit breaker open"], {"CIRCUIT_OPEN", "TIMEOUT"}),
        (f"/{refused}", ["the budget does not cover the call"], {"BUDGET_EXHAUSTED"}),
        (f"/{decision}",
         ["the provider failed", "the ensemble's budget does not cover the call", "was skipped"],
         {"ENSEMBLE_BUDGET", "SERVER_ERROR"}),
    ):  # fmt: skip
        page = inside.get(f"/console/why{path}").text
        told = re.search(r'<main id="main">(.*)</main>', page, re.DOTALL)
        assert told
        text = re.sub(r"<[^>]*>", "", told[1]).replace("&#39;", "'")
        assert all(one in text for one in words), text
        assert re.findall(r"[A-Z]{3,}_?[A-Z_]+(?=\W)", re.sub(r"(LED|DEC|SES)-\w+", "", text)) in (
            [], ["UTC"]), text  # fmt: skip
        assert codes <= set(re.findall(r'title="([A-Z_]+)"', page))


def test_a_proposal_whose_content_was_erased_says_so(inside: Inside) -> None:
    told = dict.fromkeys(("kind", "target", "package_id", "version", "base_version", "digest",
                          "evidence_sha256", "by"), "x")  # fmt: skip
    entry = inside.ledger.write(LedgerEntry("SIGNAL_PROPOSED", "PRP-000e", "PROPOSED", "x",
        metadata={**told, "evidence": content([]), "reason": content("by name")}))  # fmt: skip
    assert inside.get("/console/proposals/PRP-000e").status == 200
    inside.ledger.erase(entry, reason="asked for")
    gone = inside.get("/console/proposals/PRP-000e")
    assert gone.status == 410
    assert "The evidence of this proposal was erased, and so was its content." in gone.text
    missing = inside.get("/console/proposals/PRP-000f")
    assert missing.status == 404
    assert "The proposal" in missing.text


def test_what_was_archived_is_said_to_be(inside: Inside, tmp_path: Path) -> None:
    ledger, now = inside.ledger, {"agent_id": "a", "session_id": "SES-OLD"}
    began = ledger.write(LedgerEntry("SESSION_START", "SES-OLD", "STARTED", "x",
                                     metadata={"provenance": now}))  # fmt: skip
    turn = ledger.write(LedgerEntry("TURN_RECORDED", "SES-OLD", "x", "x", metadata={
        **now, "turn_number": 1, "user_message": "hi", "response": "long ago"}))  # fmt: skip
    call = ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "x",
                                    metadata={**now, "session_id": "SES-CALLS"}))  # fmt: skip
    ledger.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(512)])
    end = ledger.count() // 256 * 256
    # A client of its own, which does not check what other tests have written of thoughts.
    with LedgerClient(ledger.location, signer=ledger.checkpoints.signer) as client:
        cut_off(client, tmp_path, end)
    for path, status, said in (
        ("sessions/SES-OLD", 200, "The entries of this session were archived"),
        ("sessions", 200, "archived"),
        ("sessions/SES-CALLS", 404, f"Entries before {entry_id(end)} may be in a segment"),
        (f"journey/{turn}", 404, f"{turn} was archived"),
        (f"journey/{began}", 303, ""),
        (f"why/{call}", 404, f"{call} was archived"),
        (f"verify/{call}", 404, f"{call} was archived"),
    ):
        page = inside.get(f"/console/{path}".rstrip("/"))
        assert page.status == status, (path, page.status, page.text[-300:])
        assert said in page.text, path
        assert "long ago" not in page.text


def test_results_of_gates_that_cannot_be_recorded_are_an_error(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = GateReport((), unrecorded="the disk is full")
    monkeypatch.setattr(verification, "check_gates", lambda *_, **__: report)
    sent = AsgiRequest([b"check=all"])
    answer = asyncio.run(sent.to(inside.console, "POST", "/console/verify", headers=()))
    assert answer.status == 503
    assert b"could not be recorded: the disk is full" in answer.body
