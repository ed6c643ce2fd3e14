"""A proposed route that is tried on a share of the calls, over real HTTP and the command line."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import give_feedback
from remit.learning.evidence.samples import Sample
from remit.learning.proposals import Change, Learner, Proposals, canary_of
from remit.learning.proposals.canary_comparison import Comparison
from remit.learning.routes import ROUTE_SETTINGS, RouteFit, fit_route, graded_prompts
from remit.ledger import LedgerEntry
from remit.packages import Registry
from remit.routing import CanaryTerms, canary_in_force, explain, find_decision, new_request, replay
from remit.runtime.installation import forget_erased, settle_canary
from remit.server.console import sign_in
from remit.server.console.pages import Asked
from remit.server.console.proposals import change as sent_to
from remit.server.refusals import HttpError
from tests.learning.proposals.conftest import gain, two_models
from tests.learning.proposals.test_refit import verified
from tests.server.console.conftest import opened as console
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.scripted import Scripted, scripted
from tests.support.soak import soak_only

ROUTES = "[routing.guard]\ntolerance = 0.05\n" + two_models("openai", "gpt-4o-mini", "gpt-4o")
MODELS = {"new": "gpt-4o-mini", "old": "gpt-4o"}
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def provider() -> Iterator[Scripted]:
    with scripted() as made:
        yield made


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which `dear` answers, with an open proposal of a route that prefers `cheap`."""
    place = new_root(
        tmp_path_factory.mktemp("proposed") / "root",
        "[gateway]\nmax_retries = 0\n"
        f'[providers.openai]\napi_key = "sk-test"\nbase_url = "{NOBODY}/v1"\n{ROUTES}',
    )
    with opened(place) as runtime:
        for number in range(24):
            for model, usd in (("gpt-4o-mini", 1e-5), ("gpt-4o", 1e-3)):
                meta = {
                    "session_id": f"SES-{number}", "prompt": f"Tell me of tea, chapter {number}.",
                    "response": "Tea.", "model_id": model, "provider_id": "openai",
                    "outcome": "success", "cost_usd": usd,
                }  # fmt: skip
                entry = LedgerEntry("EXCHANGE", "", "SUCCESS", "ok", metadata=meta)
                give_feedback(
                    runtime.ledger, runtime.ledger.write(entry), score=1.0, by="ann",
                    source="reference",
                )  # fmt: skip
        fit = fit_route(
            graded_prompts(runtime.ledger, candidates=runtime.router.candidates("auto")), 0.01
        )
        assert isinstance(fit, RouteFit), fit
        learner = Learner(
            runtime.root, runtime.ledger, runtime.loaded, Identity("otto", "operator")
        )
        learner.propose(
            Change("head", settings=ROUTE_SETTINGS, files=fit.files),
            holds=fit.holds, evidence=fit.evidence, predicted=gain(), replay={}, reason="Less.",
        )  # fmt: skip
    return place


@pytest.fixture
def place(proposed: Path, provider: Scripted, tmp_path: Path) -> Path:
    """A copy of that root, whose provider answers."""
    place = shutil.copytree(proposed, tmp_path / "root", symlinks=True)
    toml = place / "remit.toml"
    toml.write_text(toml.read_text().replace(NOBODY, provider.url))
    return place


def opened(place: Path) -> Runtime:
    return Runtime.open(place, flags={"budget.mode": "off"})


def command(place: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    done = run_remit(*arguments, "--json", "--root", place)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": done.stderr}
    return found


def begin(place: Path, *arguments: object) -> str:
    if not arguments:
        arguments = ("--share", 0.5, "--usd", 1)
    found = command(place, "learn", "adopt", "last", "--reason", "A try.", *arguments)
    assert found["state"] == "open"
    return str(found["proposal_id"])


def ask(runtime: Runtime, text: str = "Tell me of tea.", **model: str) -> tuple[Any, Any]:
    """The decision and the exchange of a call."""
    request = new_request(
        "tester", "SES-1", max_tokens=50, messages=[{"role": "user", "content": text}],
        **{"model_id": "auto", **model},
    )  # fmt: skip
    answer = runtime.gateway.route(request)
    assert not answer.error_code, answer
    read = runtime.ledger.read
    return read(answer.decision_entry_id), read(answer.exchange_entry_id)


def canary(runtime: Runtime) -> dict[str, Any]:
    found = canary_of(runtime.ledger, Proposals(runtime.root, runtime.ledger).get("last"))
    assert found is not None
    return found


def test_each_arm_is_drawn_from_the_id_and_replays(place: Path, tmp_path: Path) -> None:
    proposal = begin(place)
    arms = {"new": 0, "old": 0}
    with opened(place) as runtime:
        for number in range(16):
            decision, exchange = ask(runtime, f"Tell me of tea, part {number}.")
            shown = decision.metadata["canary"]
            arms[shown["arm"]] += 1
            assert exchange.metadata["model_id"] == MODELS[shown["arm"]]
            assert shown["other"] == {"new": "dear", "old": "cheap"}[shown["arm"]]
            assert decision.metadata["propensity"] == 0.5 == exchange.metadata["propensity"]
            assert exchange.metadata["canary"] == {
                "proposal_id": proposal, "arm": shown["arm"], "share": 0.5, "differs": True,
            }  # fmt: skip
            found = replay(decision, runtime.ledger)
            assert (found["agrees"], found["checks"]["canary"]) == (True, True), found
            said = " ".join(explain(runtime.ledger, decision.id)["why"])
            took = {"new": "proposed", "old": "current"}[shown["arm"]]
            assert f"drew the {took} route" in said
            forged = {**decision.metadata, "canary": {**shown, "other": "none"}}
            arm = {"new": "old", "old": "new"}[shown["arm"]]
            turned = {**decision.metadata, "canary": {**shown, "arm": arm}}
            for metadata in (turned, forged) if shown["arm"] == "old" else (turned,):
                decision.metadata = metadata
                assert replay(decision, runtime.ledger)["checks"]["canary"] is False
        assert min(arms.values()) > 1
        assert canary(runtime)["calls"] == arms
    assert verified(place, tmp_path / "export.json")["bad"] == []


def test_a_shadow_chooses_and_the_current_route_answers(place: Path) -> None:
    begin(place, "--shadow")
    with opened(place) as runtime:
        for _ in range(3):
            decision, exchange = ask(runtime)
            assert exchange.metadata["model_id"] == "gpt-4o"
            shown = decision.metadata["canary"]
            assert (shown["arm"], shown["share"], shown["other"]) == ("old", 0, "cheap")
            assert decision.metadata["propensity"] == 1
            assert replay(decision, runtime.ledger)["agrees"]
        found = canary(runtime)
        assert (found["calls"], found["spent_usd"], found["verdict"]) == ({"shadow": 3}, 0, "")
        settled = settle_canary(runtime.root, runtime.ledger, runtime.loaded)
        assert settled is not None
        assert not settled.verdict


@pytest.mark.parametrize(("option", "value"), [("--key", "elsewhere"), ("--task", "code")])
def test_a_canary_concerns_one_key_or_one_task(place: Path, option: str, value: str) -> None:
    command(place, "key", "create", "--name", "elsewhere")
    begin(place, "--share", 0.5, "--usd", 1, option, value)
    with opened(place) as runtime:
        decision, exchange = ask(runtime, "Tell me of tea.")
        assert "canary" not in decision.metadata | exchange.metadata
        if option == "--task":
            decision, _ = ask(runtime, "def f(x):\n    return x + 1\nFix this Python function.")
            assert decision.metadata["canary"]["other"] in ("cheap", "dear")


def test_the_budget_is_not_exceeded_and_its_end_stops_the_canary(place: Path) -> None:
    begin(place, "--share", 0.9, "--usd", 0.0018)
    with opened(place) as runtime:
        exchanges = [ask(runtime)[1].metadata for _ in range(60)]
        spent = sum(one["cost_usd"] for one in exchanges if one["canary"]["arm"] == "new")
        assert 0 < spent <= 0.0018
        assert exchanges[-1]["canary"]["share"] == 0
        found = canary(runtime)
        assert found["spent_usd"] == pytest.approx(spent)
        assert (found["verdict"], "budget" in found["reason"]) == ("stop", True)
    assert command(place, "learn", "settle")["verdict"] == "stop"
    with opened(place) as runtime:
        assert "canary" not in ask(runtime)[0].metadata
        assert canary(runtime)["state"] == "ended"
        (last,) = list(runtime.ledger.query(event_type="SIGNAL_CANARY"))[1:]
        assert (last.decision, last.metadata["compared"]["verdict"]) == ("STOPPED", "stop")
    assert command(place, "learn", "settle")["reason"] == "No canary is in force."


def _grade(runtime: Runtime, scores: dict[str, float], calls: int) -> None:
    for number in range(calls):
        exchange = ask(runtime, f"Tell me of tea, part {number}.")[1]
        score = scores[exchange.metadata["canary"]["arm"]]
        give_feedback(runtime.ledger, exchange.id, score=score, by="ann", source="test")


@pytest.mark.parametrize(("new", "verdict"), [(0.0, "stop"), (1.0, "adopt")])
def test_grades_decide(place: Path, new: float, verdict: str) -> None:
    proposal = begin(place)
    with opened(place) as runtime:
        _grade(runtime, {"new": new, "old": 1 - new}, 40)
    found = command(place, "learn", "settle")
    assert (found["verdict"], found["difference"]["high"] > 0) == (verdict, verdict == "adopt")
    with opened(place) as runtime:
        state = Proposals(runtime.root, runtime.ledger).get(proposal)
        assert state.state == {"stop": "open", "adopt": "adopted"}[verdict]
        assert (
            ask(runtime)[1].metadata["model_id"] == MODELS["new" if verdict == "adopt" else "old"]
        )
        assert canary(runtime)["difference"]["samples"] == 40
        installed = "PKG-LEARNED-ROUTING-001" in Registry.from_ledger(runtime.ledger).packages
        assert installed == (verdict == "adopt")
    if verdict == "adopt":
        command(place, "learn", "rollback", proposal, "--reason", "Enough.")


def test_a_person_stops_adopts_or_rejects_during_a_canary(place: Path) -> None:
    proposal = begin(place)
    again = run_remit(
        "learn", "adopt", "last", "--share", 0.1, "--usd", 1, "--reason", "x", "--root", place
    )
    assert (again.returncode, "canary is in force" in again.stderr) == (1, True), again.stderr
    with opened(place) as runtime:
        assert "canary" in ask(runtime)[0].metadata
        stopped = run_remit("learn", "stop", proposal, "--reason", "Enough.", "--root", place)
        assert stopped.returncode == 0, stopped.stderr
        assert "canary" not in ask(runtime)[0].metadata  # in a process that was open before
    done = run_remit("learn", "stop", proposal, "--reason", "Again.", "--root", place)
    assert (done.returncode, "No canary" in done.stderr) == (1, True)
    begin(place)
    shown = run_remit("learn", "show", proposal, "--root", place).stdout
    assert "  share: 0.5\n" in shown
    assert "  state: in force\n" in shown
    command(place, "learn", "reject", proposal, "--reason", "No.")
    with opened(place) as runtime:
        assert "canary" not in ask(runtime)[0].metadata


def test_terms_that_are_wrong_are_refused(place: Path) -> None:
    for name in ("elsewhere", "former"):
        command(place, "key", "create", "--name", name)
    command(place, "key", "revoke", "former", "--reason", "left")
    share = ("--share", 0.5, "--usd", 1)
    wrong: list[tuple[tuple[object, ...], str]] = [
        (("--share", 1, "--usd", 1), ""), (("--share", 0.5), ""), (("--shadow", *share), ""),
        (("--share", 0.5, "--usd", "nan"), ""), ((*share, "--key", "elsewere"), "elsewere"),
        ((*share, "--key", "former"), "revoked"),
        ((*share, "--task", "cod"), "Tasks: chat, code, "),
    ]  # fmt: skip
    for terms, said in wrong:
        done = run_remit("learn", "adopt", "last", "--reason", "x", *terms, "--root", place)
        assert done.returncode in (1, 2), terms
        assert said in done.stderr
    with opened(place) as runtime:
        assert not list(runtime.ledger.query(event_type="SIGNAL_CANARY"))
        assert not list(runtime.ledger.query(event_type="SIGNAL_ADOPTED"))


def test_a_canary_of_a_key_that_was_revoked_ends(place: Path) -> None:
    command(place, "key", "create", "--name", "elsewhere")
    begin(place, "--share", 0.5, "--usd", 1, "--key", "elsewhere")
    assert command(place, "learn", "settle")["verdict"] == ""
    command(place, "key", "revoke", "elsewhere", "--reason", "left")
    found = command(place, "learn", "settle")
    assert (found["verdict"], "'elsewhere'" in found["reason"]) == ("stop", True), found
    assert "revoked" in found["reason"]
    with opened(place) as runtime:
        assert canary_in_force(runtime.ledger) is None
        (_, stopped) = list(runtime.ledger.query(event_type="SIGNAL_CANARY"))
        assert "revoked" in stopped.metadata["compared"]["reason"]


def test_erased_evidence_stops_the_canary_and_leaves_no_head(place: Path) -> None:
    proposal = begin(place)
    with opened(place) as runtime:
        decisions = [ask(runtime)[0] for _ in range(12)]
        held = Proposals(runtime.root, runtime.ledger).get(proposal).holds[0]
        runtime.ledger.erase(held, reason="request", requested_by="otto")
        gone = forget_erased(Root(place), runtime.ledger, load_settings(place / "remit.toml"))
        assert gone == [proposal]
        assert "canary" not in ask(runtime)[0].metadata
        for decision in decisions:
            found = replay(find_decision(runtime.ledger, decision.id), runtime.ledger)
            assert found["erased"]
            assert False not in found["checks"].values()
        (_, stopped) = list(runtime.ledger.query(event_type="SIGNAL_CANARY"))
        assert (stopped.decision, stopped.metadata["by"]) == ("STOPPED", "erasure")


_KILLED = """
import os, signal, sys
from tests.learning.proposals.test_canary import ask, opened
from pathlib import Path
runtime = opened(Path(sys.argv[1]))
for number in range(5):
    ask(runtime)
print("asked", flush=True)
while True:
    ask(runtime)
"""


_KILLED_AT_THE_HEAD = """
import os, signal, sys
from remit.routing.trail import append
from remit.runtime.installation import governance
from tests.learning.proposals.conftest import ADMIN
from tests.learning.proposals.test_canary import load_settings, opened
from pathlib import Path
runtime = opened(Path(sys.argv[1]))
append._Stage.write = lambda stage: os.kill(os.getpid(), signal.SIGKILL)
loaded = load_settings(runtime.root.config)
governance(runtime.root, runtime.ledger, loaded, ADMIN).start_canary(
    "last", reason="A try.", share=0.5, usd=1
)
"""


def test_a_kill_leaves_no_canary_without_its_head(place: Path) -> None:
    child = subprocess.run([sys.executable, "-c", _KILLED_AT_THE_HEAD, str(place)])
    assert child.returncode == -signal.SIGKILL
    with opened(place) as runtime:
        assert canary_in_force(runtime.ledger) is None
        assert "canary" not in ask(runtime)[0].metadata
    begin(place)
    with opened(place) as runtime:
        assert ask(runtime)[0].metadata["canary"]["share"] == 0.5


def test_a_kill_loses_neither_the_canary_nor_what_it_spent(place: Path) -> None:
    begin(place)
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "asked\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with opened(place) as runtime:
        metadata = ask(runtime)[1].metadata
        assert metadata["canary"]["share"] == 0.5
        exchanges = [one.metadata for one in runtime.ledger.query(event_type="EXCHANGE")]
        spent = sum(
            one["cost_usd"] for one in exchanges if one.get("canary", {}).get("arm") == "new"
        )
        found = canary(runtime)
        assert (found["state"], found["spent_usd"]) == ("in force", pytest.approx(spent))
        assert sum(found["calls"].values()) >= 6


def test_a_form_starts_a_canary_and_never_adopts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form without a share would change all calls, so it is refused."""
    admin = replace(sign_in.DEVELOPER, role="admin")
    monkeypatch.setattr(sign_in, "DEVELOPER", admin)
    with console(place) as opened_console:
        proposal = Proposals(Root(place), opened_console.ledger).get("last").proposal_id
        page = f"/console/proposals/{proposal}"
        assert f'action="{page}/canary"' in opened_console.get(page).text
        sources = opened_console.console._sources

        def send(role: str = "admin", **fields: str) -> int:
            identity = Identity("otto", role)
            form = {"operation": "learn adopt", "reason": "A try.", **fields}
            return sent_to(sources, Asked(page, f"{proposal}/canary", identity, form=form)).status

        for fields in ({}, {"share": "0", "usd": "1"}, {"share": "0.5"}, {"share": "x"},
                       {"share": "0.5", "usd": "1", "reason": ""}):  # fmt: skip
            with pytest.raises(InvalidInputError):
                send(**fields)
        with pytest.raises(HttpError):
            send("operator", share="0.5", usd="1")
        entries = [one.event_type for one in opened_console.ledger.query(with_content=False)]
        assert not {"SIGNAL_CANARY", "SIGNAL_ADOPTED"} & set(entries)
        assert send(share="0.5", usd="1", task="code") == 303
        terms = canary_in_force(opened_console.ledger)
        assert terms is not None
        assert (terms.share, terms.usd, terms.task, terms.by) == (0.5, 1.0, "code", "otto")
        assert "In force: 50% of the calls, task code" in opened_console.get(page).text
        assert f'action="{page}/canary"' not in opened_console.get(page).text


# -- The comparison alone, simulated with a fixed seed ---------------------------------------------

_USD = 0.001
_LOOK = 100


def _simulated(new: float, old: float, usd: float, seed: int) -> tuple[str, float]:
    """How a canary ends in which answers are right with these probabilities, and its cost."""
    rng = random.Random(seed)
    terms = CanaryTerms("LED-0", "", "PRP-1", "PKG-1", 0.5, usd, 0.05, "", "", "ann")
    comparison = Comparison(terms)
    spent = 0.0
    while True:
        for _ in range(_LOOK):
            arm = "new" if rng.random() < 0.5 else "old"
            if arm == "new" and spent + _USD > usd:
                arm = "shadow"
            spent += _USD * (arm == "new")
            right = rng.random() < (new if arm == "new" else old)
            comparison.add(
                Sample(
                    exchange_id="LED-1", canary="PRP-1", arm=arm, cost_nano=1_000_000,
                    reward=float(right), raters=("ann",),
                )
            )  # fmt: skip
        found = comparison.result()
        assert found.spent_usd <= usd + 1e-9
        if found.verdict:
            return f"{found.verdict}: {found.reason}", found.spent_usd


def _ends(new: float, old: float, usd: float, runs: int) -> dict[str, int]:
    ended = {"adopt": 0, "loss": 0, "budget": 0}
    for seed in range(runs):
        end, _ = _simulated(new, old, usd, seed)
        name = "adopt" if end.startswith("adopt") else "loss" if "worse" in end else "budget"
        ended[name] += 1
    return ended


def test_a_loss_is_stopped_and_a_gain_is_adopted() -> None:
    """A sample; the counts of 100 are measured in the soak."""
    assert _ends(0.65, 0.75, 10.0, 5)["loss"] == 5
    assert _ends(0.80, 0.75, 10.0, 5)["adopt"] == 5
    assert _ends(0.75, 0.75, 0.2, 5)["loss"] == 0


def test_failed_calls_have_the_grade_0() -> None:
    """A route whose answers are as good but whose calls fail is stopped, whoever graded."""
    terms = CanaryTerms("LED-0", "", "PRP-1", "PKG-1", 0.5, 10.0, 0.05, "", "", "ann")
    good = Sample(exchange_id="LED-1", canary="PRP-1", reward=1.0, raters=("ann",))
    for change, verdict in (
        ({"failed": True, "reward": None, "raters": ()}, "stop"),
        ({"failed": True, "cancelled": True, "reward": None, "raters": ()}, "adopt"),
        ({"failed": True, "tainted": "degradation"}, "adopt"),
        ({}, "adopt"),
    ):
        comparison = Comparison(terms)
        for number in range(300):
            comparison.add(replace(good, arm="old"))
            comparison.add(replace(good, arm="new", **({} if number % 5 else change)))
        found = comparison.result()
        assert found.verdict == verdict, change
    assert "worse" not in found.reason


@soak_only
@pytest.mark.timeout(7200)  # A minute of computing, on a machine that others may use.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("new", "end", "least", "most"), [(0.70, "loss", 95, 100), (0.80, "adopt", 95, 100),
                                      (0.75, "loss", 0, 5)],
)  # fmt: skip
def test_100_canaries(new: float, end: str, least: int, most: int) -> None:
    ended = _ends(new, 0.75, 5.0, 100)
    assert least <= ended[end] <= most, ended
