"""Erasing an exchange takes away what was learned from it: no byte of it stays in the root."""

from __future__ import annotations

import json

from remit import Runtime
from remit.kernel.settings import load_settings
from remit.learning.proposals import Change
from remit.packages import Registry
from remit.packages.gates import check_gates
from tests.learning.proposals.conftest import World
from tests.support.commands import run_remit

SECRET = "quetzal-marigold-7731"


def _files_with(world: World, text: str) -> list[str]:
    """Every file of the root that holds a text."""
    found = [path for path in world.place.rglob("*") if path.is_file()]
    return [str(path) for path in found if text.encode() in path.read_bytes()]


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
    assert len(_files_with(world, SECRET)) >= 4

    done = run_remit(
        "ledger", "erase", secret, "--reason", "request", "--yes", "--root", world.place
    )
    assert done.returncode == 0, done.stderr
    assert head.proposal_id in done.stderr
    assert waiting.proposal_id in done.stderr
    assert not _files_with(world, SECRET)
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
    assert "cannot be read" in refused.stderr


def test_killed_between_the_two_the_next_opening_takes_it_away(world: World) -> None:
    secret = world.exchange(f"Tell me of {SECRET}, please.")
    head = world.propose(_head(world, secret, "head.json"), evidence=[secret], holds=[secret])
    world.governance().adopt(head.proposal_id, reason="Better.")
    world.runtime.ledger.erase(secret, reason="request", requested_by="otto")
    world.runtime.close()
    assert _files_with(world, SECRET)
    with Runtime.open(world.place) as runtime:
        assert "PKG-LEARNED-ROUTING-001" not in Registry.from_ledger(runtime.ledger).packages
        assert check_gates(runtime.gate_context(), by="test").passed
    assert not _files_with(world, SECRET)
