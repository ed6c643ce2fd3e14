"""Ridge regression of a learned head on graded answers, in plain Python.

The head has integer weights. A fit takes a few seconds for :data:`MAX_PROMPTS` prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2, sqrt
from operator import mul
from statistics import fmean
from typing import Any

from msgspec.json import encode

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on, reward_of
from remit.learning.evidence.party_shares import rater_weights
from remit.learning.exchanges import is_erased, prompt_key
from remit.ledger import LedgerEntry, LedgerReader
from remit.providers.prices import PriceTable, Usage
from remit.routing import (
    Candidate,
    LearnedHead,
    Weights,
    buckets_of,
    chances_of,
    find_decision,
    read_intent,
)
from remit.routing.intent import part_read, text_asked
from remit.routing.learned_head import Neighbour, binary_log, binary_power

MAX_PROMPTS = 3000
"""Largest number of prompts in a fit; the time of a fit grows with their words."""

ENOUGH_CHECKED = 20
"""Number of prompts, checked for every model, from which on opinions do not choose among models."""

_BUCKETS = 8192
_SHRINKAGE = 10.0  # Between 3 and 30, held-out reward differs by less than 0.001.
_PRECISION = 1e-10  # Of the squared residual; later steps change no integer weight that matters.
_MAX_STEPS = 100
_NANO = 1_000_000_000
_MILLION = 1_000_000
_PRIOR_ANSWERS = 20  # Answers with the model's mean that are added to those of a task.


@dataclass(frozen=True, slots=True)
class GradedPrompt:
    """A recorded prompt with the grades of models' answers.

    Attributes:
        exchange_id: id of the first exchange with the prompt.
        prompt: a text, or the messages of a conversation.
        text: the part of the prompt that the router reads.
        task: the task that the router reads in the prompt.
        rewards: grade by model, 0 to 1.
        costs: cost by model in US dollars.
        evidence: ids of the exchanges of all answers.
        traffic: number of times that the prompt counts.
        chances: probability with which each model was asked, if the model was drawn.
    """

    exchange_id: str
    prompt: Any
    text: str
    task: str
    rewards: Mapping[str, float]
    costs: Mapping[str, float]
    evidence: Sequence[str] = ()
    traffic: float = 1.0
    chances: Mapping[str, float] = field(default_factory=dict)


def fit_head(prompts: Sequence[GradedPrompt]) -> LearnedHead:
    """Return a routing head that predicts reward and cost of each model from a prompt.

    Prompts with equal text are all used. The evidence of the head has the words' hashes, grades and
    exchange ids, but no text. WeightsError is raised if no prompt has a reward.
    """
    return fit_evidence([
        Neighbour(
            exchange_id=one.exchange_id,
            buckets=tuple(buckets_of(one.text, _BUCKETS)),
            tokens=tokens_of(one),
            traffic=max(1, round(one.traffic * _MILLION)),
            rewards={name: round(reward * _MILLION) for name, reward in one.rewards.items()},
            costs={name: max(0, round(one.costs[name] * _NANO)) for name in one.rewards},
        )
        for one in prompts
    ])  # fmt: skip


def fit_evidence(rows: Sequence[Neighbour]) -> LearnedHead:
    """Return the head that is fitted to the prompts of an evidence; equal rows give equal heads.

    A model without a reward in the rows is not part of the head. WeightsError is raised if no row
    has a reward.
    """
    models = {}
    for name in sorted({name for row in rows for name in row.rewards}):
        mine = [row for row in rows if name in row.rewards]
        rewards = [row.rewards[name] / _MILLION for row in mine]
        traffic = [row.traffic / _MILLION for row in mine]
        mean = sum(map(mul, traffic, rewards)) / sum(traffic)
        buckets = [row.buckets for row in mine]
        usual = sum(traffic) / len(traffic)
        weights = _ridge(
            buckets, [reward - mean for reward in rewards], [sqrt(one / usual) for one in traffic]
        )
        nano = [row.costs[name] for row in mine]
        sizes = [binary_log(max(1, row.tokens)) / _MILLION for row in mine]
        models[name] = {
            "bias": round(mean * _MILLION),
            "cost_nano": round(sum(map(mul, traffic, nano)) / sum(traffic)),
            "samples": len(mine),
            "weights": [round(weight * _MILLION) for weight in weights],
            **_costs(buckets, sizes, nano),
        }
    return LearnedHead.fitted(_BUCKETS, models, rows)


def tokens_of(one: GradedPrompt) -> int:
    """Return the estimated tokens of the whole prompt, as the router estimates them."""
    return -(-text_asked(one.prompt)[1] // Weights.shipped().intent.bytes_per_token)


def _costs(
    rows: Sequence[Sequence[int]], sizes: Sequence[float], nano: Sequence[int]
) -> dict[str, Any]:
    """Return the fields of a model that predict its cost; none if every call cost the same.

    The logarithm of the cost is a line in the logarithm of the prompt's tokens (``sizes``), and a
    ridge regression of the rest on the buckets (``rows``), scaled to the recorded mean.
    """
    if len(set(nano)) < 2:
        return {}
    logs = [binary_log(max(1, cost)) / _MILLION for cost in nano]
    size, log = sum(sizes) / len(sizes), sum(logs) / len(logs)
    spread = sum((one - size) ** 2 for one in sizes)
    pairs = [(one - size, other - log) for one, other in zip(sizes, logs, strict=True)]
    slope = sum(one * other for one, other in pairs) / (spread + _SHRINKAGE)
    rest = [other - slope * one for one, other in pairs]
    weights = _ridge(rows, rest, [1.0] * len(rows))
    bias = log - slope * size
    fitted = [
        bias + slope * one + sum(map(weights.__getitem__, row)) / (sqrt(len(row)) or 1.0)
        for one, row in zip(sizes, rows, strict=True)
    ]
    predicted = sum(binary_power(max(0, round(one * _MILLION))) for one in fitted)
    return {
        "cost_bias": round((bias + log2(sum(nano) / max(1, predicted))) * _MILLION),
        "cost_length": round(slope * _MILLION),
        "cost_weights": [round(weight * _MILLION) for weight in weights],
    }


def abilities_of(prompts: Sequence[GradedPrompt]) -> dict[str, dict[str, int]]:
    """Return abilities in percent by model and task, shrunk to the model's mean.

    The task ``general`` is the mean of all rewards of the model. A task counts as if 20 more
    answers had that mean.
    """
    found: dict[str, dict[str, int]] = {}
    for name in sorted({name for one in prompts for name in one.rewards}):
        mine = [(one.task, one.rewards[name]) for one in prompts if name in one.rewards]
        mean = fmean(reward for _, reward in mine)
        found[name] = {"general": round(100 * mean)}
        for task in sorted({task for task, _ in mine}):
            rewards = [reward for other, reward in mine if other == task]
            shrunk = (sum(rewards) + _PRIOR_ANSWERS * mean) / (len(rewards) + _PRIOR_ANSWERS)
            found[name][task] = round(100 * shrunk)
    return found


def _ridge(
    rows: Sequence[Sequence[int]], values: Sequence[float], factors: Sequence[float]
) -> list[float]:
    """Return the weights w that minimise |X w - y|² + shrinkage |w|².

    A row of X has its factor / √k in each of its k buckets, and y is its value times the factor.
    The equations are solved by conjugate gradients; each step is linear in the number of buckets of
    all rows.
    """
    scales = [factor / (sqrt(len(row)) or 1.0) for row, factor in zip(rows, factors, strict=True)]
    # All buckets but a few are in no row, and their weights stay 0.
    used = sorted({bucket for row in rows for bucket in row})
    places = {bucket: place for place, bucket in enumerate(used)}
    rows = [[places[bucket] for bucket in row] for row in rows]
    weights = [0.0] * len(used)
    residual = _transposed(rows, scales, list(map(mul, factors, values)), len(used))
    direction = residual[:]
    squares = goal = sum(map(mul, residual, residual))
    for _ in range(_MAX_STEPS):
        if squares <= goal * _PRECISION:
            break
        at = direction.__getitem__
        image = [scale * sum(map(at, row)) for row, scale in zip(rows, scales, strict=True)]
        applied = [
            one + _SHRINKAGE * other
            for one, other in zip(
                _transposed(rows, scales, image, len(used)), direction, strict=True
            )
        ]
        step = squares / sum(map(mul, direction, applied))
        weights = [one + step * other for one, other in zip(weights, direction, strict=True)]
        residual = [one - step * other for one, other in zip(residual, applied, strict=True)]
        before, squares = squares, sum(map(mul, residual, residual))
        ratio = squares / before
        direction = [one + ratio * other for one, other in zip(residual, direction, strict=True)]
    found = [0.0] * _BUCKETS
    for bucket, weight in zip(used, weights, strict=True):
        found[bucket] = weight
    return found


def _transposed(
    rows: Sequence[Sequence[int]], scales: Sequence[float], values: Sequence[float], width: int
) -> list[float]:
    """Return the product of the transposed matrix and a vector with a value for each row."""
    found = [0.0] * width
    for row, scale, value in zip(rows, scales, values, strict=True):
        part = scale * value
        for bucket in row:
            found[bucket] += part
    return found


CALIBRATOR = "route-calibration"
"""The agent whose exchanges are calibration's, and no traffic."""

_TOKENS = (
    "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "reasoning_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip


# Rank of the grades, their parties, key of the prompt, model, and the prompt with this answer.
_Answer = tuple[int, Sequence[str], str, str, GradedPrompt]


def graded_prompts(
    ledger: LedgerReader, *, candidates: Sequence[Candidate] = (), prices: PriceTable | None = None,
    rules: Weights | None = None, all_grades: bool = False,
) -> list[GradedPrompt]:  # fmt: skip
    """Return prompts with a graded answer, oldest first; equal prompts are one item.

    Grades of an exchange count as in samples: the mean of all parties of the highest rank, with the
    latest grade of each. A grade of a decision counts for the exchange that answered. Erased and
    failed exchanges, and fallbacks, are left out.

    If a model answered a prompt several times, its reward and cost are means over the answers whose
    grades have the highest rank. Once checks (references, schemas and tests) graded
    :data:`ENOUGH_CHECKED` prompts for every model (two or more), opinions and judges count only for
    prompts of one model, unless ``all_grades``. A prompt counts as often as it was graded outside
    calibration, else once. The share of one party's opinions is limited (:func:`rater_weights`).

    Args:
        candidates: the route's models; their answers are keyed by candidate, others by the
            exchange's model.
        prices: prices in force. The cost of a candidate's answer at other prices is computed again
            from its tokens and server tools; ``None`` for costs as recorded.
        rules: rules by which tasks are recognised; the shipped ones if ``None``.

    Raises:
        LedgerError: the ledger cannot be read, or a graded exchange or decision is archived.
        NotFoundError, TrailError: the decision that drew a model is missing or damaged.
    """
    weights = rules or Weights.shipped()
    known_as = {one.provider_model: one for one in candidates}
    known: dict[str, GradedPrompt] = {}
    answers: list[_Answer] = []
    for exchange_id, scores in sorted(_grades(ledger).items(), key=lambda one: (len(one[0]), one)):
        entry = ledger.read(exchange_id)
        prompt = _prompt(entry)
        meta = entry.metadata
        if prompt is None or meta.get("outcome") != "success" or meta.get("fallback_from"):
            continue
        rank, reward, parties = reward_of(scores)
        # Erased is also an answer that an erased exchange of its session gave too.
        if reward is None or is_erased(entry):
            continue
        model = str(meta.get("model_id", ""))
        candidate = known_as.get(model)
        name = candidate.model_id if candidate else model
        key = prompt_key(prompt)
        if key not in known:
            text = part_read(text_asked(prompt)[0], weights.intent)
            task = read_intent(prompt, weights).task
            known[key] = GradedPrompt("", prompt, text, task, {}, {}, traffic=0.0)
        chances: Mapping[str, float] = {}
        if {"propensity", "explored"} & meta.keys():
            chances = chances_of(find_decision(ledger, str(meta["decision_id"])).metadata)
        answer = replace(
            known[key], exchange_id=exchange_id, evidence=[exchange_id], rewards={name: reward},
            costs={name: _usd(meta, candidate, prices)}, chances=chances,
            traffic=float(meta.get("agent_id") != CALIBRATOR),
        )  # fmt: skip
        answers.append((rank, parties, key, name, answer))
    highest: dict[tuple[str, str], int] = {}  # Of the answers of a model to a prompt.
    for rank, _, key, name, _ in answers:
        highest[key, name] = min(rank, highest.get((key, name), rank))
    models = {one.model_id for one in candidates} or {name for _, name in highest}
    checked = Counter(key for (key, name), rank in highest.items() if not rank and name in models)
    if not all_grades and list(checked.values()).count(max(2, len(models))) >= ENOUGH_CHECKED:
        answered = Counter(key for key, _ in highest)
        highest = {at: rank if answered[at[0]] == 1 else 0 for at, rank in highest.items()}
    return _joined([one for one in answers if one[0] == highest[one[2], one[3]]])


def _joined(answers: Sequence[_Answer]) -> list[GradedPrompt]:
    """Return the prompts with means over their answers, and with limited shares of opinions."""
    weight_of = rater_weights(Counter(party for _, of, *_ in answers for party in of))
    found: dict[str, GradedPrompt] = {}
    sums: dict[tuple[str, str], list[float]] = {}
    for rank, parties, key, name, answer in answers:
        weight = fmean(map(weight_of.__getitem__, parties)) if rank else 1.0
        one = found.get(key) or replace(
            answer, rewards={}, costs={}, evidence=[], traffic=0.0, chances={}
        )
        mean = sums.setdefault((key, name), [0.0, 0.0, 0.0])
        for place, term in enumerate((1.0, answer.rewards[name], answer.costs[name])):
            mean[place] += weight * term
        chances = {
            model: 1 - (1 - chance) * (1 - one.chances.get(model, 0.0))
            for model, chance in answer.chances.items()
        }
        found[key] = replace(
            one,
            rewards={**one.rewards, name: mean[1] / mean[0]},
            costs={**one.costs, name: mean[2] / mean[0]},
            evidence=[*one.evidence, answer.exchange_id],
            traffic=one.traffic + weight * answer.traffic,
            chances={**one.chances, **chances},
        )
    return [replace(one, traffic=one.traffic or 1.0) for one in found.values()]


def _grades(ledger: LedgerReader) -> dict[str, dict[tuple[str, str], float | None]]:
    """Return the scores of each exchange by source and party.

    A score of a decision belongs to the exchange that answered. A party's score of the exchange
    itself takes precedence.
    """
    found: dict[str, dict[tuple[str, str], float | None]] = {}
    of_decisions: dict[str, dict[tuple[str, str], float | None]] = {}
    for word in feedback_on(ledger):
        if word.target_type == "exchange":
            found.setdefault(word.target_entry_id, {})[word.source, word.rater] = word.score
        elif word.target_type == "decision":
            of_decisions.setdefault(word.target_entry_id, {})[word.source, word.rater] = word.score
    for decision_id, scores in of_decisions.items():
        attempts = ledger.read(decision_id).metadata.get("attempts")
        last = attempts[-1] if isinstance(attempts, list) and attempts else None
        if isinstance(last, Mapping) and (answer := last.get("exchange_entry_id")):
            found[str(answer)] = {**scores, **found.get(str(answer), {})}
    return found


def _usd(meta: Mapping[str, Any], candidate: Candidate | None, prices: PriceTable | None) -> float:
    """Return the cost of an exchange at present prices; the recorded cost if it is not known."""
    recorded = float(meta.get("cost_usd") or 0.0)
    if candidate is None or prices is None or meta.get("price_version") == prices.version:
        return recorded
    if candidate.input_price == candidate.output_price == 0:  # The provider bills nothing.
        return 0.0
    price = prices.find(candidate.provider_id, candidate.provider_model)
    if price is None or price.per_second or price.per_character:
        return recorded
    try:
        nano = price.cost_nano(Usage(**{name: meta.get(name) or 0 for name in _TOKENS}))
    except InvalidInputError:  # The parts exceed their total, so the bound was billed.
        return recorded
    return (nano + price.tools_nano(meta.get("server_tool_uses") or {})) / _NANO


def prices_at(table: PriceTable, models: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the price of each model, ``provider/model``; empty without a price.

    Day, source, and the sizes that bound a call do not count.
    """
    rest: dict[str, Any] = dict.fromkeys(("date", "source", "context_window", "max_output_tokens"))
    return {name: sha256_hex(encode(replace(one, **rest), order="deterministic"))
            if (one := table.find(*name.split("/", 1))) else "" for name in models}  # fmt: skip


def _prompt(entry: LedgerEntry) -> Any:
    """Return the prompt as messages or text; ``None`` if it cannot be routed again."""
    prompt: Any = entry.metadata.get("prompt")
    if not isinstance(prompt, (str, list)) or not prompt:
        return None
    try:
        text, _ = text_asked(prompt)
    except (InvalidInputError, AttributeError):  # A part of the messages was erased.
        return None
    return prompt if text else None
