"""A price that changes: the signals name the model and the route that became dearer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remit import Runtime
from remit.ledger import LedgerClient, LedgerEntry
from tests.support.commands import run_remit
from tests.support.roots import new_root


def _calls(ledger: LedgerClient, count: int, usd: float) -> None:
    """Record calls of one model that a route chose."""
    for number in range(count):
        meta = {
            "session_id": "SES-1", "prompt": f"Question {number}?", "response": "42",
            "model_id": "gemini", "provider_id": "google", "outcome": "success",
            "cost_usd": usd * (1 + number % 7 / 10), "requested_model_id": "auto",
            "decision_id": f"DEC-{number:032x}",
        }  # fmt: skip
        ledger.write(LedgerEntry("EXCHANGE", "", "SUCCESS", "ok", metadata=meta))


@pytest.mark.parametrize(("factor", "dearer"), [(4.0, True), (1.0, False), (0.25, False)])
def test_a_dearer_price_raises_the_alarm(tmp_path: Path, factor: float, dearer: bool) -> None:
    place = new_root(tmp_path / "root")
    with Runtime.open(place) as runtime:
        _calls(runtime.ledger, 200, 0.001)
        changed = datetime.now(UTC).isoformat()
        _calls(runtime.ledger, 200, 0.001 * factor)
    done = run_remit("learn", "signals", "--since", changed, "--crossed", "--json", "--root", place)
    assert done.returncode == 0, done.stderr
    found = {
        (one["dimension"], one["name"]): one
        for one in json.loads(done.stdout)["signals"]
        if one["metric"] == "cost"
    }
    assert found.keys() == ({("model", "gemini"), ("route", "auto")} if dearer else set())
    for one in found.values():
        assert one["live"]["value"] / one["baseline"]["value"] == pytest.approx(factor, rel=0.1)
