"""``remit learn``, as a person uses it; and calls name the epoch."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from remit.learning.proposals import Change
from remit.ledger import LedgerEntry
from tests.learning.proposals.conftest import World, open_runtime
from tests.support.commands import run_remit

BUDGET = Change("budget", settings={"budget": {"session_tokens": 12_345}})


def test_listed_shown_adopted_and_taken_back(world: World) -> None:
    proposal = world.propose(BUDGET, evidence=world.exchanges)
    world.runtime.close()

    def learn(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_remit("learn", *arguments, "--root", world.place)

    def read(*arguments: str) -> Any:
        return json.loads(learn(*arguments, "--json").stdout)

    assert proposal.proposal_id[:12] in learn("proposals").stdout
    shown = learn("show", "last").stdout
    for text in ("local operator 3", "+0.1000 [+0.0500, +0.1500] n=300 betting", "12345"):
        assert text in shown
    assert read("show", proposal.proposal_id[:8])["evidence_by_key"] == {"local operator": 3}
    assert read("report")["policy_epoch"] == 0

    missing = learn("adopt", proposal.proposal_id)
    assert (missing.returncode, "--reason" in missing.stderr) == (2, True)
    assert learn("adopt", "PRP-00000000", "--reason", "x").returncode == 1
    adopted = read("adopt", "last", "--reason", "Sessions run over.", "--by", "Anna")
    assert (adopted["state"], adopted["decided_by"], adopted["epoch"]) == ("adopted", "Anna", 1)
    assert "PKG-LEARNED-LIMITS-001" in run_remit("config", "show", "--root", world.place).stdout
    assert read("report")["adopted"][0]["proposal_id"] == proposal.proposal_id
    with open_runtime(world.place) as runtime:
        world.runtime = runtime
        entry = runtime.ledger.read(world.exchange("How old is tea?"))
        assert entry.metadata["policy_epoch"] == 1
    back = learn("rollback", "last", "--reason", "It hurts.")
    assert "rolled back" in back.stdout
    assert read("report")["policy_epoch"] == 2
    again = learn("rollback", "last", "--reason", "It hurts.")
    assert (again.returncode, "not adopted" in again.stderr) == (1, True)
    table = run_remit("config", "show", "--root", world.place).stdout
    assert "PKG-LEARNED" not in table


def test_an_edited_archive_is_not_adopted(world: World) -> None:
    proposal = world.propose(BUDGET)
    file = world.learner().proposals.archive(proposal.proposal_id)
    world.runtime.close()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = run_remit("learn", "adopt", "last", "--reason", "Fine.", "--root", world.place)
    assert (done.returncode, "was changed later" in done.stderr) == (1, True), done.stderr
    file.unlink()
    done = run_remit("learn", "adopt", "last", "--reason", "Fine.", "--root", world.place)
    assert (done.returncode, "cannot be read" in done.stderr) == (1, True), done.stderr
    with open_runtime(world.place) as runtime:
        assert not list(runtime.ledger.query(event_type="SIGNAL_ADOPTED"))


def test_no_epoch_before_the_first_adoption(asked: World) -> None:
    entry = asked.runtime.ledger.read(asked.exchanges[0])
    assert "policy_epoch" not in entry.metadata


def test_signals_shown_and_put_on_record_once(world: World) -> None:
    ledger, place = world.runtime.ledger, world.place
    for number in range(260):
        ledger.write(
            LedgerEntry(
                "EXCHANGE", "PRC-A-001", "SUCCESS" if number < 200 else "ERROR", "said",
                metadata={
                    "agent_id": "a", "session_id": "SES-1", "model_id": "m", "latency_ms": 5,
                    "outcome": "success" if number < 200 else "error",
                },
            )
        )  # fmt: skip
    world.runtime.close()

    def read(*arguments: str) -> Any:
        done = run_remit("learn", "signals", "--json", *arguments, "--root", place)
        return json.loads(done.stdout)

    crossed = read("--crossed")["signals"]
    assert {(one["dimension"], one["metric"]) for one in crossed} >= {("model", "failure")}
    assert read("--latest", "100", "--crossed")["signals"] == []  # no live samples
    assert len(read("--observe")["written"]) == len(crossed)
    assert read("--observe")["written"] == []
    shown = run_remit("learn", "signals", "--crossed", "--root", place)
    assert "WORSE" in shown.stdout
    assert "Based on all 26" in shown.stderr
    wrong = run_remit("learn", "signals", "--since", "soon", "--root", place)
    assert (wrong.returncode, "soon" in wrong.stderr) == (2, True)
