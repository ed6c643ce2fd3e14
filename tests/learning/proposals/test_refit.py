"""Erasing prompts of a learned route fits the route again: it stays in force without them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import give_feedback
from remit.learning.proposals import Change, Learner, Proposals
from remit.learning.routes import ROUTE_SETTINGS, GradedPrompt, fit_head, fit_route, graded_prompts
from remit.learning.routes.route_fit import HEAD_FILE, RouteFit
from remit.ledger import Erased, LedgerClient, LedgerEntry
from remit.packages import Registry, archive_path, policy_epoch
from remit.packages.gates import check_gates
from remit.routing import (
    ErasedHeadError,
    LearnedHead,
    explain,
    find_decision,
    head_on_record,
    new_request,
    replay,
)
from remit.runtime.installation import forget_erased, governance
from remit.runtime.operator_models import permit_models
from tests.learning.proposals.conftest import ADMIN, World, gain, open_runtime, two_models
from tests.support.commands import remit_json, run_remit
from tests.support.roots import new_root
from tests.support.soak import soak_only
from tests.support.stores import checkpoint, files_hold
from tests.support.upstream import upstream

TOML = two_models("mock", "mock-model-1", "mock-model-2")
WORDS = ("apples", "tea", "trains", "rain", "salt")


def _graded(ledger: LedgerClient, count: int) -> list[str]:
    """Record prompts that two models answered, each answer graded; one session a prompt."""
    ids = []
    for number in range(count):
        text = f"Tell me of {WORDS[number % 5]} and {WORDS[number % 3]}, tale-{number}x."
        for model, usd in (("mock-model-1", 1e-5), ("mock-model-2", 1e-3)):
            meta = {
                "session_id": f"SES-{number}", "prompt": text, "response": f"Of {number}.",
                "model_id": model, "provider_id": "mock", "outcome": "success", "cost_usd": usd,
            }  # fmt: skip
            ids.append(ledger.write(LedgerEntry("EXCHANGE", "", "SUCCESS", "ok", metadata=meta)))
            score = float(model == "mock-model-2" or number % 5 != 1)
            give_feedback(ledger, ids[-1], score=score, by="ann", source="reference")
    return ids[::2]


def _prompts(runtime: Runtime) -> list[GradedPrompt]:
    return graded_prompts(runtime.ledger, candidates=runtime.router.candidates("auto"))


def _adopted(world: World) -> tuple[str, RouteFit]:
    """Adopt a fitted route, with an effect that so few prompts cannot show."""
    fit = fit_route(_prompts(world.runtime), 0.01)
    assert isinstance(fit, RouteFit), fit
    made = world.propose(
        Change("head", settings=ROUTE_SETTINGS, files=fit.files),
        holds=fit.holds, evidence=fit.evidence, predicted=gain(), replay={"held_out": 1},
    )  # fmt: skip
    models = ["mock/mock-model-1", "mock/mock-model-2"]
    permit_models(world.root, world.runtime.ledger, world.runtime.loaded, models, by="anna")
    deciding = governance(world.root, world.runtime.ledger, world.runtime.loaded, ADMIN)
    deciding.adopt(made.proposal_id, reason="It pays.")
    return made.proposal_id, fit


def _decided(place: Path, database: str) -> tuple[str, dict[str, Any]]:
    """The id of a decision of ``auto``, and its record."""
    with open_runtime(place, database) as runtime:
        request = new_request(
            "tester", "SES-live", max_tokens=20, model_id="auto",
            messages=[{"role": "user", "content": "Tell me of apples and tea."}],
        )  # fmt: skip
        answer = runtime.gateway.route(request)
        assert not answer.error_code, answer
        meta = runtime.ledger.read(answer.decision_entry_id).metadata
    return meta["decision_id"], json.loads(meta["content"])


def test_a_route_stays_in_force_without_the_erased_prompts(place: tuple[str, Path]) -> None:
    database, directory = place
    on_server = database.startswith("postgresql")
    _erase_in_turn(directory.parent / "root", database if on_server else "", 160, (1, 10))


@pytest.mark.soak
@soak_only
def test_a_route_stays_in_force_after_1_10_and_100_of_1000(tmp_path: Path) -> None:
    _erase_in_turn(tmp_path / "root", "", 1000, (1, 10, 100))


def _erase_in_turn(place: Path, database: str, count: int, parts: tuple[int, ...]) -> None:
    new_root(place, TOML, database=database)
    with open_runtime(place, database) as runtime:
        ids = _graded(runtime.ledger, count)
        proposal, fit = _adopted(World(place, runtime, ids))
    head = fit.weights.head
    assert head is not None
    assert [row.exchange_id for row in head.neighbours] == ids
    for part in parts:
        decision, record = _decided(place, database)
        gone, ids = ids[:part], ids[part:]
        rows = [row for row in head.neighbours if row.exchange_id in gone]
        marks = [",".join(map(str, row.buckets)) for row in rows]
        assert all(files_hold(place, mark) for mark in marks)
        with open_runtime(place, database) as runtime:
            ledger = runtime.ledger
            epoch = policy_epoch(ledger)
            for one in gone:
                ledger.erase(one, reason="request", requested_by="otto")
            assert forget_erased(Root(place), ledger, load_settings(place / "remit.toml")) == [
                proposal
            ]
            if not database:
                checkpoint(str(place / "ledger.db"))
            now = Proposals(Root(place), ledger)
            assert now.get(proposal).state == "rolled_back"
            (proposal,) = (one.proposal_id for one in now.all() if one.state == "adopted")
            assert policy_epoch(ledger) == epoch + 2
            assert now.get(proposal).previous_version == ""
            assert list(now.get(proposal).holds) == ids
            assert set(now.get(proposal).evidence).isdisjoint(gone)
            # No byte of the evidence stays, on disk or in the ledger.
            assert not [mark for mark in marks if files_hold(place, mark)]
            for one in ledger.query(event_type="THOUGHT_RECORD"):
                if str(one.metadata["thought_id"]).startswith(("HEAD-", "EVIDENCE-")):
                    assert isinstance(one.metadata["content"], Erased)
            with pytest.raises(ErasedHeadError, match="was erased under LED-"):
                head_on_record(ledger, head.digest)
            # The head is the one that would have been fitted had the prompts never been there.
            fresh = fit_head(_prompts(runtime))
            head = LearnedHead.from_bytes((place / HEAD_FILE).read_bytes())
            assert head.encoded == fresh.encoded
            head = fresh
            # An older decision is explained, and what remains of it agrees.
            found = replay(find_decision(ledger, decision), ledger)
            assert (found["agrees"], found["erased"]) == (True, True)
            assert (found["checks"]["scores"], found["checks"]["decision_hash"]) == (None, True)
            assert any("was erased" in note for note in found["notes"])
            assert explain(ledger, decision)["neighbours"] == []
            assert check_gates(runtime.gate_context(), by="test").passed
            assert ledger.verify().verified
        again, after = _decided(place, database)
        assert after["chosen_model_id"] == record["chosen_model_id"]
        assert after["rule_version_hash"] != record["rule_version_hash"]
        with open_runtime(place, database) as runtime:
            assert replay(find_decision(runtime.ledger, again), runtime.ledger)["agrees"]
            assert explain(runtime.ledger, again)["neighbours"]


def test_a_later_change_stays_and_a_killed_refit_is_completed(world: World) -> None:
    """The process is killed after the new head was adopted, before old archives are deleted."""
    with (world.place / "remit.toml").open("a") as file:
        file.write(TOML)
    world.runtime.close()
    with open_runtime(world.place) as runtime:
        world = World(world.place, runtime, world.exchanges)
        ids = _graded(runtime.ledger, 160)
        _adopted(world)
        later = world.propose(Change("set_aside", settings={"routing": {"set_aside": ["dear"]}}))
        world.governance().adopt(later.proposal_id, reason="It fails.")
        for one in ids[:2]:
            runtime.ledger.erase(one, reason="request", requested_by="otto")
        forget_erased(world.root, runtime.ledger, runtime.loaded)
        epoch = policy_epoch(runtime.ledger)
        (world.place / "proposals" / ".erased").unlink()
        forget_erased(world.root, runtime.ledger, load_settings(world.root.config))
        assert policy_epoch(runtime.ledger) == epoch
        assert load_settings(world.root.config).settings.routing.set_aside == ["dear"]
        assert Proposals(world.root, runtime.ledger).get(later.proposal_id).state == "adopted"
        assert (world.place / HEAD_FILE).exists()
        history = Registry.from_ledger(runtime.ledger).history["PKG-LEARNED-ROUTING-001"]
        stored = {one.version: (world.place / archive_path(one)).exists() for one in history}
        assert stored == {"1.0.0": False, "2.0.0": False, "3.0.0": True}


# -- A learned route from graded answers to its adoption, over HTTP, and back again ---------------


VERIFY = Path(__file__).parents[3] / "docs" / "verify_decisions.py"
ROUTE_TOML = two_models("openai", "gpt-4o-mini", "gpt-4o")


def command(place: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    return remit_json(*arguments, "--root", place, code=code)


def ask(runtime: Runtime, text: str, **model: str) -> Any:
    request = new_request(
        "tester", "SES-1", max_tokens=50, messages=[{"role": "user", "content": text}], **model
    )
    answer = runtime.gateway.route(request)
    assert not answer.error_code, answer
    return answer


def decided(place: Path) -> tuple[str, str, str]:
    """Of a call of ``auto``: the decision's id, the model, the rules."""
    with open_runtime(place) as runtime:
        answer = ask(runtime, "Tell me of apples and tea.", model_id="auto")
        meta = runtime.ledger.read(answer.decision_entry_id).metadata
    record = json.loads(meta["content"])
    return meta["decision_id"], record["chosen_model_id"], record["rule_version_hash"]


def verified(place: Path, export: Path) -> dict[str, Any]:
    """What the independent script says of all thoughts."""
    export.write_text(
        run_remit(
            "ledger", "query", "--event-type", "THOUGHT_RECORD", "--json", "--root", place
        ).stdout
    )
    checked = subprocess.run(
        [sys.executable, "-I", str(VERIFY), str(export), "--json"], capture_output=True
    )
    assert checked.returncode == 0, checked.stdout
    found: dict[str, Any] = json.loads(checked.stdout)
    return found


def proposed(place: Path) -> tuple[str, RouteFit]:
    """Proposed as by the command, with an effect that so few prompts cannot show."""
    with open_runtime(place) as runtime:
        candidates = runtime.router.candidates("auto")
        fit = fit_route(graded_prompts(runtime.ledger, candidates=candidates), 0.01)
        assert isinstance(fit, RouteFit), fit
        learner = Learner(
            runtime.root, runtime.ledger, runtime.loaded, Identity("otto", "operator")
        )
        proposal = learner.propose(
            Change("head", settings=ROUTE_SETTINGS, files=fit.files),
            holds=fit.holds, evidence=fit.evidence, predicted=gain(), replay={}, reason="Less.",
        )  # fmt: skip
    return proposal.proposal_id, fit


def test_a_learned_route_is_adopted_replayed_rolled_back_and_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_root(tmp_path / "root", ROUTE_TOML)
    with upstream() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        before = decided(place)
        assert before[1] == "dear"
        texts = [f"Tell me of {WORDS[n % 4]}, chapter {n}." for n in range(24)]
        with open_runtime(place) as runtime:
            ids = [
                ask(runtime, text, provider_id="openai", model_id="gpt-4o").exchange_entry_id
                for text in texts
            ]
            answer = runtime.ledger.read(ids[0]).metadata["response"]
            assert texts[0] in answer
        file = tmp_path / "references.jsonl"
        lines = [
            {"exchange_id": one, "reference": answer.replace(texts[0], text)}
            for one, text in zip(ids, texts, strict=True)
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        bought = command(place, "route", "calibrate", "--usd", 1, "--references", file)
        assert (bought["calls"], bought["graded"], bought["ended"]) == (24, 24, "done")
        assert 0 < bought["usd"] < 0.01
        again = command(place, "route", "calibrate", "--usd", 1)  # what was right is a reference
        assert (again["calls"], again["without_reference"]) == (0, 0)

        arguments = ("route", "fit", "--usd-per-call", 0.01, "--propose", "--reason", "Cheaper.")
        refused = command(place, *arguments, code=1)
        assert any("of reward" in line for line in refused["missing"])
        assert refused["proposal_id"] == ""
        assert command(place, "learn", "proposals")["proposals"] == []

        for score, is_over in ((1.0, False), (0.9, False), (0.9, False), (0.8, True), (0.9, False)):
            with open_runtime(place) as runtime:
                give_feedback(runtime.ledger, ids[0], score=score, by="unit", source="test")
            found = command(place, "route", "fit", "--usd-per-call", 0.01)
            assert any("2 fits have looked" in one for one in found["missing"]) is is_over

        first, _ = proposed(place)
        command(place, "learn", "adopt", first, "--reason", "It pays.")
        decision, chosen, rules = decided(place)
        assert (chosen, rules != before[2]) == ("cheap", True)
        assert command(place, "route", "replay", decision)["agrees"]
        checked = verified(place, tmp_path / "export.json")
        assert (checked["scores_equal"], checked["erased"]) == (2, [])

        command(place, "learn", "rollback", first, "--reason", "Not yet.")
        assert decided(place)[1:] == before[1:]
        assert command(place, "route", "replay", decision)["agrees"]

        second, fit = proposed(place)
        command(place, "learn", "adopt", second, "--reason", "Now.")
        assert decided(place)[1] == "cheap"
        erased = run_remit(
            "ledger", "erase", fit.holds[0], "--reason", "request", "--yes", "--root", place
        )
        assert second in erased.stderr, erased.stderr
        assert decided(place)[1:] == before[1:]
        again = command(place, "route", "replay", decision)
        assert (again["agrees"], again["erased"]) == (True, True)
        told = run_remit("route", "replay", decision, "--root", place).stdout
        assert told.startswith(f"The decision {decision} ("), told
        assert ") agrees with the record; content was erased.\n" in told, told
        checked = verified(place, tmp_path / "export.json")
        assert checked["bad"] == []
        assert decision in checked["erased"]
        with open_runtime(place) as runtime:
            packages = Registry.from_ledger(runtime.ledger).packages
            assert "PKG-LEARNED-ROUTING-001" not in packages
            assert not (place / HEAD_FILE).exists()
            removed = Proposals(runtime.root, runtime.ledger).get(second)
            assert (removed.state, removed.decided_by) == ("rolled_back", "erasure")
        assert (
            load_settings(place / "remit.toml").settings.routing.rules != "HOT/routing/learned.json"
        )
