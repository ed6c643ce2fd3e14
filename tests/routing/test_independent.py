"""Decisions checked by ``docs/verify_decisions.py``, written from docs/routing.md alone.

It runs as a stranger would run it: no package of ours, no site-packages.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import CircuitBreakerConfig, LLMGateway, RouterConfig
from remit.kernel.canonical import canonical_json
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers import ProviderError, ProviderRequest, ProviderResponse
from remit.routing import (
    RULES_UNAVAILABLE,
    Candidate,
    EnsembleOptions,
    FallbackChainExhaustedError,
    RouteOptions,
    Rules,
    Scoring,
    ScoringInputs,
    Stage,
    Weights,
    compute_decision_hash,
    create_thought_record_emitter,
    load_rules,
    replay,
    route_request,
)
from remit.routing.trail import create_thought_record, hash_thought
from tests.support.processes import run_program
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.soak import is_soak
from tests.support.standalone import standalone

SCRIPT = Path(__file__).parents[2] / "docs/verify_decisions.py"
SEED = 20_260
SINGLE = 150 if is_soak() else 80
ENSEMBLES, PIPELINES, EQUAL, OTHER = 20, 20, 2, 3
ROUTED = SINGLE + ENSEMBLES + PIPELINES + EQUAL
TASKS = 4
LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "ko", "zh", "ru", "el", "ar", "he", "hi", "th")
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}

NUMBERS = (1, 1.0, 0.1, 1e-7, 1e22, -0.0, 2**70, -(2**53), 1e18)

Entries = list[dict[str, Any]]
Call = tuple[Any, dict[str, Any]]

TEXTS = (
    "Write a haiku about rust",
    "Was ist die Wahrscheinlichkeit, dass der Zug nicht kommt? Berechne es Schritt für Schritt.",
    "Übersetze das ins Englische: ÄÖÜ und die Straße",
    "日本語で詩を書いてください。ありがとう",
    "请用中文解释这段代码",
    "Напиши функцию на Python",
    "한국어로 요약해 주세요",
    "אבגד שלום",
    "Γειά κόσμε",
    "カタカナ テスト",
    "สวัสดีครับผม",
    "مرحبا بالعالم",
    "class_bug function_code is_python_ der_die_das",
    "हिन्दी में लिखो",
    "🦀🦀🦀 crab 👩‍👩‍👧 emoji \u200b\u00ad end",
    "```python\ndef f(x):\n    return x ** 2\n```\nThere is a bug, debug the function",
    "3 + 4 * (2 - 1) = ?",
    "7 * 8",
    "12,5 % (of 3.000) how many ",
    "CALCULATE THE SUM, TRANSLATE IT AND THEN SOLVE",
    "select * from t; console.log(x) => { }();",
    "Summarize: tl;dr in one sentence, key points as JSON table csv",
    "explique-moi pourquoi le ciel est bleu avec des mots simples pour les enfants",
    "¿Qué es el amor? Explícame como una persona",
    "la ve\u0301rite\u0301 \ufb00 \u017f K İ I \u0131",  # not lowered but for A to Z
    "a",
    " .  ",
    "\x01\t\n\u2028\x7f\"\\/",
    "x^2 \\frac \\int equation algebra code function class",
)  # fmt: skip


class Answers:
    """A provider that answers by the model's name."""

    def send(self, request: ProviderRequest) -> ProviderResponse:
        text = "yes" if request.model_id < "m5" else "no"
        answer = json.dumps({"a": text, "b": len(request.model_id)})
        return ProviderResponse(answer, request.model_id, 7, 3)


class Fails:
    """A provider that never answers."""

    def send(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError("SERVER_ERROR", f"{request.model_id} is ill")


def by_name(inputs: ScoringInputs) -> Scoring:
    """A scoring that is not Remit's."""
    scores = {c.model_id: float(len(c.model_id)) for c in inputs.candidates}
    return Scoring(max(scores, key=lambda name: (scores[name], name)), scores)


def make_prompt(rng: random.Random, *, long: bool = True) -> str:
    kind = rng.randrange(6)
    if kind == 0 and long:
        return " ".join(rng.choices(TEXTS, k=160))  # some 10 kB, cut within a script
    if kind == 1:
        ranges = [(0x01, 0x80), (0xA0, 0xD800), (0xE000, 0x110000)]
        return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(40))
    return " ".join(rng.choices(TEXTS, k=rng.randrange(1, 4)))


def make_messages(rng: random.Random) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    if rng.random() < 0.5:
        turns.append({"role": "system", "content": make_prompt(rng, long=False)})
    for number in range(rng.randrange(1, 4)):
        turns.append({"role": "user", "content": make_prompt(rng, long=False)})
        use = {"type": "tool_use", "id": f"call_{number}", "name": "look", "input": {
            "q": make_prompt(rng, long=False), "n": rng.choice(NUMBERS),
            "\ufb00": None, "\U0001f600": [True, {}]}}  # fmt: skip
        turns.append({"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]})
        content: Any = make_prompt(rng, long=False)
        if rng.random() < 0.5:
            content = [{"type": "text", "text": content}]
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": content}
        turns.append({"role": "user", "content": [result]})
    if rng.random() < 0.7:
        parts = [{"type": "text", "text": make_prompt(rng, long=False)} for _ in range(2)]
        turns.append({"role": "user", "content": parts})
    if rng.random() < 0.3:
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        turns[-1]["content"].append({"type": "image", "source": source})
    return turns


def make_candidates(rng: random.Random, prompt: Any, *providers: str) -> list[Candidate]:
    text = prompt if isinstance(prompt, str) else ""
    near = len(text.encode()) // 4  # about the length, where it is rounded
    made: list[Candidate] = []
    tasks = ("general", "code", "mathematics", "reasoning", "writing", "translation", "chat")
    for name in rng.sample([f"m{n}" for n in range(10)] + ["\ufb00", "\U0001f600", "M2", "ä/b c"],
                           k=rng.randrange(1, 13)):  # fmt: skip
        if made and rng.random() < 0.3:  # a tie
            facts = made[-1].profile()
            facts.pop("provider_id")
            made.append(Candidate(name, rng.choice(providers), **facts))
            continue
        priced = rng.random() < 0.7
        made.append(
            Candidate(
                name,
                rng.choice(providers),
                {t: rng.randrange(101) for t in rng.sample(tasks, k=rng.randrange(6))},
                input_price=rng.randrange(10**11) if priced else None,
                output_price=rng.choice((None, 0, rng.randrange(10**11))) if priced else None,
                context_tokens=rng.choice((0, 5, 30, 200, 1000, near, near, near + 1)),
                tokens_per_s=rng.choice((0, 1, rng.randrange(500))),
                languages=rng.sample(LANGUAGES, k=rng.randrange(8)),
                tools=rng.random() < 0.8,
                images=rng.random() < 0.7,
                reliability=rng.choice((0, 50, 95, 100)),
            )
        )
    return made


def make_rules(folder: Path, rng: random.Random) -> list[Rules | None]:
    """The shipped ones, three changed files, and one that cannot be read."""
    made: list[Rules | None] = [None, None]
    for number in range(3):
        document = json.loads(canonical_json(Weights.shipped().document))
        for group in ("features", "penalties", "scales"):
            for name in document[group]:
                document[group][name] = rng.randrange(1, 10**6 if number else 10**7) / 10**6
        document["scales"]["output_share"] = rng.randrange(10**6) / 10**6
        document["preferences"]["odd"] = {"ability": 0.000001, "reliability": 333.333333}
        document["intent"]["characters_read"] = rng.randrange(20, 300)
        document["intent"]["bytes_per_token"] = rng.randrange(1, 6)
        document["intent"]["least_signs"] = number + 1
        document["intent"]["tasks"]["zeal"] = {
            "words": ["ist", "\u017f", "haiku"], "marks": ["🦀", "  "]}  # fmt: skip
        path = folder / f"weights-{number}.json"
        path.write_text(json.dumps(document, indent=number))
        made.append(load_rules(path))
    broken = folder / "broken.json"
    broken.write_text('{"features": NaN}')
    return [*made, load_rules(broken)]


def make_calls(folder: Path) -> list[Call]:
    """The same calls each time."""
    rng = random.Random(SEED)
    every_rules = make_rules(folder, rng)
    calls: list[Call] = []
    for number in range(ROUTED - EQUAL):
        rules = rng.choice(every_rules)
        preferences = ["", *(rules.weights if rules else Weights.shipped()).preferences]
        prompt = make_messages(rng) if rng.random() < 0.4 else make_prompt(rng)
        if number < 2 * len(TEXTS):
            prompt = TEXTS[number % len(TEXTS)]
        options: dict[str, Any] = {
            "rules": rules,
            "task": rng.choice(("", "", "code", "mathematics", "writing", "unheard-of")),
            "operator_preference": rng.choice(preferences),
        }
        if rng.random() < 0.3:
            tools = [TOOL] if rng.random() < 0.7 else None
            options["request"] = prompt_request(tools=tools, session_id=f"SES-{number % 5:08d}")
        providers = ["good", "good", "bad", "nobody"] if rng.random() < 0.7 else ["bad", "nobody"]
        options["candidates"] = make_candidates(rng, prompt, *providers)
        if number >= SINGLE:
            options["candidates"] = make_candidates(rng, prompt, "good", "good", "bad")
        if SINGLE <= number < SINGLE + ENSEMBLES:
            join = rng.choice(("vote", "fields"))
            options["mode"] = "ensemble"
            options["ensemble"] = EnsembleOptions(size=rng.randrange(1, 5), join=join)
        elif number >= SINGLE:
            own = make_candidates(rng, prompt, "good", "bad")
            options["mode"] = "pipeline"
            options["stages"] = [
                Stage("draft"),
                Stage("note", revises=False),
                Stage("last", candidates=own),
            ]
        calls.append((prompt, options))
    # As many signs of two tasks, as many words of two languages: the first by name.
    able = [Candidate(name, "good", {name: 90}) for name in ("code", "reasoning", "writing")]
    calls.append(("why sql python because", {"candidates": able}))
    speak = [Candidate(name, "good", languages=[name]) for name in ("es", "pt")]
    calls.append(("que para", {"candidates": speak}))
    for number in range(OTHER):
        candidates = [Candidate(f"m{n}", "good") for n in range(10 + number)]
        calls.append((TEXTS[number], {"candidates": candidates, "scoring_fn": by_name}))
    return calls


def decide(ledger: LedgerClient, calls: Sequence[Call], first: int) -> None:
    config = RouterConfig(
        # What is open stays so: how long a run takes decides nothing.
        circuit_breaker=CircuitBreakerConfig(failure_threshold=9, recovery_timeout_ms=3_600_000)
    )
    gateway = LLMGateway(ledger, config=config, dev_mode=True)
    gateway.register_provider("good", Answers())
    gateway.register_provider("bad", Fails())
    for number, (prompt, options) in enumerate(calls, first):
        task = f"task-{number % TASKS}"
        if number % 10 == 0:
            thought = {"type": "plan", "task_id": task, "agent_id": "a", "content": TEXTS[3]}
            create_thought_record(ledger, thought)
        emitter = create_thought_record_emitter(ledger, task_id=task, agent_id="a")
        try:
            route_request(
                prompt, RouteOptions(gateway=gateway, decision_emitter=emitter, **options)
            )
        except FallbackChainExhaustedError as error:
            assert error.attempts


@dataclass
class Made:
    """A ledger full of decisions, and its export."""

    root: Path
    environment: dict[str, str]
    entries: Entries

    def remit(self, *arguments: str) -> str:
        command = ("-m", "remit", *arguments, "--root", str(self.root))
        done = run_program(*command, environment=self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def export(self) -> Entries:
        told = self.remit("ledger", "query", "--event-type", "THOUGHT_RECORD", "--json")
        entries: Entries = json.loads(told)["entries"]
        return entries


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("sqlite")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME")
            if name in os.environ}  # fmt: skip
    made = Made(new_root(folder / "root"), kept, [])
    calls = make_calls(folder)
    half = len(calls) // 2
    for first, some in ((0, calls[:half]), (half, calls[half:])):  # and a restart between them
        with LedgerClient(made.root / "ledger.db", create=False) as ledger:
            decide(ledger, some, first)
    made.entries = made.export()
    return made


def run(entries: Entries, *options: str, code: int) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), *options],
        input=json.dumps({"entries": entries}),
        capture_output=True, text=True, timeout=120, check=False, env={"PYTHONUTF8": "1"},
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", code), done.stdout + done.stderr
    return done.stdout


def test_all_decisions_are_computed_again(made: Made, tmp_path: Path) -> None:
    decisions = ROUTED + OTHER
    told = run(made.entries, code=0).splitlines()
    assert told[-1] == (
        f"{decisions} decisions: hashes {decisions} equal, scores {ROUTED} equal; "
        f"{len(made.entries)} thoughts in {TASKS} chains"
    )
    report = json.loads(run(made.entries, "--json", code=0))
    assert report["bad"] == report["erased"] == []
    assert len(report["other_scoring"]) == OTHER
    assert len(report["rules_unavailable"]) > 5
    assert len(made.entries) > decisions  # there are other thoughts between them
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"entries": made.entries}), encoding="utf-8")
    assert standalone(path, script=SCRIPT).stdout.splitlines() == told


# -- tampering -----------------------------------------------------------------------------


def forge(entries: Entries) -> None:
    """Compute the hashes of all thoughts anew, as who hides a change would."""
    last: dict[str, str] = {}
    for entry in entries:
        told = entry["metadata"]
        task = told["task_id"]
        told["hash"] = last[task] = hash_thought(
            told["thought_id"], told["type"], task, told["content"],
            told["thought_timestamp"], last.get(task, "0" * 64),
        )  # fmt: skip


def in_record(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def changed(told: dict[str, Any]) -> None:
        record = json.loads(told["content"])
        change(record)
        told["content"] = canonical_json(record).decode()

    return changed


def other_score(record: dict[str, Any]) -> None:
    name = record["candidates_considered"][-1]
    record["scores"][name] = round(record["scores"][name] - 0.000001, 6)


def other_choice(record: dict[str, Any]) -> None:
    record["chosen_model_id"] = record["candidates_considered"][1]


def other_order(record: dict[str, Any]) -> None:
    chain = record["candidates_considered"]
    chain[0], chain[1] = chain[1], chain[0]


def other_prompt(told: dict[str, Any]) -> None:
    told["prompt"] = told["prompt"][:-1] + chr(ord(told["prompt"][-1]) ^ 1)


def other_weight(told: dict[str, Any]) -> None:
    told["context"]["weights"]["features"]["cost"] += 0.000001


def other_profile(told: dict[str, Any]) -> None:
    first = told["profiles"][min(told["profiles"])]
    first["reliability"] -= 1


def other_preference(told: dict[str, Any]) -> None:
    told["context"]["operator_preference"] = "speed"


def other_attempts(record: dict[str, Any]) -> None:
    record["fallback_attempts"] += 1


def other_mode(record: dict[str, Any]) -> None:
    record["routing_mode"] = "best"


def other_provider(told: dict[str, Any]) -> None:
    told["profiles"][min(told["profiles"])]["provider_id"] = 5


def other_key(told: dict[str, Any]) -> None:
    told["profiles"][min(told["profiles"])]["rank"] = 1


def other_answer(told: dict[str, Any]) -> None:
    for call in told["attempts"]:
        call["outcome"] = "error"


TAMPERING = {
    "attempts": (in_record(other_attempts), "fallback_attempts"),
    "answer": (other_answer, "fallback_attempts"),
    "mode": (in_record(other_mode), "routing_mode"),
    "provider": (other_provider, "profiles"),
    "key": (other_key, "profiles"),
    "score": (in_record(other_score), "score of"),
    "choice": (in_record(other_choice), "decision_hash"),
    "order": (in_record(other_order), "candidates_considered"),
    "prompt": (other_prompt, "decision_hash"),
    "weight": (other_weight, "rule_version_hash"),
    "profile": (other_profile, "score of"),
    "preference": (other_preference, "decision_hash"),
}


def is_plain(entry: dict[str, Any]) -> bool:
    """Whether all the changes change it."""
    told = entry["metadata"]
    if told["type"] != "decision" or told["scoring"] != "remit":
        return False
    record = json.loads(told["content"])
    return bool(
        isinstance(told["prompt"], str)
        and record["routing_mode"] == "single"
        and record["rule_version_hash"] != RULES_UNAVAILABLE
        and record["chosen_model_id"] == record["candidates_considered"][0]
        and len(set(record["scores"].values())) == len(record["scores"]) > 1
        and told["context"]["operator_preference"] != "speed"
        and told["profiles"][min(told["profiles"])]["reliability"]
    )


@pytest.mark.parametrize("what", TAMPERING)
@pytest.mark.parametrize("forged", [False, True], ids=["plain", "forged"])
def test_a_change_is_found(made: Made, what: str, forged: bool) -> None:
    entry = next(filter(is_plain, made.entries))
    entries = copy.deepcopy(
        [e for e in made.entries if e["submission_id"] == entry["submission_id"]]
    )
    entry = entries[[e["id"] for e in entries].index(entry["id"])]
    change, named = TAMPERING[what]
    change(entry["metadata"])
    if forged:
        forge(entries)
    report = json.loads(run(entries, "--json", code=1))
    (bad,) = report["bad"]
    assert bad["id"] == entry["metadata"]["decision_id"]
    assert named in " ".join(bad["differs"])
    in_content = what in ("score", "choice", "order", "attempts", "mode")
    assert ("hash of the thought" in bad["differs"]) == (in_content and not forged)
    at = entry["metadata"]
    told = LedgerEntry("THOUGHT_RECORD", entry["submission_id"], "d", "r", metadata=at)
    assert not replay(told)["agrees"]
    if not forged:  # the text is made of the same report
        assert f"{bad['id']} ({entry['id']}): " in run(entries, code=1)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "decision"}, {"routing_mode": "best"}, {"more": 1}, {"candidates_considered": []},
        {"scores": {}}, {"chosen_model_id": 5},
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_record_agrees_with_nothing(made: Made, odd: dict[str, Any]) -> None:
    """Remit and the script refuse it, and the replay has a result."""
    entry = copy.deepcopy(next(filter(is_plain, made.entries)))
    told = entry["metadata"]
    in_record(lambda record: record.update(odd))(told)
    forge([entry])
    (bad,) = json.loads(run([entry], "--json", code=1))["bad"]
    assert bad["id"] == told["decision_id"]
    found = replay(LedgerEntry("THOUGHT_RECORD", entry["submission_id"], "d", "r", metadata=told))
    assert not found["agrees"]


def test_an_order_that_bears_its_hash_is_found_by_its_scores(made: Made) -> None:
    entries = copy.deepcopy(made.entries)
    told = next(filter(is_plain, entries))["metadata"]
    record = json.loads(told["content"])
    other_order(record)
    inputs = {"prompt": told["prompt"], "context": told["context"]} | {
        name: record[name] for name in ("rule_version_hash", "candidates_considered")
    }
    record["decision_hash"] = compute_decision_hash(inputs, record["chosen_model_id"])
    told["content"] = canonical_json(record).decode()
    forge(entries)
    (bad,) = json.loads(run(entries, "--json", code=1))["bad"]
    assert bad["differs"] == ["candidates_considered"]


def test_thoughts_out_of_order_or_missing_are_found(made: Made) -> None:
    of_task = [n for n, e in enumerate(made.entries) if e["metadata"]["task_id"] == "task-1"]
    swapped = list(made.entries)
    one, other = of_task[3:5]
    swapped[one], swapped[other] = swapped[other], swapped[one]
    bad = json.loads(run(swapped, "--json", code=1))["bad"]
    assert {b["entry_id"] for b in bad} >= {swapped[one]["id"], swapped[other]["id"]}
    missing = [e for n, e in enumerate(made.entries) if n != of_task[3]]
    bad = json.loads(run(missing, "--json", code=1))["bad"]
    assert bad[0]["entry_id"] == made.entries[of_task[4]]["id"]


def test_what_was_erased_is_named_and_is_no_failure(tmp_path: Path) -> None:
    made = Made(new_root(tmp_path / "root"), dict(os.environ), [])
    candidates = [Candidate("m1", "good", {"general": 60}), Candidate("m2", "good")]
    with LedgerClient(made.root / "ledger.db", create=False) as ledger:
        decide(ledger, [(f"Who are you, {n}?", {"candidates": candidates}) for n in range(9)], 1)
    entries = made.export()
    gone = entries[2]
    made.remit("ledger", "erase", gone["id"], "--reason", "asked for", "--yes")
    report = json.loads(run(made.export(), "--json", code=0))
    after = [e for e in entries[3:] if e["submission_id"] == gone["submission_id"]]
    rests_on_it = after[0]["metadata"]["thought_id"]
    assert report["erased"] == [gone["metadata"]["thought_id"], rests_on_it]
    assert report["bad"] == []
    assert report["decisions"] == 9
    assert report["hashes_equal"] == report["scores_equal"] == 8
    assert gone["metadata"]["decision_id"] in run(made.export(), code=0)
