"""The prompt loop on the local model: once as it is, once graded by labels that mean nothing.

It says which of five kinds an utterance is, held to a schema. Its own reflections hold no rule, so
that a server of another model proposes plausible ones.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.packages import bring
from tests.support.scripted import Scripted, scripted

from remit.gateway.auth import Identity
from remit.kernel.exchange import PromptRequest
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.learning import held_out_sides, open_account, recorded_grader
from remit.learning.prompts import PromptLoop, Purse
from remit.learning.proposals import Learner, ProposalError
from remit.ledger import LedgerEntry
from remit.runtime import Runtime

__all__ = ["loop", "table"]

_MODEL = ("local", "smollm2-135m")
_ADVISER = ("openai", "gpt-4o-mini")
_CONTRACT, _PACK = "PRC-SPEECH-001", "PRM-SPEECH-001"
_HELD_OUT = 250
_LEARNED = 40
_LABELS = ("greeting", "question", "command", "farewell", "statement")
_SCHEMA = {
    "type": "object", "required": ["kind"], "additionalProperties": False,
    "properties": {"kind": {"enum": list(_LABELS)}},
}  # fmt: skip
_ADVICE = (
    "Think about who speaks and to whom.", "Look at the first word.", "Look at the punctuation.",
    "A question asks for something to be told.", "A command asks for something to be done.",
    "A greeting opens a conversation.", "A farewell closes a conversation.",
    "A statement tells a fact.", "Read it twice before you decide.", "Names do not matter.",
    "Decide by what the speaker wants.", "Be careful with short utterances.",
)  # fmt: skip
_PROMPT = (
    "[system]\nSay what kind of utterance the user's is: greeting, question, command, farewell or "
    "statement. Answer with a JSON object with the field kind.\n"
    "[history]\n[user]\n{{ user_input }}\n"
)
_SAYINGS = {
    "greeting": ("Hello {}", "Good morning {}", "Hi there {}", "Welcome back {}", "Hey {}"),
    "question": ("Where is {}?", "How old is {}?", "Has {} arrived?", "Who knows {}?", "Is {} in?"),
    "command": ("Call {}.", "Send this to {}.", "Wait for {}.", "Pay {} today.", "Ask {} now."),
    "farewell": ("Goodbye {}", "See you {}", "Bye {}", "Good night {}", "Farewell {}"),
    "statement": ("{} is ill.", "I met {}.", "{} lives here.", "We like {}.", "{} was late."),
}
_NAMES = [f"agent {number}" for number in range(36)]


def _said(rng: random.Random) -> list[tuple[str, str]]:
    cases = [
        (label, saying.format(name))
        for label, sayings in _SAYINGS.items() for saying in sayings for name in _NAMES
    ]  # fmt: skip
    rng.shuffle(cases)
    return cases


def table(seed: int) -> None:
    """What validation says, what held-out exchanges say, and whether it may propose."""
    for noise in (False, True):
        print("labels shuffled, so that a gain is noise:" if noise else "labels as they are:")
        loop(seed, noise=noise)


def loop(seed: int, *, noise: bool) -> None:
    """One loop on a root of its own."""
    rng = random.Random(seed)
    cases = _said(rng)
    if noise:
        labels = [label for label, _ in cases]
        rng.shuffle(labels)
        cases = [(label, said) for label, (_, said) in zip(labels, cases, strict=True)]
    with tempfile.TemporaryDirectory() as folder, scripted() as adviser:
        adviser.reply = lambda _: "\n".join(f"- {one}" for one in rng.sample(_ADVICE, 2))
        _loop(Path(folder), adviser, iter(cases))


def _loop(folder: Path, adviser: Scripted, cases: Iterator[tuple[str, str]]) -> None:
    root = adviser.root(folder / "root")
    contract = {
        "contract_id": _CONTRACT, "version": "1.0.0", "prompt_pack_id": _PACK,
        "agent_class": "RESIDENT", "tier": "ho1",
        "boundary": {"max_tokens": 20, "temperature": 0, "structured_output": True},
        "output_schema": _SCHEMA,
        "examples": [{"input": {"user_input": "Is it in?"}, "renders": ["Is it in?"]}],
        "metadata": {"framework_id": "FMWK-AGENT-001", "package_id": "PKG-SPEECH-001"},
    }  # fmt: skip
    files = {
        f"HO1/contracts/{_CONTRACT}.json": json.dumps(contract).encode(),
        f"HO1/prompt_packs/{_PACK}.txt": _PROMPT.encode(),
    }
    bring(root, folder, files, "PKG-SPEECH-001")
    flags = {"budget.mode": "off"}
    with Runtime.open(root, model="/".join(_MODEL), flags=flags) as runtime:
        open_account(runtime.budgeter, "benchmark")
        right: dict[str, str] = {}
        pack = runtime.contracts.load_pack(_PACK)
        while sum(held_out_sides(runtime.ledger, right).values()) < _HELD_OUT:
            label, said = next(cases)
            request = PromptRequest(
                "", _PACK, _CONTRACT, "benchmark", "RESIDENT", "FMWK-AGENT-001", "PKG-SPEECH-001",
                "", "SES-1", "ho1", provider_id=_MODEL[0], model_id=_MODEL[1], max_tokens=20,
                structured_output=True, output_schema=_SCHEMA,
                messages=pack.render({"user_input": said}),
            )  # fmt: skip
            answer = runtime.gateway.route(request)
            assert not answer.error_code, answer.error_message
            right[answer.exchange_entry_id] = label

        def grade(exchange: LedgerEntry, text: str) -> float:
            try:
                return float(json.loads(text)["kind"] == right[exchange.id])
            except ValueError:  # cut short
                return 0.0

        loop = PromptLoop(
            runtime.gateway, runtime.ledger, runtime.contracts, InstalledFiles(root), _CONTRACT,
            grade, prices=runtime.prices.version, kept=folder / "kept",
        )  # fmt: skip
        parted = held_out_sides(runtime.ledger, right)
        learned = [one for one, held_out in parted.items() if not held_out][-_LEARNED:]
        found = loop.search(learned, Purse(10**9, 400), reflect=_ADVISER)
        print(f"search: {found.candidates} candidates, {found.refused} additions refused, "
              f"{found.calls} calls, {found.ended}")  # fmt: skip
        print(f"validation: {found.before:.3f} before, {found.after:.3f} after", flush=True)
        for addition in found.additions:
            print(f"  - {addition}")
        if not found.additions:
            print("no candidate is better: no proposal")
            return
        measured = loop.measure(found.additions, list(right), budget_nano=10**9)
        replay, effect, gate = measured
        done = replay.summary()
        print(f"held out: {done['mean_before']:.3f} before, {done['mean_after']:.3f} after, "
              f"{done['replayed']} pairs; effect {effect.value:+.3f} [{effect.low:+.3f}, "
              f"{effect.high:+.3f}], always valid [{gate.low:+.3f}, {gate.high:+.3f}]")  # fmt: skip
        learner = Learner(
            Root(root), runtime.ledger, runtime.loaded, Identity("benchmark", "operator")
        )
        try:
            made = loop.propose(
                learner, found, measured, learned, "It validates better.",
                recorded_grader(runtime.ledger, _SCHEMA, None),
            )  # fmt: skip
        except ProposalError as error:
            print("no proposal:", "; ".join(error.missing))
        else:
            print("proposed:", made.proposal_id)
