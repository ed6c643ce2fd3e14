"""``remit learn``, as a person uses it; and calls name the epoch."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from remit.kernel.settings import load_settings
from remit.learning import ReplayResult
from remit.learning.held_out_replay import Pair
from remit.learning.meta import attribute, record_attribution
from remit.learning.proposals import Change
from remit.ledger import LedgerEntry
from remit.server.authentication import open_keys
from tests.learning.proposals.conftest import World, open_runtime
from tests.server.test_api import Api
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
    for text in ("local operator: 3", "predicted: +0.1000 [+0.0500, +0.1500], ", "12345"):
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
    assert " rolled_back LED-" in back.stdout
    assert read("report")["policy_epoch"] == 2
    again = learn("rollback", "last", "--reason", "It hurts.")
    assert (again.returncode, "not adopted" in again.stderr) == (1, True)
    table = run_remit("config", "show", "--root", world.place).stdout
    assert "PKG-LEARNED" not in table


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


# -- Proposals over ``/api/learn/…``: who may, what comes back, and a server that follows --------


def test_decided_over_the_api_by_an_admin_alone(world: World) -> None:
    keys = open_keys(world.runtime)
    api = Api(world.runtime, keys)
    admin = keys.create("anna", role="admin")
    proposal = world.propose(BUDGET)
    one = f"/api/learn/proposals/{proposal.proposal_id}"
    listed = api.ask("GET /api/learn/proposals").json
    assert [found["proposal_id"] for found in listed["proposals"]] == [proposal.proposal_id]
    shown = api.ask(f"GET {one}").json
    assert (shown["stale"], shown["evidence_by_key"]) == ("", {"local operator": 2})

    said = {"reason": "Sessions run over."}
    assert api.ask(f"POST {one}/adopt", said).status == 403
    assert api.ask(f"POST {one}/adopt", {"reason": ""}, key=admin.key).status == 400
    assert api.ask("POST /api/learn/proposals/PRP-0/adopt", said, key=admin.key).status == 404
    done = api.ask(f"POST {one}/adopt", said, key=admin.key)
    assert (done.status, done.json["state"], done.json["decided_by"]) == (200, "adopted", "anna")
    entry = world.runtime.ledger.read(done.json["decision"])
    assert entry.metadata["key_id"] == admin.key_id
    assert load_settings(world.root.config).settings.budget.session_tokens == 12_345
    again = api.ask(f"POST {one}/adopt", said, key=admin.key)
    assert (again.status, again.error["code"]) == (409, "conflict")
    pairs = tuple(Pair(one, one, "m", 0.0, 0.5, 0) for one in world.exchanges)
    replayed = ReplayResult(pairs, 3, 0, 3, 0, "complete")
    made = attribute(replayed, replayed)
    record_attribution(world.runtime.ledger, made, "PRC-EXECUTE-001", "1.0.0")
    report = api.ask("GET /api/learn/report").json
    (cause,) = report["attributions"]
    assert (cause["cause"], cause["evidence"]) == ("undecided", world.exchanges)
    assert (report["policy_epoch"], report["complete"]) == (1, True)
    assert report["proposals"] == {"open": 0, "adopted": 1, "rejected": 0, "rolled_back": 0}
    (effect,) = report["effects"]
    assert (effect["proposal_id"], effect["held"]) == (proposal.proposal_id, None)
    assert report["questions"][0]["contract_id"] == "PRC-EXECUTE-001"
    (question,) = api.ask("GET /api/learn/report", latest=1).json["questions"]
    assert question["exchanges"] == 1
    back = api.ask(f"POST {one}/rollback", said, key=admin.key)
    assert (back.status, back.json["epoch"]) == (200, 2)


def test_edited_and_stale_proposals_are_not_adopted_over_the_api(world: World) -> None:
    keys = open_keys(world.runtime)
    api, admin = Api(world.runtime, keys), keys.create("anna", role="admin").key
    proposal = world.propose(BUDGET)
    one = f"/api/learn/proposals/{proposal.proposal_id}"
    file = world.learner().proposals.archive(proposal.proposal_id)
    data = file.read_bytes()

    def refused(words: str) -> None:
        before = world.runtime.ledger.count()
        answer = api.ask(f"POST {one}/adopt", {"reason": "Fine."}, key=admin)
        assert (answer.status, answer.error["code"]) == (409, "conflict")
        assert words in answer.error["message"]
        assert world.runtime.ledger.count() == before
        assert load_settings(world.root.config).settings.budget.session_tokens != 12_345

    file.write_bytes(data.replace(b"12345", b"99999"))
    refused("changed later")
    file.unlink()
    refused("cannot be read")
    file.write_bytes(data)
    world.runtime.ledger.erase(world.exchanges[0], reason="request", requested_by="otto")
    assert "was erased" in api.ask(f"GET {one}").json["stale"]
    refused("was erased")


@pytest.mark.parametrize("verb", ["adopt", "reject", "rollback"])
def test_a_reason_that_is_none_decides_nothing(world: World, verb: str) -> None:
    keys = open_keys(world.runtime)
    api, admin = Api(world.runtime, keys), keys.create("anna", role="admin").key
    proposal = world.propose(BUDGET)
    if verb == "rollback":
        world.governance().adopt(proposal.proposal_id, reason="Fine.")
    one = f"/api/learn/proposals/{proposal.proposal_id}"
    state = api.ask(f"GET {one}").json["state"]
    before = world.runtime.ledger.count()
    for reason in ("", " \n ", "a\x00b", "\ud800", "x" * 1001, None, 7, ["x"]):
        answer = api.ask(f"POST {one}/{verb}", {"reason": reason}, key=admin)
        assert (answer.status, answer.error["code"]) == (400, "invalid_input"), (reason, answer)
    for key in ("operator", "auditor", "agent"):
        other = keys.create(key, role=key).key
        before += 1
        assert api.ask(f"POST {one}/{verb}", {"reason": "Fine."}, key=other).status == 403
    assert api.ask(f"GET {one}").json["state"] == state
    assert world.runtime.ledger.count() == before
