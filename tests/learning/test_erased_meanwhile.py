"""Content that is erased while a prompt is searched, measured, proposed and adopted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.kernel.root import Root
from remit.learning import held_out_sides, is_held_out
from remit.learning.proposals import Proposals
from tests.learning.conftest import CONTRACT, MODEL
from tests.learning.test_prompt_loop import RIGHT, Reflecting
from tests.learning.test_wrong_question import (
    CONTRACT as WEIGH,
    RULE,
    SYSTEM,
    WEAK,
    Model,
    request,
    world,
)
from tests.support.commands import run_remit
from tests.support.scripted import Scripted


def erase(root: Path, exchange_id: str) -> None:
    done = run_remit("ledger", "erase", exchange_id, "--reason", "request 7", "--yes",
                     "--root", root)  # fmt: skip
    assert done.returncode == 0, done.stderr


def parted(root: Path, model: str) -> dict[str, bool]:
    """Exchanges on record, and whether each is held out."""
    with Runtime.open(root, model=model) as runtime:
        return held_out_sides(
            runtime.ledger, [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
        )


def test_during_the_search(answered: Path, provider: Scripted) -> None:
    known = parted(answered, MODEL)
    gone = [one for one, held_out in known.items() if not held_out][-1]
    with Runtime.open(answered, model=MODEL) as runtime:
        text = runtime.ledger.read(gone).metadata["prompt"][-1]["content"]

    def erasing(body: dict[str, Any]) -> str:
        if not provider.bodies[1:]:
            erase(answered, gone)
        return '{"tea": 1}' if "one JSON object" in json.dumps(body["messages"]) else "tea"

    provider.reply = erasing
    provider.bodies.clear()
    command = ("learn", "prompt", CONTRACT, "--schema", answered.parent / "schema.json",
               "--usd", 1, "--root", answered, "--json")  # fmt: skip
    done = run_remit(*command)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{gone}, which the search used, was erased during the search" in done.stderr
    again = json.loads(run_remit(*command).stdout)
    assert again["search"]["ended"] == "complete"
    assert again["held_out"]["replayed"] == sum(known.values())
    sent = [json.dumps(body["messages"]) for body in provider.bodies]
    assert not any(f"{text}" in one or "erased under" in one for one in sent)


def log(root: Path) -> dict[str, bool]:
    """Record 205 held-out exchanges and up to 40 others, each in a session of its own."""
    found: dict[str, bool] = {}
    number = 0
    with Runtime.open(root, flags={"budget.mode": "off"}) as runtime:
        while sum(found.values()) < 205:
            messages = [
                {"role": "system", "content": SYSTEM.partition("\n")[2].strip()},
                {"role": "user", "content": f"What does parcel {number} weigh?"},
            ]
            number += 1
            if not is_held_out(messages) and list(found.values()).count(False) == 40:
                continue
            asked = replace(request(messages, WEAK), session_id=f"SES-{number}")
            answer = runtime.gateway.route(asked)
            assert not answer.error_code, answer.error_message
            found[answer.exchange_entry_id] = is_held_out(messages)
    return found


class Interrupting(Reflecting):
    """Once a held-out exchange is asked with the rule, something happens first."""

    def __init__(self) -> None:
        super().__init__(Model(WEAK), RULE)
        self.then: Callable[[], None] | None = None

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][-1]["content"]
        held_out = [{"role": "system", "content": SYSTEM.partition("\n")[2].strip()},
                    {"role": "user", "content": said}]  # fmt: skip
        if self.then and RULE in json.dumps(body.get("system")) and is_held_out(held_out):
            then, self.then = self.then, None
            then()
        return super().__call__(body)


@pytest.mark.timeout(1200)  # Some 1,000 calls: more than 300 s on a busy machine.
def test_between_measuring_and_adoption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Interrupting()
    with world(tmp_path, monkeypatch, model) as root:
        known = log(root)
        held_out = [one for one in known if known[one]]
        learned = [one for one in known if not known[one]][-1]
        references = tmp_path / "references.json"
        references.write_text(json.dumps(dict.fromkeys(known, RIGHT)))

        def both() -> None:
            erase(root, learned)
            erase(root, held_out[-1])

        model.then = both
        command = (
            "learn", "prompt", WEIGH, "--usd", 1, "--references", references, "--json",
            "--reflect", f"anthropic/{WEAK}", "--root", root, "--propose", "--reason", "Units.",
        )  # fmt: skip
        done = run_remit(*command)
        assert (done.returncode, model.then) == (1, None), done.stderr
        assert f"The content of {learned}" in done.stderr, done.stdout
        assert "no proposals" in run_remit("learn", "proposals", "--root", root).stdout.lower()
        found = json.loads(run_remit(*command).stdout)
        assert found["held_out"]["replayed"] == len(held_out) - 1
        with Runtime.open(root) as runtime:
            proposal = Proposals(Root(root), runtime.ledger).get(found["proposal_id"])
            assert not {learned, held_out[-1]} & set(proposal.evidence)
        erase(root, held_out[0])
        adopted = run_remit("learn", "adopt", "last", "--reason", "Units.", "--root", root)
        assert (adopted.returncode, "is stale" in adopted.stderr) == (1, True), adopted.stderr
