"""Entries that no part of Remit wrote: whatever stands in them, every page of them is made."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remit.ledger import EVENTS, LedgerEntry
from remit.server.console.rows import live_row
from tests.server.console.client import VIEWS
from tests.server.console.conftest import Inside

WRONG = (
    "x", "", [1], [[]], [{}], {"a": 1}, {"x": {"y": [None]}}, {"": []}, True, False, -1, 0,
    2**53 - 1, 1e308, -1e308, 1e-300, None, ["x", None], "LED-00000000", "LED-zz", "2026-01-01",
)  # fmt: skip
"""JSON of every kind."""

NAMES = (
    "latency_ms", "cost_usd", "cost_certainty", "input_tokens", "fallback_from", "error_code",
    "model_id", "decision_id", "changed", "retry_of", "provenance",
)  # fmt: skip
"""What pages of a call read of it."""

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


@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, True, -1, 1e308])
def test_a_call_says_anything_under_any_name(inside: Inside, value: object) -> None:
    for key in NAMES:
        session = f"SES-{key}-{type(value).__name__}"
        entry = inside.ledger.write(LedgerEntry("EXCHANGE", session, "SUCCESS", "x", metadata={
            "session_id": session, "outcome": "success", "model_id": "m", "agent_id": "a",
            "prompt": "hi", "response": "yes", key: value}))  # fmt: skip
        for path in (f"journey/{entry}", f"why/{entry}", f"sessions/{session}"):
            assert inside.get(f"/console/{path}").status == 200, (key, path)


def test_calls_are_filtered_whatever_their_keys_are(inside: Inside) -> None:
    for event in ("EXCHANGE", "PROMPT_REJECTED"):
        for value in WRONG:
            inside.ledger.write(LedgerEntry(event, "SES-KEY", "SUCCESS", "x", metadata={
                "session_id": "SES-KEY", "agent_id": "a", "key_id": value}))  # fmt: skip
    for name in ("key", "user", "team", "organisation", "agent", "model", "min_usd"):
        for more in ("", "&format=csv", "&sort=cost"):
            assert inside.get(f"/console/calls?{name}=1{more}").status == 200, (name, more)


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
