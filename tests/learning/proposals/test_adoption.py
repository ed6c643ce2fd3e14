"""A proposal is made, adopted and rolled back on a real root, through the package manager."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import load_settings
from remit.learning import Estimate, give_feedback, read_samples
from remit.learning.meta import EffectReader, read_questions
from remit.learning.proposals import Change, ProposalError
from remit.learning.routes import graded_prompts
from remit.ledger import LedgerEntry, LedgerError, entry_id
from remit.packages import PackageError, policy_epoch
from remit.packages.gates import check_gates
from tests.learning.proposals.conftest import OPERATOR, World, gain, open_runtime
from tests.support.commands import run_remit

BUDGET = Change("budget", settings={"budget": {"session_tokens": 12_345}})
BOUNDARY = Change("boundary", contract_id="PRC-EXECUTE-001", boundary={"max_tokens": 777})
UNIT = "Always state the unit of a number."
PROMPT = Change("prompt", contract_id="PRC-EXECUTE-001", additions=[UNIT])


def test_each_kind_takes_effect_and_all_gates_pass(world: World) -> None:
    changes = [
        BUDGET,
        Change("tool_permission", settings={"chat": {"tools_allowed": ["read_file"]}}),
        Change("set_aside", settings={"routing": {"set_aside": ["gpt-4o"]}}),
        Change(
            "route",
            settings={"routing": {"models": {"gpt-4o": {"abilities": {"code": 77}}}}},
        ),
        BOUNDARY,
        PROMPT,
    ]
    shown = load_settings(world.root.config).settings.routing.models
    name = next(iter(shown))
    for change in changes:
        if change.kind == "route":
            models = {name: {"abilities": {"code": 77}}}
            change = dataclasses.replace(change, settings={"routing": {"models": models}})
        if change.kind == "set_aside":
            change = dataclasses.replace(change, settings={"routing": {"set_aside": [name]}})
        proposal = world.propose(change)
        world.governance().adopt(proposal.proposal_id, reason="Why not.")
    settings = load_settings(world.root.config).settings
    assert settings.budget.session_tokens == 12_345
    assert settings.chat.tools_allowed == ["read_file"]
    assert settings.routing.set_aside == [name]  # learned before, and kept by what came after
    assert settings.routing.models[name].abilities["code"] == 77
    contract = world.learner().contracts.load("PRC-EXECUTE-001")
    assert contract.boundary.max_tokens == 777
    assert contract.package_id == "PKG-LEARNED-PRC-EXECUTE-001"
    pack = world.learner().contracts.load_pack(contract.prompt_pack_id)
    text = pack.render({"user_input": "hello", "prior_results": [], "tool_results": []})
    assert UNIT in str(text[0]["content"])
    with Runtime.open(world.place) as runtime:
        report = check_gates(runtime.gate_context(), by="test")
    assert report.passed, report


@pytest.mark.parametrize(
    ("predicted", "says"),
    [
        (gain(effective_samples=199.9), "200 of 200"),
        (gain(low=0.0), "may be zero"),
        (gain(low=math.nan), "may be zero"),
        (gain(low=-0.1, effective_samples=10), "10 of 200"),
        (gain(method="doubly_robust"), "fixed number of samples only"),
    ],
)
def test_too_little_is_no_proposal(asked: World, predicted: Estimate, says: str) -> None:
    with pytest.raises(ProposalError, match=says) as refused:
        asked.propose(BUDGET, predicted=predicted)
    assert refused.value.missing
    assert not list(asked.learner().proposals.all())
    assert not list((asked.place / "proposals").glob("*"))


def test_an_agent_may_not_propose_and_an_operator_not_decide(world: World) -> None:
    with pytest.raises(ProposalError, match="may not propose"):
        world.learner(Identity("eve", "agent"))
    proposal = world.propose(BUDGET)
    with pytest.raises(ProposalError, match="may not decide"):
        world.governance(OPERATOR).adopt(proposal.proposal_id, reason="I like it.")
    assert policy_epoch(world.runtime.ledger) == 0


def test_a_learner_writes_nothing_but_proposals(world: World) -> None:
    learner, ledger = world.learner(), world.runtime.ledger
    before = ledger.count()
    samples = list(read_samples(learner))
    assert [one.exchange_id for one in samples] == world.exchanges
    assert read_questions(learner, learner.contracts, samples)
    assert EffectReader(learner, learner.proposals).effects(samples) == []
    assert graded_prompts(learner) == []
    for statement in ("DELETE FROM erasures", "PRAGMA query_only=OFF", "VACUUM INTO 'x'"):
        with pytest.raises(LedgerError):
            learner.select(statement)
    assert ledger.count() == before
    learner.propose(
        BUDGET, evidence=world.exchanges, predicted=gain(), replay={}, reason="Shorter."
    )
    written = ledger.query(after=entry_id(before - 1))
    assert {one.event_type for one in written} == {"SIGNAL_PROPOSED"}
    public = {name for name in dir(learner) if not name.startswith("_")}
    assert public == {
        "contracts", "identity", "installed", "loaded", "propose", "propose_rollback",
        "proposals", "query", "read", "read_many", "select",
    }  # fmt: skip


def test_an_adoption_that_a_gate_refuses_changes_no_trusted_key(world: World) -> None:
    proposal, place = world.propose(BUDGET), world.place / "HO1/contracts/PRC-EXECUTE-001.json"
    trusted, contract = (world.place / "trust.json").read_bytes(), place.read_bytes()
    place.write_bytes(contract + b" ")
    before = world.runtime.ledger.count()
    with pytest.raises(PackageError) as refused:
        world.governance().adopt(proposal.proposal_id, reason="Sessions run over.")
    assert refused.value.code == "gate_failed"
    assert (world.place / "trust.json").read_bytes() == trusted
    assert world.runtime.ledger.count() == before
    place.write_bytes(contract)
    world.governance().adopt(proposal.proposal_id, reason="Sessions run over.")
    assert (world.place / "trust.json").read_bytes() != trusted


def test_erased_evidence_proposes_nothing(world: World) -> None:
    world.runtime.ledger.erase(world.exchanges[0], reason="request", requested_by="otto")
    with pytest.raises(ProposalError, match="was erased"):
        world.propose(BUDGET)


def test_what_was_adopted_in_between_makes_it_stale(world: World) -> None:
    first, second = world.propose(BUDGET), world.propose(
        Change("budget", settings={"budget": {"session_turns": 9}})
    )  # fmt: skip
    world.governance().adopt(second.proposal_id, reason="Turns.")
    with pytest.raises(ProposalError, match="is stale"):
        world.governance().adopt(first.proposal_id, reason="Tokens.")


def test_only_the_latest_is_rolled_back_and_to_the_one_before(world: World) -> None:
    first = world.propose(BUDGET)
    world.governance().adopt(first.proposal_id, reason="Tokens.")
    second = world.propose(Change("budget", settings={"budget": {"session_turns": 9}}))
    world.governance().adopt(second.proposal_id, reason="Turns.")
    budget = load_settings(world.root.config).settings.budget
    assert (budget.session_tokens, budget.session_turns) == (12_345, 9)
    with pytest.raises(ProposalError, match="Roll back later adoptions"):
        world.governance().rollback(first.proposal_id, reason="Back.")
    world.governance().rollback(second.proposal_id, reason="Back.")
    budget = load_settings(world.root.config).settings.budget
    assert budget.session_tokens == 12_345
    assert budget.session_turns != 9


def test_a_learned_package_comes_by_adoption_alone(world: World) -> None:
    from remit.packages import IncomingArchive
    from remit.runtime import package_manager

    proposal = world.propose(BUDGET)
    data = world.learner().proposals.archive(proposal.proposal_id).read_bytes()
    manager = package_manager(world.root, world.runtime.ledger, world.runtime.loaded, by="x")
    with pytest.raises(PackageError, match="with a recorded decision"):
        manager.install([IncomingArchive(data)], dev=True, approve=True)
    world.governance().adopt(proposal.proposal_id, reason="Yes.")
    with pytest.raises(PackageError, match="with a recorded decision"):
        manager.remove(proposal.package_id)


@pytest.mark.parametrize(
    "change",
    [
        Change("budget", settings={"providers": {"openai": {"base_url": "http://evil"}}}),
        Change("route", settings={"routing": {"models": {"gpt-4o": {"provider": "x"}}}}),
        Change("route", settings={"chat": {"tools_allowed": ["read_file"]}}),
        Change("budget", files={"HOT/config/defaults.toml": b""}),
        Change("prompt", contract_id="PRC-EXECUTE-001"),
        Change("boundary", contract_id="PRC-EXECUTE-001", additions=["x"], boundary={"a": 1}),
        Change("prompt", contract_id="PRC-EXECUTE-001", additions=["{{ user_input }}"]),
        Change("prompt", contract_id="PRC-EXECUTE-001", additions=["two\nlines"]),
        Change("prompt", contract_id="PRC-EXECUTE-001", dropped=["00000000"]),
        Change("boundary", contract_id="PRC-EXECUTE-001", boundary={"temperature": 0}),
        Change("other", settings={"budget": {}}),  # type: ignore[arg-type]
    ],
)
def test_what_may_not_be_learned(asked: World, change: Change) -> None:
    with pytest.raises(InvalidInputError):
        asked.propose(change)


def test_ceilings_hold_for_what_is_learned(world: World) -> None:
    tools = Change("tool_permission", settings={"chat": {"tools_allowed": ["launch_missiles"]}})
    with pytest.raises(PackageError, match="no package permits"):
        world.governance().adopt(world.propose(tools).proposal_id, reason="Bold.")
    assert policy_epoch(world.runtime.ledger) == 0


# -- A rollback is proposed by the report, held to the rule of proposals, and adopted on record ---


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
