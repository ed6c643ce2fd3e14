"""The question was wrong, from the record to a better question; and its twin with a bad model.

The model is an HTTP server that speaks a provider's wire format. It answers in kilograms where the
prompt asks for kilograms, and in the twin does so only as the better model; else in either unit.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.contracts import ContractLoader
from remit.gateway import PromptRequest
from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.exchange import RouteOutcome
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.learning import (
    Replay,
    ReplayResult,
    grade_by_test,
    is_held_out,
    paired_effect,
    read_samples,
)
from remit.learning.meta import EffectReader, Question, attribute, read_questions
from remit.learning.proposals import Change, Learner, Proposals
from remit.learning.proposals.change import with_additions
from remit.ledger import LedgerEntry
from tests.support.commands import run_remit
from tests.support.packages import bring
from tests.support.roots import new_root
from tests.support.wire import message, serve

CONTRACT = "PRC-WEIGH-001"
RULE = "State every weight in kilograms."
WEAK, STRONG = "claude-haiku-4-5", "claude-sonnet-4-5"
SYSTEM = "[system]\nYou know what parcels weigh.\n"
_HELD_OUT = 205  # exchanges that both replays ask again
_PARCELS = 25


class Model:
    """Reads the prompt that it gets.

    Args:
        listens: the models that do what a prompt asks.
    """

    def __init__(self, *listens: str) -> None:
        self._listens = listens
        self._rng = random.Random(20)

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = "kilograms" in json.dumps([body.get("system"), body["messages"][-1]])
        obeys = asked and body["model"] in self._listens
        metric = obeys or self._rng.random() < 0.5
        answer = message("It weighs 12 kilograms." if metric else "It weighs 26 pounds.")
        return {**answer, "model": body["model"]}


@contextmanager
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model, system: str = SYSTEM
) -> Iterator[Path]:
    """A root with the contract in a package of its own, and the model behind it."""
    root = new_root(tmp_path / "root")
    contract = {
        "contract_id": CONTRACT, "version": "1.0.0", "prompt_pack_id": "PRM-WEIGH-001",
        "agent_class": "RESIDENT", "tier": "ho1",
        "boundary": {"max_tokens": 50, "temperature": 0},
        "examples": [{"input": {"user_input": "Parcel 1?"}, "renders": ["Parcel 1?"]}],
        "metadata": {"framework_id": "FMWK-AGENT-001", "package_id": "PKG-WEIGH-001"},
    }  # fmt: skip
    prompt = f"{system}[history]\n[user]\n{{{{ user_input }}}}\n"
    files = {
        f"HO1/contracts/{CONTRACT}.json": json.dumps(contract).encode(),
        "HO1/prompt_packs/PRM-WEIGH-001.txt": prompt.encode(),
    }
    bring(root, tmp_path, files, "PKG-WEIGH-001")
    with serve(model) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        yield root


def talk(runtime: Runtime) -> None:
    """Two people ask for each parcel's weight; who gets pounds says what was meant."""
    agent = runtime.agent("clerk", contract=CONTRACT, model=f"anthropic/{WEAK}")
    for number in range(2 * _PARCELS):
        with agent.session() as session:
            result = session.turn(f"What does parcel {number // 2} weigh?")
            (exchange,) = runtime.ledger.query(event_type="EXCHANGE", session_id=session.session_id)
            grade_by_test(runtime.ledger, exchange.id, right, by="a test")
            if not right(result.response):
                session.turn("No, I meant the other unit.")


def right(answer: str) -> bool:
    return "kilograms" in answer


def request(messages: Any, model: str) -> PromptRequest:
    return PromptRequest(
        "", "PRM-WEIGH-001", CONTRACT, "clerk", "RESIDENT", "FMWK-AGENT-001", "PKG-WEIGH-001",
        "", "SES-REPLAY", "ho1", model_id=model, provider_id="anthropic", max_tokens=50,
        messages=messages,
    )  # fmt: skip


def log(runtime: Runtime, system: str, others: int = 0) -> list[str]:
    """Record enough held-out exchanges, and up to `others` more; return the ids of the first."""
    TokenBudgeter(runtime.ledger).allocate(BudgetScope("SES-REPLAY"), 10**9)
    held_out: list[str] = []
    number = 1_000
    while len(held_out) < _HELD_OUT:
        number += 1
        messages = [
            {"role": "system", "content": system.partition("\n")[2].strip()},
            {"role": "user", "content": f"What does parcel {number} weigh?"},
        ]
        if not is_held_out(messages):
            others -= 1
            if others < 0:
                continue
        answer = runtime.gateway.route(request(messages, WEAK))
        assert answer.outcome is RouteOutcome.SUCCESS, answer.error_message
        if is_held_out(messages):
            held_out.append(answer.exchange_entry_id)
    return held_out


def replayed(
    runtime: Runtime, kept: Path, exchanges: list[str], model: str, added: str = ""
) -> ReplayResult:
    """The exchanges asked again of a model, perhaps with a bullet more in their prompt."""

    def ask(entry: LedgerEntry) -> PromptRequest:
        system, *rest = entry.metadata["prompt"]
        told = with_additions(f"[system]\n{system['content']}\n", [added] if added else [])
        return request([{**system, "content": told.partition("\n")[2].strip()}, *rest], model)

    grade = lambda _, text: float(right(text))  # noqa: E731
    prices = runtime.prices.version
    replay = Replay(runtime.gateway, runtime.ledger, ask, grade, kept, exchanges, prices)
    result = replay.run(exchanges, budget_nano=10**9)
    assert (result.ended, result.failed) == ("complete", 0)
    return result


def test_a_better_question_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch, Model(WEAK, STRONG)) as root:
        with Runtime.open(root) as runtime:
            talk(runtime)
            before = question_of(root, runtime, "1.0.0")
            assert before.success.value == 1  # each answer was valid
            assert before.wrong, "the same question got answers that differ"
            assert before.repair.low > 0.1
            held_out = log(runtime, SYSTEM)
            for exchange_id in held_out:
                grade_by_test(runtime.ledger, exchange_id, right, by="a test")
            by_question = replayed(runtime, tmp_path / "question", held_out, WEAK, RULE)
            by_model = replayed(runtime, tmp_path / "model", held_out, STRONG)
            found = attribute(by_question, by_model)
            assert found.cause == "question"
            learner = Learner(
                Root(root), runtime.ledger, runtime.loaded, Identity("otto", "operator")
            )
            predicted, gate = paired_effect(by_question.differences)
            learner.propose(
                Change("prompt", contract_id=CONTRACT, additions=[RULE]),
                evidence=found.exchanges,
                predicted=predicted,
                gate=gate,
                replay={**by_question.summary(), "attribution": found.cause},
                reason="Equal questions get answers in different units.",
            )
        adopted = run_remit("learn", "adopt", "last", "--reason", "One unit.", "--root", root)
        assert adopted.returncode == 0, adopted.stderr
        with Runtime.open(root) as runtime:
            talk(runtime)
            after = question_of(root, runtime, "1.0.10001")
            assert after.repair.high < before.repair.low
            assert not after.wrong
            known = Proposals(Root(root), runtime.ledger)
            (effect,) = EffectReader(runtime.ledger, known).effects(read_samples(runtime.ledger))
            assert effect.held is True, effect
        report = json.loads(run_remit("learn", "report", "--json", "--root", root).stdout)
        assert any(question["wrong"] for question in report["questions"])
        assert [effect["held"] for effect in report["effects"]] == [True]


def test_a_bad_model_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = f"{SYSTEM}{RULE}\n"
    with (
        world(tmp_path, monkeypatch, Model(STRONG), system) as root,
        Runtime.open(root) as runtime,
    ):
        held_out = log(runtime, system)
        better = "Give each weight in kilograms, whatever unit the parcel's label has."
        by_question = replayed(runtime, tmp_path / "question", held_out, WEAK, better)
        by_model = replayed(runtime, tmp_path / "model", held_out, STRONG)
        assert attribute(by_question, by_model).cause == "model"


def question_of(root: Path, runtime: Runtime, version: str) -> Question:
    """What the record says of one version of the contract."""
    contracts = ContractLoader(Root(root).tier("ho1"), installed=InstalledFiles(root))
    samples = read_samples(runtime.ledger, contract_id=CONTRACT)
    found = read_questions(runtime.ledger, contracts, samples)
    (of_version,) = (one for one in found if one.contract_version == version)
    return of_version
