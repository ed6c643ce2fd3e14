"""Every kind of proposal by a command: the record speaks for it, or it is refused."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import ReplayResult, read_samples
from remit.learning.held_out_replay import Pair
from remit.learning.meta import attribute, record_attribution
from remit.learning.proposals import Change, Proposals, case_of
from remit.learning.proposals.change import KINDS
from remit.learning.routes import GradedPrompt
from remit.ledger import LedgerClient, LedgerEntry
from remit.routing import Candidate, Weights
from remit.runtime.operations import all_operations
from remit.runtime.operations.fits import abilities_case
from remit.server.authentication import open_keys
from remit.server.console.pages import Asked
from remit.server.console.proposals import change
from remit.server.refusals import HttpError
from tests.learning.proposals.conftest import World, open_runtime
from tests.server.console.conftest import opened
from tests.server.test_api import Api
from tests.support.commands import remit_json, run_remit
from tests.support.roots import new_root

_MODELS = """
[routing.models.weak]
provider = "openai"
served_as = "weak-1"
[routing.models.strong]
provider = "openai"
"""


def record(ledger: LedgerClient, model: str, failing: float, count: int, **more: Any) -> None:
    """Record exchanges of which a share fails."""
    draw = random.Random(f"{model} {failing} {count}")
    for number in range(count):
        outcome = "error" if draw.random() < failing else "success"
        meta = {
            "session_id": f"SES-{number}", "model_id": model, "outcome": outcome, "agent_id": "a",
            "input_tokens": 100, "output_tokens": 50, **more,
        }  # fmt: skip
        ledger.write(LedgerEntry("EXCHANGE", "S", outcome.upper(), "x", metadata=meta))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = new_root(tmp_path / "root")
    with (place / "remit.toml").open("a") as file:
        file.write(_MODELS)
    return place


def propose(root: Path, *command: object) -> Any:
    return remit_json(*command, "--reason", "It is better.", "--root", root)


def test_each_kind_has_a_command() -> None:
    """Head and prompt are searched for, a rollback comes from the report."""
    known = {one.command for one in all_operations()}
    commands = {
        "route": "route abilities", "head": "route fit", "prompt": "learn prompt",
        "boundary": "learn boundary", "budget": "learn limit", "tool_permission": "learn tools",
        "set_aside": "learn set-aside", "rollback": "learn report",
    }  # fmt: skip
    assert commands.keys() == {*KINDS, "rollback"}
    assert known.issuperset(commands.values())


def test_a_model_that_fails_is_set_aside_by_the_record(root: Path) -> None:
    with Runtime.open(root) as runtime:
        record(runtime.ledger, "weak-1", 0.4, 300)
        record(runtime.ledger, "strong", 0.05, 300)
    made = propose(root, "learn", "set-aside", "weak")
    assert (made["kind"], made["state"]) == ("set_aside", "open")
    assert 0.2 < made["predicted"]["low"] < 0.35 < made["predicted"]["high"] < 0.5
    assert (made["replay"]["left"], made["replay"]["prevented"]) == (300, 300)
    better = run_remit("learn", "set-aside", "strong", "--reason", "x", "--root", root)
    assert (better.returncode, "may be zero" in better.stderr) == (1, True), better.stderr
    unknown = run_remit("learn", "set-aside", "other", "--reason", "x", "--root", root)
    assert "prevented no recorded exchange" in unknown.stderr
    adopted = run_remit("learn", "adopt", "last", "--reason", "It fails.", "--root", root)
    assert adopted.returncode == 0, adopted.stderr
    assert load_settings(Root(root).config).settings.routing.set_aside == ["weak"]


def test_a_model_with_the_harder_tasks_is_not_set_aside(root: Path) -> None:
    """Simpson's paradox: `weak` is as good at each task, but is asked most of the hard ones."""
    asked = {"Write a Python function.": 0.5, "Translate this into German.": 0.05}
    with Runtime.open(root) as runtime:
        for model, counts in (("weak-1", (400, 100)), ("strong", (100, 400))):
            for (prompt, failing), count in zip(asked.items(), counts, strict=True):
                record(runtime.ledger, model, failing, count, prompt=prompt)
    done = run_remit("learn", "set-aside", "weak", "--reason", "It fails.", "--root", root)
    assert (done.returncode, "may be zero" in done.stderr) == (1, True), done.stderr
    with Runtime.open(root) as runtime:
        change = Change("set_aside", settings={"routing": {"set_aside": ["weak"]}})
        mixed = case_of(change, read_samples(runtime.ledger), {"weak": "weak-1"})
        assert mixed["predicted"].low > 0.1, "without tasks the mix alone condemns it"
        of_tasks = read_samples(runtime.ledger, with_tasks=True)
        found = case_of(change, of_tasks, {"weak": "weak-1"})["predicted"]
        assert found.low < 0 < found.high < 0.3


def test_abilities_follow_the_grades_of_held_out_prompts() -> None:
    """The router takes the model that is better, if what it is better at pays for nothing else."""
    candidates = [
        Candidate("cheap", "p", input_price=10**9, output_price=10**9),
        Candidate("good", "p", input_price=10**9, output_price=10**9),
    ]
    prompts = [
        GradedPrompt(
            f"LED-{number:08x}", text, text, "chat",
            {"cheap": float(number % 10 < 5), "good": 1.0}, {"cheap": 0.001, "good": 0.001},
            [f"LED-{number:08x}"],
        )
        for number in range(900)
        for text in (f"Tell me of item {number}.",)
    ]  # fmt: skip
    settings, case = abilities_case(prompts, candidates, Weights.shipped(), looks=2)
    models = settings["routing"]["models"]
    assert models["good"]["abilities"]["general"] == 100
    assert 45 <= models["cheap"]["abilities"]["general"] <= 55
    assert case["gate"].low > 0.3
    turned = [replace(one, rewards={"cheap": 1.0, "good": 1.0}) for one in prompts]
    _, nothing = abilities_case(turned, candidates, Weights.shipped(), looks=2)
    assert nothing["gate"].low <= 0
    with pytest.raises(InvalidInputError, match="route calibrate"):
        abilities_case(prompts[:1], candidates, Weights.shipped(), looks=2)


def test_a_form_of_the_console_proposes(root: Path) -> None:
    with opened(root) as console:
        record(console.ledger, "weak-1", 0.4, 300)
        record(console.ledger, "strong", 0.05, 300)
        page = console.get("/console/proposals").text
        for command in ("set-aside", "tools", "limit", "boundary"):
            assert f'value="learn {command}"' in page
        assert 'value="route abilities"' in page
        form = {"operation": "learn set-aside", "models": "weak", "reason": "It fails."}
        sources = console.console._sources
        for role, status in (("auditor", 403), ("operator", 303)):
            identity = Identity("otto", role)
            asked = Asked("/console/proposals", "", identity, form=form)
            try:
                answer = change(sources, asked)
            except HttpError as error:
                assert error.status == status
            else:
                assert (answer.status, status) == (303, 303)
        (made,) = Proposals(Root(root), console.ledger).all()
        assert (made.kind, made.by) == ("set_aside", "otto")


# -- ``remit learn``, as a person uses it; and calls name the epoch -------------------------------


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
