"""``remit route learn``: from an empty root to a proposed route over real HTTP, within a budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.kernel.budget_values import LEARNING
from remit.packages import Registry
from remit.packages.gates import check_gates
from remit.routing import new_request
from tests.support.commands import remit_json, run_remit
from tests.support.priced_pair import Pair, priced_pair, question, right_answer


@pytest.fixture
def pair() -> Iterator[Pair]:
    with priced_pair() as made:
        yield made


def learn(place: Path, *more: object, code: int = 1) -> dict[str, Any]:
    """What the command says as JSON; its budget is a dollar unless another is given."""
    budget = () if "--budget-usd" in more else ("--budget-usd", 1)
    return remit_json("route", "learn", *budget, *more, "--root", place, code=code)


def refusal(place: Path, *more: object) -> str:
    done = run_remit("route", "learn", "--budget-usd", 1, *more, "--root", place)
    assert done.returncode == 2, done.stdout
    return done.stderr


def prompts_file(place: Path, numbers: range, *, references: bool = True) -> Path:
    lines = [
        {"prompt": question(n)} | ({"reference": right_answer(question(n))} if references else {})
        for n in numbers
    ]
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def record(root: Path, numbers: range, **fields: Any) -> list[str]:
    """Ask the dear model, as a user's traffic does; the ids of the exchanges."""
    with Runtime.open(root, flags={"budget.mode": "off"}) as runtime:
        answers = [
            runtime.gateway.route(
                new_request(
                    "user", f"SES-{n}", max_tokens=50, provider_id="dearco", model_id="dear-1",
                    messages=[{"role": "user", "content": question(n)}], **fields,
                )
            )
            for n in numbers
        ]  # fmt: skip
    assert not any(one.error_code for one in answers), answers
    return [one.exchange_entry_id for one in answers]


def judging(pair: Pair) -> None:
    """Have the dear model also judge answers: 0 for "7", else 1."""
    sums = pair.dear.reply

    def reply(body: dict[str, Any]) -> str:
        text = json.dumps(body["messages"])
        if ("invoice" not in text and "order" not in text) or "score" not in text:
            return sums(body)
        return json.dumps({"score": 0 if "\\n7\\n" in text else 1, "reason": "as it is"})

    pair.dear.reply = reply


def test_the_plan_spends_nothing_and_states_what_is_needed(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    file = prompts_file(tmp_path / "prompts.jsonl", range(8))
    plan = learn(root, "--prompts", file, code=0)["plan"]
    assert plan["permits"] == ["dearco/dear-1", "cheapco/cheap-1"]
    assert plan["gradable"] == {"reference": 8}
    assert plan["needed"] > 8
    assert plan["usd_needed"] > 0
    assert not pair.dear.bodies
    assert not pair.cheap.bodies
    with Runtime.open(root) as runtime:
        assert "PKG-OWN-MODELS-001" not in Registry.from_ledger(runtime.ledger).packages


def test_one_command_permits_asks_and_grades_from_an_empty_root(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    file = prompts_file(tmp_path / "prompts.jsonl", range(12))
    done = learn(root, "--prompts", file, "--yes")
    assert (done["calls"], done["graded"], done["ended"]) == (24, 24, "done")
    assert done["permitted"] == "PKG-OWN-MODELS-001 1.0.0"
    assert done["models"]["dear-1"]["reward"] == 1.0
    assert done["models"]["cheap-1"]["reward"] == 0.5
    assert done["missing"]
    again = learn(root, "--prompts", file, "--yes")  # Graded answers are not paid for twice.
    assert (again["calls"], again["permitted"]) == (0, "")
    with Runtime.open(root) as runtime:
        context = runtime.gate_context()
        assert check_gates(context, by="test").passed
        (paid,) = runtime.budgeter.status(LEARNING)
    assert paid.spent_nano == round(done["usd"] * 1e9)
    assert 0 < done["usd"] < 0.01


def test_the_budget_is_never_exceeded(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    file = prompts_file(tmp_path / "prompts.jsonl", range(30))
    done = learn(root, "--prompts", file, "--yes", "--budget-usd", 0.005, "--max-tokens", 50)
    assert done["ended"] == "budget"
    assert 0 < done["usd"] <= 0.005
    assert len(pair.dear.bodies) < 30


def test_recorded_prompts_are_graded_by_what_the_root_knows(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    ids = record(root, range(6))
    assert "None of the 6 recorded prompts can be graded" in (said := refusal(root))
    assert "--judge" in said
    run_remit(
        "feedback", ids[0], "--reference", right_answer(question(0)), "--root", root
    )  # fmt: skip
    plan = learn(root, code=0)["plan"]
    assert (plan["gradable"], plan["ungraded"]) == ({"reference": 1}, 5)


@pytest.mark.parametrize("kind", ["test", "code", "schema", "judge"])
def test_each_grader_grades_both_models(
    pair: Pair, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pair.root(tmp_path / "root")
    record(root, range(4))
    monkeypatch.chdir(tmp_path)
    if kind == "test":
        script = tmp_path / "test.py"
        script.write_text(
            "import json, sys\nvalue = json.load(sys.stdin)\n"
            "sys.exit('invoice' in value['prompt'] and value['answer'] == '7')\n"
        )
        more: tuple[object, ...] = ("--test", f"python {script}")
    elif kind == "code":
        name = f"own_grader_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(
            "def grade(prompt, answer):\n    return answer != '7'\n"
        )
        more = ("--code", f"{name}:grade")
    elif kind == "schema":
        (tmp_path / "schema.json").write_text('{"type": "integer", "not": {"const": 7}}')
        more = ("--schema", tmp_path / "schema.json")
    else:
        judging(pair)
        more = ("--judge", "dearco/dear-1")
    done = learn(root, *more, "--yes")
    assert done["plan"]["gradable"] == {kind: 4}
    assert done["calls"] == 4  # The recorded answers of the dear model cost nothing.
    assert done["graded"] == 8
    assert done["models"]["dear-1"]["reward"] == 1.0
    assert done["models"]["cheap-1"]["reward"] == 0.5


def test_a_grader_that_fails_gives_no_grade(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    record(root, range(2))
    done = learn(root, "--test", "python -c 'raise SystemExit(3)'", "--yes")
    assert (done["graded"], done["ended"], done["calls"]) == (0, "grader", 0)
    assert done["missing"] == ["No prompt has graded answers of all models."]
    root = pair.root(tmp_path / "fresh")
    file = prompts_file(tmp_path / "prompts.jsonl", range(60), references=False)
    for name, body in (("nothing", "return None"), ("leaving", "raise SystemExit(3)")):
        (tmp_path / f"{name}.py").write_text(f"def grade(prompt, answer):\n    {body}\n")
        asked = len(pair.dear.bodies)
        many = run_remit("route", "learn", "--budget-usd", 1, "--prompts", file, "--yes", "--code",
                         f"{name}:grade", "--root", root, cwd=tmp_path)  # fmt: skip
        assert "gave no grade for" in many.stderr
        # A later run grades the recorded answers before it pays, so it asks nothing.
        assert len(pair.dear.bodies) - asked == (2 if name == "nothing" else 0)
    assert "no-such-program is not found" in refusal(root, "--test", "no-such-program", "--yes")
    assert "is not a function" in refusal(root, "--code", "json:__name__", "--yes")


def test_judged_answers_are_not_paid_for_again_after_enough_checks(
    pair: Pair, tmp_path: Path
) -> None:
    root = pair.root(tmp_path / "root")
    learn(root, "--prompts", prompts_file(tmp_path / "prompts.jsonl", range(24)), "--yes")
    ids = record(root, range(100, 104))
    judging(pair)
    done = [learn(root, "--judge", "dearco/dear-1", "--yes") for _ in range(2)]
    assert [(one["calls"], one["graded"]) for one in done] == [(4, 8), (0, 0)]
    assert done[1]["plan"]["gradable"] == {}
    assert done[1]["plan"]["graded"] == 24  # A fit counts only the checked prompts.
    run_remit("feedback", ids[0], "--reference", right_answer(question(100)), "--root", root)
    again = remit_json("route", "calibrate", "--usd", 1, "--root", root)
    assert (again["calls"], again["without_reference"]) == (0, 3)


def test_each_refusal_names_the_next_command(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root", priced=False)
    assert "--output USD --context-window TOKENS --max-output-tokens TOKENS" in refusal(root)
    priced = pair.root(tmp_path / "priced")
    assert "--prompts FILE" in refusal(priced)
    with (priced / "remit.toml").open("a") as file:
        file.write('[routing.routes.one]\nmodels = ["dear-1"]\n')
    assert "routing.models" in refusal(priced, "--route", "one")


def test_an_erasure_reaches_the_answers_of_a_calibration(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    ids = record(root, range(2))
    lines = [
        json.dumps({"exchange_id": one, "reference": right_answer(question(n))})
        for n, one in enumerate(ids)
    ]
    (tmp_path / "refs.jsonl").write_text("\n".join(lines))
    learn(root, "--references", tmp_path / "refs.jsonl", "--yes")
    run_remit("ledger", "erase", ids[0], "--reason", "request", "--yes", "--root", root)
    with Runtime.open(root) as runtime:
        left = [
            one
            for one in runtime.ledger.query(event_type="EXCHANGE")
            if question(0) in str(one.metadata.get("prompt"))
        ]
    assert left == []


def test_from_an_empty_root_to_an_adopted_route_that_saves(pair: Pair, tmp_path: Path) -> None:
    root = pair.root(tmp_path / "root")
    file = prompts_file(tmp_path / "prompts.jsonl", range(300))
    done = learn(root, "--prompts", file, "--yes", code=0)
    assert (done["calls"], done["missing"]) == (600, [])
    assert done["usd"] < 0.3
    assert done["fit"]["reward"]["low"] > -0.025
    saved = done["fit"]["saved_usd"]["low"] / done["models"]["dear-1"]["usd_per_call"]
    assert saved > 0.2
    adopt = ("learn", "adopt", done["proposal_id"], "--reason", "saves", "--root", root)
    pair.set_price(root, "cheap", "50", "150")  # Now the route would cost more than it saves.
    refused = run_remit(*adopt)
    assert (refused.returncode, "the prices changed" in refused.stderr) == (1, True), refused
    pair.set_price(root, "cheap")
    limit = 0.7 * done["models"]["dear-1"]["usd_per_call"]
    fit = ("route", "fit", "--usd-per-call", limit, "--propose", "--reason", "saves")
    again = remit_json(*fit, "--root", root)["proposal_id"]
    other = run_remit(
        "price",
        "set",
        "other-1",
        "--provider",
        "cheapco",
        "--input",
        1,
        "--output",
        1,
        "--context-window",
        9000,
        "--max-output-tokens",
        900,
        "--root",
        root,
    )
    assert other.returncode == 0, other.stderr  # The price of a model that is not the route's.
    adopted = run_remit("learn", "adopt", again, "--reason", "saves", "--root", root)
    assert adopted.returncode == 0, adopted.stderr
    asked = len(pair.cheap.bodies), len(pair.dear.bodies)
    answers = []
    with Runtime.open(root, flags={"budget.mode": "off"}) as runtime:
        for n in range(400, 440):
            text = question(n)
            request = new_request("user", f"SES-{n}", max_tokens=50, model_id="auto",
                                  messages=[{"role": "user", "content": text}])  # fmt: skip
            answers.append((runtime.gateway.route(request).content, right_answer(text)))
    assert all(content == right for content, right in answers)
    cheap, dear = len(pair.cheap.bodies) - asked[0], len(pair.dear.bodies) - asked[1]
    assert cheap >= 10
    assert cheap + dear == 40
