"""``remit learn prompt`` on the real gateway: budget, kill -9, going on, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.learning import grader, is_held_out
from remit.learning.prompts.search import Quotes, rules_of
from tests.learning.conftest import CONTRACT, MODEL, killed_at, record
from tests.support.commands import run_remit
from tests.support.scripted import Scripted

pytestmark = pytest.mark.timeout(1200)  # Hundreds of calls: slow on a busy machine.


def answer(body: dict[str, Any]) -> str:
    return '{"tea": 1}' if "one JSON object" in json.dumps(body["messages"]) else "tea"


def arguments(root: Path, usd: float, *more: str) -> list[str]:
    return [
        "learn", "prompt", CONTRACT, "--schema", str(root.parent / "schema.json"),
        "--usd", str(usd), "--root", str(root), "--json", *more,
    ]  # fmt: skip


def learned(root: Path, usd: float, *more: str) -> dict[str, Any]:
    done = run_remit(*arguments(root, usd, *more))
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_budget_that_ends_and_a_kill_and_going_on(answered: Path, provider: Scripted) -> None:
    provider.bodies.clear()
    for limit in (("0.000001",), ("1", "--calls", "1")):
        few = learned(answered, *limit)  # type: ignore[arg-type]
        assert (few["search"]["ended"], few["search"]["additions"]) == ("budget", [])
        assert "used up its budget" in few["missing"][0]
    assert len(provider.bodies) == 1
    provider.reply = answer
    killed_at(5, provider, *arguments(answered, 1))
    done = learned(answered, 1)
    assert done["search"]["ended"] == "complete"
    assert (done["search"]["before"], done["search"]["after"]) == (0, 1)
    assert (done["held_out"]["mean_before"], done["held_out"]["mean_after"]) == (0, 1)
    asked = Counter(json.dumps(body["messages"]) for body in provider.bodies)
    assert sum(asked.values()) == len(asked) + 1  # the killed one alone was asked twice
    calls = done["search"]["calls"] + done["held_out"]["replayed"]
    assert calls == len(asked)
    # one search and one measurement, each call paid once; the killed one at its bound too
    spent = done["search"]["spent_nano"] / 1e9 + done["held_out"]["spent_usd"]
    with Runtime.open(answered, by="test") as runtime:
        lost = next(runtime.ledger.query(event_type="EXCHANGE_ORPHANED")).metadata["cost_usd"]
    assert spent == pytest.approx(calls * (100 * 0.15 + 10 * 0.6) / 1e6 + lost)
    assert (done["proposal_id"], done["missing"]) == ("", [])
    assert learned(answered, 1)["effect"] == done["effect"]
    assert sum(asked.values()) == len(provider.bodies)


def test_bad_input_asks_nothing(answered: Path, provider: Scripted) -> None:
    provider.bodies.clear()
    for more, message in (
        (["--propose"], "needs a reason"),
        (["--reflect", "gpt-4o"], "provider/model"),
        (["--examples", "3"], "is not in the range"),
        (["--reflect", "openai/none-such"], "no upper bound"),
        (["--propose", "--reason", "Programs read it."], "a proposal needs 200"),
    ):
        done = run_remit(*arguments(answered, 1, *more))
        code = 1 if "a proposal needs" in message else 2
        assert (done.returncode, message in done.stderr) == (code, True), (more, done.stderr)
    assert provider.bodies == []


def test_without_the_extra_it_names_it(answered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gepa.api", None)
    done = run_remit(*arguments(answered, 1))
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
    chinese = "\u6211\u4f4f\u5728\u6986\u6811\u8857\u5341\u4e8c\u53f7\u8bf7\u8bb0\u4f4f"
    known = ("My card is 4111 1111 1111 1111.", chinese, "Anna Schmidt, Leeds")
    quotes = Quotes(known)
    for addition in (
        "Charge 4111-1111-1111 1111.", "Charge \uff14\uff11\uff11\uff11\uff11\uff11\uff11.",
        "\u5730\u5740 \u6211\u4f4f\u5728\u6986\u6811\u8857\u5341\u4e8c\u53f7",
        "Ask Anna Schmidt, Leeds.",
    ):  # fmt: skip
        assert quotes.found_in(addition), addition
    assert not quotes.found_in(f"{chinese[-3:]} Ask for a card from 2020 on, in Leeds.")
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


def test_no_addition_quotes_what_fills_the_prompt_or_what_a_candidate_answered(
    answered: Path, provider: Scripted
) -> None:
    """Nor in halves: a reflection proposes each, and no later call may hold any."""
    record(answered, system="\nThe user is Anna Maria Schmidt of Elm Street.")
    halves = ("Their contact is Bo", "Lund from Kiel office")
    asked: list[str] = []

    def steered(body: dict[str, Any]) -> str:
        text = json.dumps(body["messages"])
        if "You improve the instructions" in text:
            asked.append(text)
            said = "The user is Anna Maria Schmidt of Elm Street"
            return "\n".join(f"- {one}" for one in (said, *halves, " ".join(halves)))
        if "one JSON object" not in text:
            return "tea"
        number = int(text.rpartition("Case ")[2].partition("?")[0])
        return '{"tea": 1}' if number % 3 else " ".join(halves)

    provider.bodies.clear()
    provider.reply = steered
    done = learned(answered, 1, "--reflect", f"openai/{MODEL}")
    assert done["search"]["refused"] >= 2
    assert any("Bo Lund" in one for one in asked)
    sent = [json.dumps(body["messages"]) for body in provider.bodies]
    assert not any("] The user is Anna" in one for one in sent)
    assert not any("] Lund from" in one and "] Their contact" in one for one in sent)


def test_two_at_once(answered: Path, provider: Scripted) -> None:
    others: list[subprocess.CompletedProcess[str]] = []

    def meanwhile(body: dict[str, Any]) -> str:
        if not others:
            others.append(run_remit(*arguments(answered, 1)))
        return answer(body)

    provider.reply = meanwhile
    provider.bodies.clear()
    done = learned(answered, 1)
    assert "running in another process" in others[0].stderr
    assert len(provider.bodies) == done["search"]["calls"] + done["held_out"]["replayed"]


def test_an_answer_nested_without_end_is_a_bad_answer() -> None:
    grade: Any = grader({"type": "object"})
    assert grade(None, "[" * 100_000) == 0


def test_a_candidate_under_which_there_is_no_answer_does_not_gain_by_it(
    answered: Path, provider: Scripted
) -> None:
    """The gate takes each call that failed as the worst loss there is."""
    with Runtime.open(answered, model=MODEL) as runtime:
        known = list(runtime.ledger.query(event_type="EXCHANGE"))
    prompts = [one.metadata["prompt"] for one in known]
    held_out = [_case(one) for one in prompts if is_held_out(one)]

    def breaks(body: dict[str, Any]) -> str:
        if _case(body["messages"]) in held_out[::2]:
            raise OSError("The connection is closed.")
        return answer(body)

    provider.reply = breaks
    done = learned(answered, 1)
    assert done["effect"]["value"] == 1
    assert 0 < done["held_out"]["failed"] == len(held_out) - done["held_out"]["replayed"]
    assert done["gate"]["samples"] == len(held_out)
    assert done["gate"]["low"] < 0


def _case(messages: Any) -> str:
    return json.dumps(messages).rpartition("Case ")[2].partition("?")[0]
