"""An adoption that is killed at any step is done whole, or not at all, after the next command."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning.proposals import Change, Governance, Proposals
from remit.ledger import open_root_ledger
from remit.packages import policy_epoch
from remit.packages.gates import check_gates
from remit.runtime.installation import gate_context, package_manager
from tests.learning.proposals.conftest import ADMIN, World
from tests.support.commands import run_remit
from tests.support.processes import run_forked

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


@pytest.mark.parametrize(
    ("step", "adopted"), [("stage", False), ("record", False), ("place", True), ("close", True)]
)
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
        assert Proposals(world.root, ledger).get("last").state == ("adopted" if adopted else "open")
        assert check_gates(gate_context(world.root, ledger, loaded), by="test").passed
    if not adopted:
        done = run_remit("learn", "adopt", "last", "--reason", "Again.", "--root", world.place)
        assert done.returncode == 0, done.stderr
