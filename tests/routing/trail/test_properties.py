"""Whatever is thought, in whatever order: chains hold, and no change goes unseen."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.ledger import LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    create_thought_record,
    list_thought_records,
    verify_trail,
)

TYPES = ("plan", "analysis", "decision", "reflection")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
THOUGHTS = st.lists(
    st.tuples(
        st.sampled_from(TYPES), st.sampled_from(["T1", "T2", "T3 ü"]), IDS, TEXT,
        st.sampled_from(["", "SES-1", "SES-2"]),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def _record(directory: str, thoughts: list[Any]) -> tuple[LedgerClient, list[Any]]:
    ledger = LedgerClient(Path(directory) / "ledger.db")
    return ledger, [create_thought_record(ledger, ThoughtInput(*told)) for told in thoughts]


@given(thoughts=THOUGHTS)
@settings(max_examples=25, deadline=None)
def test_any_appends_give_chains_that_hold(thoughts: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ledger, made = _record(directory, thoughts)
        with ledger:
            assert list_thought_records(ledger) == made
            report = verify_trail(ledger)
            assert report.verified, report.problems
            assert report.tasks == len({told[1] for told in thoughts})
            for task_id in {told[1] for told in thoughts}:
                own = list_thought_records(ledger, task_id)
                assert [r.content for r in own] == [t[3] for t in thoughts if t[1] == task_id]
                assert [r.prev_hash for r in own] == ["0" * 64, *(r.hash for r in own[:-1])]
            assert ledger.verify().verified
