"""A rollback is proposed by the report, held to the rule of proposals, and adopted on record."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from remit.learning import Estimate, give_feedback
from remit.learning.proposals import Change, ProposalError
from remit.ledger import LedgerEntry
from remit.packages import policy_epoch
from tests.learning.proposals.conftest import World, gain, open_runtime
from tests.support.commands import run_remit

BOUNDARY = Change("boundary", contract_id="PRC-EXECUTE-001", boundary={"max_tokens": 777})


LONGER = Change("boundary", contract_id="PRC-EXECUTE-001", boundary={"max_tokens": 999})


def graded(world: World, epoch: int, reward: float, count: int) -> None:
    """Exchanges of a policy epoch, each with feedback."""
    ledger = world.runtime.ledger
    for number in range(count):
        told = {
            "session_id": "SES-2", "agent_id": "a", "model_id": "m", "latency_ms": 5,
            "outcome": "success", "prompt": f"{epoch} {number}", "response": "tea",
            "contract_id": "PRC-EXECUTE-001", "policy_epoch": epoch,
        }  # fmt: skip
        made = LedgerEntry("EXCHANGE", "PRC-EXECUTE-001", "SUCCESS", "said", metadata=told)
        give_feedback(ledger, ledger.write(made), score=reward, by=f"ann-{number % 8}")


def test_what_disappoints_is_taken_back_by_a_proposal(world: World) -> None:
    def learn(*arguments: str) -> subprocess.CompletedProcess[str]:
        with_root = (*arguments, "--root", str(world.place))
        return run_remit("learn", *with_root)

    def reported() -> Any:
        return json.loads(learn("report", "--propose", "--json").stdout)

    limit = world.learner().contracts.load("PRC-EXECUTE-001").boundary.max_tokens
    adopted = world.propose(BOUNDARY)
    world.governance().adopt(adopted.proposal_id, reason="Longer answers.")
    for epoch, reward in ((0, 1.0), (1, 0.0)):
        graded(world, epoch, reward, 60)
    before = world.runtime.ledger.count()
    early = reported()
    assert early["proposed"] == []
    assert "effective sample size is 120 of 200" in early["refused"][0]
    assert world.runtime.ledger.count() == before
    for epoch, reward in ((0, 1.0), (1, 0.0)):
        graded(world, epoch, reward, 50)
    (rollback,) = reported()["proposed"]
    assert (rollback["kind"], rollback["rolls_back"]) == ("rollback", adopted.proposal_id)
    assert rollback["predicted"]["value"] == 1
    assert rollback["replay"]["gate"]["low"] > 0
    assert len(rollback["evidence"]) == 220
    assert "to roll" in reported()["refused"][0]
    asked = learn("replay", "--contract", "PRC-EXECUTE-001", "--proposal", "last", "--usd", "1")
    assert (asked.returncode, "is a rollback" in asked.stderr) == (2, True), asked.stderr

    before = world.runtime.ledger.count()
    done = learn("adopt", "last", "--reason", "Answers became worse.")
    assert done.returncode == 0, done.stderr
    with open_runtime(world.place) as runtime:
        world.runtime = runtime
        assert world.learner().contracts.load("PRC-EXECUTE-001").boundary.max_tokens == limit
        written = [
            one
            for event in ("SIGNAL_ADOPTED", "SIGNAL_ROLLED_BACK")
            for one in runtime.ledger.query(event_type=event)
        ]
        known = world.learner().proposals
        assert [one.metadata.get("rolls_back") for one in written] == [None, adopted.proposal_id]
        assert known.get("last").state == "adopted"
        assert known.get(adopted.proposal_id).state == "rolled_back"
        assert policy_epoch(runtime.ledger) == 2
        with pytest.raises(ProposalError, match="is itself a rollback"):
            world.governance().rollback(rollback["proposal_id"], reason="Once more.")
    assert "No adopted change made answers" in learn("report", "--propose").stderr


def test_what_cannot_be_taken_back_by_a_proposal(world: World) -> None:
    first = world.propose(BOUNDARY)

    def refused(gate: Estimate = gain()) -> str:  # noqa: B008
        before = world.runtime.ledger.count()
        with pytest.raises(ProposalError) as error:
            world.learner().propose_rollback(
                first, evidence=world.exchanges, predicted=gain(), gate=gate, replay={},
                reason="Worse.",
            )  # fmt: skip
        assert world.runtime.ledger.count() == before
        return error.value.code

    assert refused() == "decided"  # not adopted
    world.governance().adopt(first.proposal_id, reason="Longer answers.")
    for gate in (
        gain(effective_samples=199),
        gain(low=0.0),
        gain(method="welch"),
    ):
        assert refused(gate) == "not_enough"
    world.governance().adopt(world.propose(LONGER).proposal_id, reason="Longer still.")
    assert refused() == "not_in_force"
    world.governance().rollback("last", reason="Too long.")
    rollback = world.learner().propose_rollback(
        first, evidence=world.exchanges, predicted=gain(), gate=gain(), replay={},
        reason="Worse.",
    )  # fmt: skip
    assert refused() == "decided"  # proposed already
    world.governance().rollback(first.proposal_id, reason="At once.")
    with pytest.raises(ProposalError, match="already rolled back") as stale:
        world.governance().adopt(rollback.proposal_id, reason="Late.")
    assert stale.value.code == "stale"
    world.governance().reject(rollback.proposal_id, reason="Done already.")
