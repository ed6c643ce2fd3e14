"""The router that pays, on recorded data: logged calls, calibration, fit, held-out evaluation.

    python -m benchmarks.learning router

All of it goes through the real gateway, ledger and router. Nothing of the held-out part is looked
at before the last step.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson

from benchmarks.learning.recorded import (
    MODELS,
    PROVIDER,
    Recorded,
    RecordedProvider,
    candidates,
    prices,
    read,
)
from remit.gateway import LLMGateway
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.learning import give_feedback
from remit.learning.routes import GradedPrompt, calibrate, fit_route, graded_prompts
from remit.ledger import LedgerClient
from remit.routing import (
    RouteOptions,
    Rules,
    append_head,
    aroute_request,
    buckets_of,
    create_thought_record_emitter,
    find_decision,
    new_request,
    replay,
)

_LOGGED = 500
_CALIBRATION_USD = 1.0
_USD_PER_CALL = 0.005
_REPLAYED = 1000
_CALIBRATION = "SES-CALIBRATION"
_TOKENS = 16_384
_RESAMPLES = 2_000
_VERIFY = Path(__file__).parents[2] / "docs" / "verify_decisions.py"


def table(seed: int) -> None:
    """Print what it came to, step by step."""
    with tempfile.TemporaryDirectory(prefix="remit-router-") as scratch:
        asyncio.run(_demonstrate(Path(scratch), seed))


async def _demonstrate(scratch: Path, seed: int) -> None:
    learn, held_out = read("val"), read("test_holdout")
    logged = random.Random(seed).sample(learn, _LOGGED)
    with LedgerClient(scratch / "ledger.db") as ledger:
        budgeter = TokenBudgeter(ledger)
        for session in ("SES-LOGGED", _CALIBRATION, "SES-HELD-OUT"):
            budgeter.allocate(BudgetScope(session), 10**12)
        gateway = LLMGateway(ledger, budgeter, prices=prices(), dev_mode=True)
        gateway.register_provider(PROVIDER, RecordedProvider([*learn, *held_out]))
        first = MODELS[-1]  # the dearest, where nothing has been measured
        usd = await _log(gateway, ledger, logged, first)
        print(f"{_LOGGED} exchanges logged by {first}: ${usd:.2f}")
        by_hand = await calibrate(
            gateway, ledger, candidates(), graded_prompts(ledger), _grade, usd=_CALIBRATION_USD,
            prices=prices(), by="recorded data", max_tokens=_TOKENS,
            session_id=_CALIBRATION,
        )  # fmt: skip
        print(f"calibration: {by_hand.calls} calls, ${by_hand.usd:.4f}, {by_hand.ended}")
        started = time.perf_counter()
        fit = fit_route(graded_prompts(ledger), _USD_PER_CALL)
        assert not isinstance(fit, str), fit
        print(f"fit: {time.perf_counter() - started:.1f} s; price weight {fit.price_weight}")
        print(f"predicted on {fit.held_out} of the logged prompts: {fit.saved.value:.5f} "
              f"({fit.saved.low:.5f} to {fit.saved.high:.5f}) USD saved a call, reward "
              f"{fit.reward.value:+.4f} ({fit.reward.low:+.4f} to {fit.reward.high:+.4f})\n"
              f"the guard: {' '.join(fit.missing) or 'a proposal'}")  # fmt: skip
        head = fit.weights.head
        assert head is not None
        await ledger.submit(lambda tx: append_head(tx, ledger, head))
        rules = Rules(fit.weights, fit.weights.rule_version_hash)
        emitter = create_thought_record_emitter(ledger, task_id="held-out", agent_id="benchmark")
        started, found, ids = time.perf_counter(), [], []
        for row in held_out:
            request = new_request("benchmark", "SES-HELD-OUT", max_tokens=_TOKENS)
            options = RouteOptions(
                gateway, candidates(), request=request, rules=rules, decision_emitter=emitter
            )
            result = await aroute_request(row.prompt, options)
            found.append((result.model_id, float(result.response.content), result.cost_usd))
            ids.append(result.decision_id)
        print(f"held out: {len(found)} calls in {time.perf_counter() - started:.0f} s")
        _report(held_out, found, seed)
        started = time.perf_counter()
        texts = [row.prompt for row in held_out]
        for text in texts:
            head.qualities(buckets_of(text, head.buckets))
        each_us = (time.perf_counter() - started) / len(texts) * 1e6
        print(f"qualities of a prompt: {each_us:.0f} µs; the head {len(head.encoded):,} bytes")
        agree = sum(replay(find_decision(ledger, one), ledger)["agrees"] for one in ids[:_REPLAYED])
        print(f"replayed: {agree} of {_REPLAYED} equal")
        _verify(ledger, scratch)


async def _log(
    gateway: LLMGateway, ledger: LedgerClient, rows: Sequence[Recorded], model: str
) -> float:
    """Calls of a root that has learned nothing, each graded; their cost."""
    usd = 0.0
    for row in rows:
        request = new_request(
            "benchmark", "SES-LOGGED", provider_id=PROVIDER, model_id=model, max_tokens=_TOKENS,
            messages=[{"role": "user", "content": row.prompt}],
        )  # fmt: skip
        response = await gateway.aroute(request)
        usd += response.cost_incurred
        give_feedback(
            ledger, response.exchange_entry_id, score=float(response.content),
            source="reference", by="recorded data",
        )  # fmt: skip
    return usd


def _grade(prompt: GradedPrompt, model: str, answer: str) -> float:
    return float(answer)


def _report(rows: Sequence[Recorded], found: Sequence[tuple[str, float, float]], seed: int) -> None:
    print(f"\n{'held out':<34} reward   95% interval       USD a call  95% interval")
    for place, name in enumerate(MODELS):
        _line(name, [r.rewards[place] for r in rows], [r.costs[place] for r in rows], seed)
    _line("learned", [one[1] for one in found], [one[2] for one in found], seed)
    best = MODELS[-1]
    place = MODELS.index(best)
    differences = [one[1] - row.rewards[place] for one, row in zip(found, rows, strict=True)]
    low, high = _interval(differences, seed)
    print(f"reward against {best}: {_mean(differences):+.4f} ({low:+.4f} to {high:+.4f})")
    shares = Counter(one[0] for one in found)
    print(", ".join(f"{name} {shares[name] / len(found):.1%}" for name in MODELS) + "\n")


def _line(name: str, rewards: list[float], costs: list[float], seed: int) -> None:
    r_low, r_high = _interval(rewards, seed)
    c_low, c_high = _interval(costs, seed)
    print(
        f"{name:<34} {_mean(rewards):.4f}   {r_low:.4f} to {r_high:.4f}   "
        f"{_mean(costs):.5f}     {c_low:.5f} to {c_high:.5f}"
    )


def _interval(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Of the mean, 95 %, by resampling."""
    rng = random.Random(seed)
    means = sorted(_mean(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return means[_RESAMPLES // 40], means[-_RESAMPLES // 40]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _verify(ledger: LedgerClient, scratch: Path) -> None:
    """The same by another process that knows nothing of Remit."""
    export = scratch / "export.json"
    thoughts = [
        {"id": one.id, "submission_id": one.submission_id, "metadata": dict(one.metadata)}
        for one in ledger.query(event_type="THOUGHT_RECORD", limit=_REPLAYED + 1)
    ]
    export.write_bytes(orjson.dumps({"entries": thoughts}))
    subprocess.run([sys.executable, "-I", str(_VERIFY), str(export)], check=False)
