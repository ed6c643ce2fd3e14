"""``remit learn prompt`` on the real gateway: budget, kill -9, going on, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from remit.learning.prompts import Quotes, rules_of
from tests.learning.conftest import CONTRACT, MODEL
from tests.support.commands import run_remit
from tests.support.scripted import Scripted


def answer(body: dict[str, Any]) -> str:
    return '{"tea": 1}' if "one JSON object" in json.dumps(body["messages"]) else "tea"


def arguments(place: Path, usd: float, *more: str) -> list[str]:
    return [
        "learn", "prompt", CONTRACT, "--schema", str(place.parent / "schema.json"),
        "--usd", str(usd), "--root", str(place), "--json", *more,
    ]  # fmt: skip


def learned(place: Path, usd: float, *more: str) -> dict[str, Any]:
    done = run_remit(*arguments(place, usd, *more))
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_budget_that_ends_and_a_kill_and_going_on(place: Path, provider: Scripted) -> None:
    provider.bodies.clear()
    for limit in (("0.000001",), ("1", "--calls", "1")):
        few = learned(place, *limit)  # type: ignore[arg-type]
        assert (few["search"]["ended"], few["search"]["additions"]) == ("budget", [])
    assert len(provider.bodies) == 1
    killed: list[subprocess.Popen[bytes]] = []

    def kill_at_the_fifth(body: dict[str, Any]) -> str:
        if len(provider.bodies) == 5:
            killed[0].send_signal(signal.SIGKILL)
            killed[0].wait()
        return answer(body)

    provider.reply = kill_at_the_fifth
    command = [sys.executable, "-m", "remit", *arguments(place, 1)]
    killed.append(subprocess.Popen(command, env={**os.environ}, stderr=subprocess.DEVNULL))
    assert killed[0].wait(120) == -signal.SIGKILL
    provider.reply = answer
    done = learned(place, 1, "--propose", "--reason", "Programs read it.")
    assert done["search"]["ended"] == "complete"
    assert (done["search"]["before"], done["search"]["after"]) == (0, 1)
    assert (done["held_out"]["mean_before"], done["held_out"]["mean_after"]) == (0, 1)
    asked = Counter(json.dumps(body["messages"]) for body in provider.bodies)
    assert sum(asked.values()) == len(asked) + 1  # the killed one alone was asked twice
    calls = done["search"]["calls"] + done["held_out"]["replayed"]
    assert calls == len(asked)
    # one search and one measurement, each call paid once
    spent = done["search"]["spent_nano"] / 1e9 + done["held_out"]["spent_usd"]
    assert spent == pytest.approx(calls * (100 * 0.15 + 10 * 0.6) / 1e6)
    assert (done["proposal_id"], bool(done["missing"])) == ("", True)  # fewer than 200 pairs
    assert learned(place, 1)["effect"] == done["effect"]
    assert sum(asked.values()) == len(provider.bodies)


def test_a_model_that_changes_in_the_middle(place: Path, provider: Scripted) -> None:
    provider.bodies.clear()

    def other_after_two(body: dict[str, Any]) -> str:
        provider.model = "gpt-4o-mini-2" if len(provider.bodies) > 2 else MODEL
        return answer(body)

    provider.reply = other_after_two
    done = run_remit(*arguments(place, 1))
    assert done.returncode == 1, done.stdout
    assert "gpt-4o-mini-2 answers now" in done.stderr


def test_bad_input_asks_nothing(place: Path, provider: Scripted) -> None:
    provider.bodies.clear()
    for more, message in (
        (["--propose"], "needs a reason"),
        (["--reflect", "gpt-4o"], "provider/model"),
        (["--examples", "3"], "is not in the range"),
        (["--reflect", "openai/none-such"], "no upper bound"),
    ):
        done = run_remit(*arguments(place, 1, *more))
        assert (done.returncode, message in done.stderr) == (2, True), (more, done.stderr)
    assert provider.bodies == []


def test_without_the_extra_it_says_what_to_install(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gepa.api", None)
    done = run_remit(*arguments(place, 1))
    assert done.returncode != 0
    assert "pip install 'remit[learn]'" in done.stderr


def test_what_somebody_said_is_no_addition() -> None:
    quotes = Quotes(
        ["My brother lives at 12 Elm Street in Leeds, call +44-7700-900123.", "Give kilograms."],
        ["Give every answer in one short sentence."],
    )
    assert quotes.found_in("If asked: my brother lives at 12 Elm Street.")
    assert quotes.found_in("Call +44-7700-900123 first.")
    assert not quotes.found_in("Give kilograms in every answer.")
    assert not quotes.found_in("Give every answer in one short sentence.")


def test_additions_state_what_a_schema_demands_and_the_prompt_does_not() -> None:
    schema = {
        "type": "object",
        "required": ["due", "weight", "state"],
        "properties": {
            "due": {"type": "string", "format": "date"},
            "weight": {"type": "number", "description": "in kg"},
            "state": {"enum": ["open", "closed"]},
        },
    }
    rules = rules_of(schema, "Answer with a JSON object: due, weight, state open.")
    assert rules == [
        "Write due as YYYY-MM-DD.",
        "Give weight in kg.",
        "closed is one of the permitted values of state: write it so.",
    ]
    assert rules_of(None, "") == []
