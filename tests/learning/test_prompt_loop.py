"""Prompts that learn: a planted gain from the record to its realised effect, and noise refused.

The model is an HTTP server that speaks a provider's wire format. Asked to reflect on an answer it
proposes a rule, and one that quotes the request.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.kernel.root import Root
from remit.learning import grade_by_test, read_samples, recorded_grader
from remit.learning.grading import graded_by
from remit.learning.meta import EffectReader
from remit.learning.proposals import Proposals
from remit.ledger import LedgerEntry
from tests.learning.test_wrong_question import (
    CONTRACT,
    RULE,
    SYSTEM,
    WEAK,
    Model,
    log,
    question_of,
    right,
    talk,
    world,
)  # fmt: skip
from tests.support.commands import run_remit
from tests.support.wire import message

pytestmark = pytest.mark.timeout(1200)  # Hundreds of calls: slow on a busy machine.

RIGHT = "It weighs 12 kilograms."


class Reflecting:
    """A model that also reflects.

    Args:
        answers: to everything else.
        rule: what it proposes.
    """

    def __init__(self, answers: Any, rule: str) -> None:
        self._answers = answers
        self._rule = rule
        self.reflected = 0

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = str(body["messages"][-1]["content"])
        if "You improve the instructions" not in asked:
            answer: dict[str, Any] = self._answers(body)
            return answer
        self.reflected += 1
        parcel = asked.partition("What does parcel ")[2].split()[0]
        rule = self._rule.format(self.reflected)
        text = f"- {rule}\n- When asked: what does parcel {parcel} weigh, say 12."
        return {**message(text), "model": body["model"]}


def learn(root: Path, references: Path, *more: str) -> dict[str, Any]:
    done = run_remit(
        "learn", "prompt", CONTRACT, "--usd", "1", "--references", str(references), "--json",
        "--reflect", f"anthropic/{WEAK}", "--root", str(root), *more,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorded(root: Path, tmp_path: Path) -> Path:
    """Enough exchanges, each with its right answer."""
    with Runtime.open(root) as runtime:
        held_out = log(runtime, SYSTEM, others=40)
        known = [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
        for exchange_id in held_out:
            grade_by_test(runtime.ledger, exchange_id, right, by="a test")
    references = tmp_path / "references.json"
    references.write_text(json.dumps(dict.fromkeys(known, RIGHT)))
    return references


def test_a_planted_gain_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Reflecting(Model(WEAK), RULE)
    with world(tmp_path, monkeypatch, model) as root:
        references = recorded(root, tmp_path)
        found = learn(root, references, "--propose", "--reason", "Weights in one unit.")
        assert found["missing"] == []
        assert found["search"]["additions"] == [RULE]
        assert found["search"]["refused"] >= 1  # it quotes the request
        assert found["gate"]["low"] > 0
        adopted = run_remit("learn", "adopt", "last", "--reason", "One unit.", "--root", root)
        assert adopted.returncode == 0, adopted.stderr
        with Runtime.open(root) as runtime:
            proposal = Proposals(Root(root), runtime.ledger).get(found["proposal_id"])
            text = json.dumps(proposal.to_dict())
            assert RULE in text
            assert "does parcel" not in text
            talk(runtime)
            assert question_of(root, runtime, "1.0.10001").repair.value == 0
            known = Proposals(Root(root), runtime.ledger)
            (effect,) = EffectReader(runtime.ledger, known).effects(read_samples(runtime.ledger))
            assert effect.held is True, effect
            assert effect.predicted is not None
            assert effect.realised is not None
            assert effect.predicted.low <= effect.realised.value <= effect.predicted.high
            known_ids = [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
        # What the adopted rule does is no gain of the next one.
        references.write_text(json.dumps(dict.fromkeys(known_ids, RIGHT)))
        model._rule = "Think {} times."
        again = learn(root, references)
        assert (again["search"]["additions"], again["proposal_id"]) == ([], "")


def test_noise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is right half of the time, whatever its prompt says: by luck a candidate shines."""
    with world(tmp_path, monkeypatch, Reflecting(Model(), "Think {} times.")) as root:
        references = recorded(root, tmp_path)
        found = learn(root, references, "--propose", "--reason", "It validates better.")
        search = found["search"]
        assert search["after"] > search["before"]
        assert found["proposal_id"] == ""
        assert found["gate"]["low"] <= 0
        assert any("may be zero" in one or "above 0" in one for one in found["missing"])
        with Runtime.open(root) as runtime:
            assert list(Proposals(Root(root), runtime.ledger).all()) == []


def test_a_finding_reaches_the_reflection_and_the_grader_stays_with_the_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under references: the contract's schema demands a unit that the prompt never states."""
    ledger_of: list[LedgerEntry] = []
    with world(tmp_path, monkeypatch, Reflecting(Model(WEAK), RULE)) as root:
        references = recorded(root, tmp_path)
        with Runtime.open(root) as runtime:
            for entry in list(runtime.ledger.query(event_type="EXCHANGE"))[-3:]:
                order = f"WO-{entry.id}"
                runtime.ledger.write(LedgerEntry("WO_PLANNED", order, "PLANNED", "x", metadata={
                    "work_order_id": order, "acceptance_criteria": {"must_contain": ["gram scale"]},
                }))  # fmt: skip
                meta = {**entry.metadata, "work_order_id": order}
                ledger_of.append(entry)
                runtime.ledger.write(
                    LedgerEntry("EXCHANGE", entry.submission_id, "SUCCESS", "x", metadata=meta)
                )
        found = learn(root, references, "--propose", "--reason", "Weights in one unit.")
        assert found["proposal_id"], found["missing"]
        with Runtime.open(root) as runtime:
            asked = [one.metadata["prompt"] for one in runtime.ledger.query(event_type="EXCHANGE")
                     if one.metadata["agent_id"] == "reflection"]  # fmt: skip
            assert asked
            assert all("must contain gram scale" in json.dumps(one) for one in asked)
            made = Proposals(Root(root), runtime.ledger).get(found["proposal_id"])
            grader = made.replay["grader"]
            assert grader["kind"] == "reference"
            assert "12 kilograms" not in json.dumps(grader)
            entry = ledger_of[0]
            assert graded_by(grader, entry) == float(right(entry.metadata["response"]))
            changed = {**entry.metadata, "response": RIGHT}
            assert graded_by(grader, replace(entry, metadata=changed)) == 1
            schema = recorded_grader(runtime.ledger, {"type": "object"}, None)
            assert graded_by(schema, entry) == 0
