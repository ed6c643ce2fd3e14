"""A trail that tests look at from all sides."""

from __future__ import annotations

import pytest

from remit.ledger import LedgerClient
from remit.routing.trail import ThoughtInput, ThoughtRecord, create_thought_record


@pytest.fixture
def chain(ledger: LedgerClient) -> list[ThoughtRecord]:
    """Five thoughts of one task, with two of another between them; without a session."""
    records = []
    for number in range(5):
        records.append(
            create_thought_record(
                ledger, ThoughtInput("plan", "TASK-A", "agent", f"thought number {number}")
            )
        )
        if number in (1, 3):
            create_thought_record(ledger, ThoughtInput("analysis", "TASK-B", "agent", "another"))
    return records
