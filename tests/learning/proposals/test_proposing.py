"""Every kind of proposal by a command: the record speaks for it, or it is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import read_samples
from remit.learning.proposals import Change, Proposals, case_of
from remit.learning.proposals.change import KINDS
from remit.learning.routes import GradedPrompt
from remit.ledger import LedgerClient, LedgerEntry
from remit.routing import Candidate, Weights
from remit.runtime.operations import all_operations
from remit.runtime.operations.fits import abilities_case
from remit.server.console.pages import Asked
from remit.server.console.proposals import change
from remit.server.refusals import HttpError
from tests.server.console.conftest import opened
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
