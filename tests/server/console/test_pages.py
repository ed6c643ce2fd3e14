"""What single pages say, of a console without a server around it, whatever its entries say."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import EVENTS, LedgerEntry, content
from remit.packages.gates import GateReport
from remit.server.console import Console, application, verification
from remit.server.console.rows import live_row
from remit.server.refusals import HttpError
from tests.server.asgi import AsgiRequest
from tests.server.console.client import VIEWS
from tests.server.console.conftest import Inside, opened
from tests.support.roots import new_root


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
    talk = inside.get("/console/sessions/SES-WHY").text
    assert '<span title="BUDGET_EXHAUSTED">the budget does not cover the call</span>' in talk
    assert "BUDGET_EXHAUSTED:" not in talk


def test_a_failed_gate_is_shown_once_with_the_number_of_its_problems(inside: Inside) -> None:
    for first in ("an older problem", "the model m is not allowed"):
        inside.ledger.write(
            LedgerEntry(
                "GATE_FAILED",
                "G3",
                "FAILED",
                "2 problems",
                metadata={
                    "gate": "G3",
                    "errors": 2,
                    "problems": content([first, "another"]),
                    "by": "x",
                },
            )
        )
    for path in ("/", "/console/verify"):
        page = inside.get(path).text
        assert page.count("2 problems; first: the model m is not allowed") == 1
        assert "an older problem" not in page


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


def test_a_browser_can_paint_a_page_before_its_content_is_read(tmp_path: Path) -> None:
    with opened(new_root(tmp_path / "root")) as own:
        answer = asyncio.run(AsgiRequest([]).to(own.console, "GET", "/", headers=()))
        (head, *_), text = [one["body"].decode() for one in answer.told[1:]], answer.body.decode()
        assert head.endswith('</header>\n<main id="main">')
        assert text.startswith(head)
        assert "ledger entries" in text.removeprefix(head)

        # Content that cannot be read is replaced by an error, and the page is whole.
        with closing(sqlite3.connect(tmp_path / "root" / "ledger.db")) as database:
            database.execute("ALTER TABLE in_flight RENAME TO gone")
        failed = own.get("/").text
        content = failed.removeprefix(head)
        assert content != failed
        assert 'class="card narrow"' in content
        assert "ledger entries" not in content
        assert [failed.count(tag) for tag in ("<main", "</main>", "</html>")] == [1, 1, 1]
        # Errors that come before the content have a status of their own.
        assert own.get("/console/sessions/SES-NOTHING").status == 404


@pytest.mark.parametrize(("method", "version"), [("GET", "1.0"), ("HEAD", "1.1")])
def test_a_page_is_one_message_for_who_takes_no_chunks(
    inside: Inside, method: str, version: str
) -> None:
    request = AsgiRequest([]).to(inside.console, method, "/", headers=(), version=version)
    start, body = asyncio.run(request).told
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body["body"])
    assert body["body"].count(b"</html>") == 1
    assert not body.get("more_body")


def test_the_page_of_a_throttled_caller_reads_nothing(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttled(*_: Any) -> None:
        raise HttpError(429, "too_many", "too many requests")

    monkeypatch.setattr(application, "_take_place", throttled)
    monkeypatch.setattr(Console, "_run", None)
    assert inside.get("/").status == 429


def test_unrecorded_results_are_an_error(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    report = GateReport((), unrecorded="the disk is full")
    monkeypatch.setattr(verification, "check_gates", lambda *_, **__: report)
    sent = AsgiRequest([b"check=all"])
    answer = asyncio.run(sent.to(inside.console, "POST", "/console/verify", headers=()))
    assert answer.status == 503
    assert b"could not be recorded: the disk is full" in answer.body


WRONG = (
    "x", "", [1], [[]], [{}], {"a": 1}, {"x": {"y": [None]}}, {"": []}, True, False, -1, 0,
    2**53 - 1, 1e308, -1e308, 1e-300, None, ["x", None], "LED-00000000", "LED-zz", "2026-01-01",
)  # fmt: skip
"""JSON of every kind."""

RECORD = (
    '{"candidates_considered":["m","n"],"chosen_model_id":"m","decision_hash":"x",'
    '"fallback_attempts":0,"routing_mode":"single","rule_version_hash":"unavailable",'
    '"scores":{"m":0.5,"n":0.1},"type":"routing_decision"}'
)
CALLED = {"model_id": "m", "outcome": "success", "error_code": "", "latency_ms": 1}
SAID: dict[str, Any] = {
    "arguments": {"a": 1}, "attempts": [CALLED], "attention": {"shown": [{"ref": "x"}]},
    "caller": {"session_id": "SES-OTHER"}, "changed": [{"path": "/model", "was": '"m"'}],
    "constraints": {"prompt_contract_id": "C"}, "content": RECORD, "context": {"task": "x"},
    "cost_usd": 0.1, "decision_id": "DEC-1", "details": {"kind": "set_aside", "name": "x"},
    "evidence": ["LED-00000000"], "exploration": 0.1, "fallback_from": [CALLED], "holds": [],
    "idempotency_key": "k", "input_tokens": 1, "kind": "approval", "latency_ms": 3.5,
    "output_tokens": 2, "profiles": {"m": {"provider_id": "p"}}, "propensity": 0.5,
    "predicted": {"value": 1, "low": 0, "high": 2, "confidence": 0.9, "samples": 3,
                  "effective_samples": 3}, "prompt": [{"role": "user", "content": "hi"}],
    "reasons": ["x"], "replay": {}, "skipped": [{"model_id": "n", "code": "X", "reason": "y"}],
    "stages": [{"stage": "x", "model_id": "m"}, {"join": "x", "answered": ["m"], "members": []}],
    "thought_id": "DEC-1", "turn_number": 1, "wire": "chat",
}  # fmt: skip
"""What Remit would write under a name; under any other one a text."""


def hostile(chosen: random.Random, event: str, place: dict[str, str]) -> LedgerEntry:
    """An entry of a type, some of what it says of the wrong one, on top or deeper."""
    told = EVENTS[event]
    metadata: dict[str, Any] = {key: SAID.get(key, "x") for key in (*told.keys, *told.optional)}
    metadata |= {"provenance": {"agent_id": "a", "agent_class": "OPERATOR", **place}, **place}
    del metadata["session_id" if chosen.random() < 0.9 else "provenance"]
    for key in chosen.sample(sorted(metadata), min(len(metadata), chosen.randrange(4))):
        within = metadata[key]
        if isinstance(within, dict) and within and key != "provenance" and chosen.random() < 0.5:
            metadata[key] = {**within, chosen.choice(sorted(within)): chosen.choice(WRONG)}
        elif isinstance(within, list) and within and chosen.random() < 0.5:
            row = within[0] if isinstance(within[0], dict) else {"model_id": "m"}
            metadata[key] = [{**row, chosen.choice(sorted(row)): chosen.choice(WRONG)}]
        else:
            metadata[key] = chosen.choice(WRONG)
    about = "PRP-0001" if event.startswith("SIGNAL_") else place["session_id"]
    return LedgerEntry(event, about, "SUCCESS", "x", metadata=metadata)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_entries_say_their_pages_are_made(inside: Inside, seed: int) -> None:
    chosen = random.Random(seed)
    place = {"session_id": f"SES-{seed}", "work_order_id": f"WO-{seed}"}
    ids = [inside.ledger.write(hostile(chosen, event, place))
           for event in chosen.sample(sorted(EVENTS), 20)]  # fmt: skip
    own = [*VIEWS, f"/console/sessions/SES-{seed}"]
    paths = [*own, f"/console/journey/WO-{seed}", "/console/why/DEC-1",
             "/console/proposals/PRP-0001", "/console/proposals/report",
             *(f"/console/{view}/{one}" for one in ids[:4] for view in ("journey", "why")),
             ]  # fmt: skip
    found = {path: inside.get(path).status for path in paths}
    assert {path: status for path, status in found.items() if status >= 500} == {}
    assert {path: found[path] for path in own if found[path] != 200} == {}
    assert all(live_row(entry)["cells"] for entry in inside.ledger.read_many(ids))
