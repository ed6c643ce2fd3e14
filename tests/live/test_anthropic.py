"""The acceptance conversation against the real API: run by `make test-live`, with a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit import Runtime

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not os.environ.get("ANTHROPIC_API_KEY"), reason="NOT RUN: ANTHROPIC_API_KEY is not set"
    ),
]


def test_the_acceptance_conversation(tmp_path: Path) -> None:
    with Runtime.open(tmp_path / "root", create=True, model="anthropic") as runtime:
        with runtime.session() as conversation:
            greeting = conversation.turn("hello")
            listing = conversation.turn("list all sessions")
            recall = conversation.turn("what did I just say?")
        calls = runtime.ledger.read_by_event_type("TOOL_CALL")
        report = runtime.ledger.verify()
    assert greeting.quality_gate_passed
    assert conversation.session_id in listing.response or listing.tool_results
    assert "list_sessions" in {call.metadata["tool_id"] for call in calls}
    assert "session" in recall.response.lower()
    assert report.verified, report.problems
