"""Erasing an exchange takes away what was learned from it: no byte of it stays in the root."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from remit import Runtime
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import give_feedback, read_samples
from remit.learning.proposals import Change, Governance, ProposalError, Proposals
from remit.ledger import open_root_ledger
from remit.packages import Registry, policy_epoch
from remit.packages.gates import check_gates
from remit.packages.trust import sync_trust
from remit.routing import LearnedHead, WeightsError, append_head, head_on_record
from remit.runtime.installation import forget_erased, gate_context, package_manager
from tests.learning.proposals.conftest import ADMIN, World, opened
from tests.support.commands import run_remit
from tests.support.processes import run_forked
from tests.support.stores import checkpoint, files_hold

SECRET = "quetzal-marigold-7731"


def _head(world: World, exchange: str, name: str) -> Change:
    """A routing head that holds something of an exchange."""
    head = json.dumps({"neighbours": [{"id": exchange, "of": SECRET}]}).encode()
    model = next(iter(load_settings(world.root.config).settings.routing.models))
    return Change(
        "head",
        settings={"routing": {"set_aside": [model]}},
        files={f"HOT/learned/routing/{name}": head},
    )


def test_a_learned_package_goes_with_what_it_holds(world: World) -> None:
    secret = world.exchange(f"Tell me of {SECRET}, please.")
    first = world.propose(Change("route", settings={"routing": {"operator_preference": "cost"}}))
    world.governance().adopt(first.proposal_id, reason="Cheaper.")
    head = world.propose(_head(world, secret, "head.json"), evidence=[secret], holds=[secret])
    world.governance().adopt(head.proposal_id, reason="Better.")
    later = world.propose(Change("route", settings={"routing": {"operator_preference": "speed"}}))
    world.governance().adopt(later.proposal_id, reason="Faster.")
    waiting = world.propose(_head(world, secret, "other.json"), evidence=[secret])
    assert load_settings(world.root.config).settings.routing.set_aside
    world.runtime.close()
    assert len(files_hold(world.place, SECRET)) >= 4

    done = run_remit(
        "ledger", "erase", secret, "--reason", "request", "--yes", "--root", world.place
    )
    assert done.returncode == 0, done.stderr
    assert head.proposal_id in done.stderr
    assert waiting.proposal_id in done.stderr
    assert not files_hold(world.place, SECRET)
    routing = load_settings(world.root.config).settings.routing
    assert (routing.operator_preference, routing.set_aside) == ("cost", [])
    with Runtime.open(world.place) as runtime:
        registry = Registry.from_ledger(runtime.ledger)
        assert registry.packages["PKG-LEARNED-ROUTING-001"].version == first.version
        assert check_gates(runtime.gate_context(), by="test").passed
        verified, problems = runtime.ledger.verify_chain()
        assert verified, problems
    listed = run_remit("learn", "proposals", "--json", "--root", world.place)
    states = {one["proposal_id"]: one["state"] for one in json.loads(listed.stdout)["proposals"]}
    assert states[first.proposal_id] == "adopted"
    assert states[head.proposal_id] == states[later.proposal_id] == "rolled_back"
    refused = run_remit(
        "learn", "adopt", waiting.proposal_id, "--reason", "Still.", "--root", world.place
    )
    assert refused.returncode == 1
    assert "its evidence was erased" in refused.stderr


@pytest.mark.parametrize("completed_by", ["opening", "repeating"])
def test_a_waiting_prompt_goes_with_what_it_quotes(world: World, completed_by: str) -> None:
    """What it holds is erased, which was no evidence of it."""
    secret = world.exchange(f"Tell me of {SECRET}, please.")
    change = Change("prompt", contract_id="PRC-EXECUTE-001", additions=[f"Never say {SECRET}."])
    said = give_feedback(world.runtime.ledger, world.exchanges[0], score=0, by="ann").entry_id
    proposal = world.propose(change, evidence=[said], holds=[secret])
    world.runtime.ledger.erase(secret, reason="request", requested_by="otto")
    with pytest.raises(ProposalError, match="was erased") as refused:
        world.governance().adopt(proposal.proposal_id, reason="Fine.")
    assert refused.value.code == "stale"
    with pytest.raises(ProposalError, match="was erased"):
        world.propose(change, evidence=[said], holds=[secret])
    world.runtime.close()
    assert files_hold(world.place, SECRET)
    if completed_by == "opening":
        with Runtime.open(world.place):
            pass
    else:  # No content is left, as after an interrupted erasure.
        again = ("ledger", "erase", secret, "--yes", "--reason", "r")
        assert run_remit(*again, "--root", world.place).returncode == 0
    assert not files_hold(world.place, SECRET)


def test_a_head_that_decisions_were_made_with_is_erased_too(place: tuple[str, Path]) -> None:
    database, directory = place
    on_server = database.startswith("postgresql")
    root = directory.parent / "root"
    with opened(root, database=database if on_server else "") as world:
        ledger, exchange = world.runtime.ledger, world.exchange(f"Tell me of {SECRET}, please.")
        head = LearnedHead.from_document({
            "format": "remit.routing-head/1", "buckets": 3, "models": {"m": {
                "bias": 1, "cost_nano": 1, "samples": 1, "weights": [711117, 722227, 733337]}},
            "neighbours": [{"exchange_id": exchange, "buckets": [0, 2]}],
        })  # fmt: skip
        learned = "711117,722227,733337"  # short: longer content is kept compressed
        change = Change("head", files={"HOT/learned/routing/h.json": head.encoded})
        proposal = world.propose(change, evidence=[exchange], holds=[exchange])
        world.governance().adopt(proposal.proposal_id, reason="Better.")
        ledger.transact(
            lambda tx: append_head(tx, ledger, head)
        )  # as a router does, before it decides by it
        checkpoint(database)
        places = {directory, root} if on_server else {root}
        for one in places:
            assert files_hold(one, learned), one
        ledger.erase(exchange, reason="request 7")
        assert forget_erased(world.root, ledger, load_settings(world.root.config)) == [
            proposal.proposal_id
        ]
        for one in places:
            for gone in (SECRET, learned):
                assert files_hold(one, gone) == [], gone
        with pytest.raises(WeightsError, match="was erased"):
            head_on_record(ledger, head.digest)
        assert [s.tainted for s in read_samples(ledger)][-1] == "erased"
        assert ledger.verify().verified


BUDGET = Change("budget", settings={"budget": {"session_tokens": 12_345}})


def adopt_and_die(place: str, proposal_id: str, fatal: str) -> None:
    """Adopt a proposal in a process that is killed as it comes to a step."""
    root = Root(Path(place))
    loaded = load_settings(root.config)

    def step(name: str) -> None:
        if name.startswith(fatal):
            os.kill(os.getpid(), signal.SIGKILL)

    with open_root_ledger(root, loaded.settings.ledger) as ledger:
        governance = Governance(
            root,
            ledger,
            package_manager(root, ledger, loaded, by="anna", step=step),
            lambda proposed: gate_context(root, ledger, proposed),
            ADMIN,
        )
        governance.adopt(proposal_id, reason="Sessions run over.")


@pytest.mark.parametrize(("step", "adopted"), [("record", False), ("place", True)])
def test_killed_at_a_step(world: World, step: str, adopted: bool) -> None:
    proposal = world.propose(BUDGET)
    world.runtime.close()
    ended = run_forked(
        adopt_and_die, str(world.place), proposal.proposal_id, step, environment=dict(os.environ)
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    shown = run_remit("gate", "check", "--gate", "G0B", "--root", world.place)
    assert "ok " in shown.stdout, shown.stdout
    loaded = load_settings(world.root.config)
    assert (loaded.settings.budget.session_tokens == 12_345) is adopted
    with open_root_ledger(world.root, loaded.settings.ledger) as ledger:
        assert policy_epoch(ledger) == int(adopted)
        keys = sync_trust(world.root.path / "trust.json", ledger).keys
        assert any(one.may_sign("PKG-LEARNED-LIMITS-001") for one in keys) is adopted
        assert Proposals(world.root, ledger).get("last").state == ("adopted" if adopted else "open")
        assert check_gates(gate_context(world.root, ledger, loaded), by="test").passed
    if not adopted:
        done = run_remit("learn", "adopt", "last", "--reason", "Again.", "--root", world.place)
        assert done.returncode == 0, done.stderr


# An adoption that is killed at any step is done whole, or not at all, after the next command.
