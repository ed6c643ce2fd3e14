"""``examples/batch_csv``: finished rows are not asked for again, and a budget is a budget."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.examples.playing import (
    EXAMPLES,
    Asked,
    Model,
    begin,
    entries,
    kill,
    line,
    playing,
    remit,
    run,
    sound,
)
from tests.support.waiting import until

EXAMPLE = "batch_csv/batch_csv.py"
AT_ONCE = 8
with (EXAMPLES / "batch_csv/tickets.csv").open(newline="") as _file:
    TICKETS = {row["text"]: row["id"] for row in csv.DictReader(_file)}


def _row(asked: Asked) -> str:
    """Which row is asked about."""
    (row,) = (row for text, row in TICKETS.items() if text in asked.text)
    return row


def triage(asked: Asked) -> dict[str, Any]:
    """Everything with an even number is a bug."""
    assert asked.held, "the answer is not held to the contract's schema"
    even = int(_row(asked)) % 2 == 0
    return {"topic": "bug" if even else "question", "urgent": even}


def _asked(model: Model) -> Counter[str]:
    return Counter(map(_row, model.asked))


def _written(place: Path) -> dict[str, tuple[str, str]]:
    with (place / "classified.csv").open(newline="") as file:
        return {row["id"]: (row["topic"], row["urgent"]) for row in csv.DictReader(file)}


def _finished(place: Path) -> set[str]:
    """Rows whose orders are completed."""
    return {
        found[1]
        for one in entries(place, "WO_COMPLETED")
        if (found := re.search(r"-key-(\d+)", one.submission_id))
    }


def _left(printed: str) -> set[str]:
    told = printed.rstrip().rpartition("left: ")[2]
    return set() if told == "none" else set(told.split(", "))


def test_killed_in_the_middle_it_does_not_ask_for_finished_rows_again(tmp_path: Path) -> None:
    def slow_from_the_ninth(asked: Asked) -> dict[str, Any]:
        if len(model.asked) > AT_ONCE:
            model.delay_s = 60.0  # these are out when the process is killed
        return triage(asked)

    with playing("anthropic", slow_from_the_ninth, delay_s=0.2) as model:
        program = begin(tmp_path, model, EXAMPLE)
        session = line(program, "session SES-").split()[1]
        # Everything that is on record as dispatched has reached the model by then.
        until(lambda: len(_finished(tmp_path)) >= AT_ONCE and len(model.asked) == len(TICKETS))
        kill(program)
        finished = _finished(tmp_path)
    assert AT_ONCE <= len(finished) < len(TICKETS)

    with playing("anthropic", triage) as second:
        printed = run(tmp_path, second, EXAMPLE, "--session", session)
    assert not _left(printed)
    assert len(_written(tmp_path)) == len(TICKETS)
    assert _asked(second) == Counter(set(TICKETS.values()) - finished)
    assert len(entries(tmp_path, "DISPATCH")) == len(model.asked) + len(second.asked)
    sound(tmp_path)


def test_what_the_budget_leaves_is_said_and_done_once_there_is_more(tmp_path: Path) -> None:
    limit = 2_240  # one call is bound by 2,144 tokens and uses 18
    with playing("anthropic", triage) as model:
        printed = run(tmp_path, model, EXAMPLE, "--tokens", str(limit))
        left, session = _left(printed), printed.split()[1]
        assert left
        assert "budget_exhausted" in printed
        done = set(TICKETS.values()) - left
        assert done
        assert set(_written(tmp_path)) == done
        assert set(_asked(model)) == done

        again = run(tmp_path, model, EXAMPLE, "--session", session)
        assert _left(again) <= left
        sound(tmp_path)

        remit(tmp_path, "budget", "set", "--session", session, "--tokens", "100000")
        last = run(tmp_path, model, EXAMPLE, "--session", session)
    assert not _left(last)
    assert _asked(model) == Counter(TICKETS.values())
    assert len(_written(tmp_path)) == len(TICKETS)
    sound(tmp_path)
