"""A learned route from graded answers to its adoption, over HTTP, and back again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.settings import load_settings
from remit.learning import give_feedback
from remit.learning.proposals import Change, Learner, Proposals
from remit.learning.routes import ROUTE_SETTINGS, RouteFit, fit_route, graded_prompts
from remit.learning.routes.route_fit import HEAD_FILE
from remit.packages import Registry
from remit.routing import new_request
from tests.learning.proposals.conftest import gain, two_models
from tests.support.commands import remit_json, run_remit
from tests.support.roots import new_root
from tests.support.upstream import upstream

VERIFY = Path(__file__).parents[3] / "docs" / "verify_decisions.py"
TOML = two_models("openai", "gpt-4o-mini", "gpt-4o")
WORDS = ("apples", "tea", "trains", "rain")


def command(place: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    return remit_json(*arguments, "--root", place, code=code)


def open_runtime(place: Path) -> Runtime:
    return Runtime.open(place, flags={"budget.mode": "off"})


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
    place = new_root(tmp_path / "root", TOML)
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
