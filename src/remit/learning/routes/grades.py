"""Recorded prompts with graded answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on, reward_of
from remit.learning.evidence.shares import rater_weights
from remit.learning.exchanges import prompt_key
from remit.learning.routes.ridge import GradedPrompt
from remit.ledger import LedgerEntry, LedgerReader
from remit.providers.prices import PriceTable, Usage
from remit.routing import Candidate, Weights, read_intent
from remit.routing.intent import part_read, text_asked

CALIBRATOR = "route-calibration"
"""The agent whose exchanges are calibration's, and no traffic."""

_CHECKS = ("reference", "schema", "test")

_SUCCESS = "success"
_NANO = 1_000_000_000
_TOKENS = (
    "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "reasoning_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip


def graded_prompts(
    ledger: LedgerReader, *, candidates: Sequence[Candidate] = (), prices: PriceTable | None = None,
    rules: Weights | None = None,
) -> list[GradedPrompt]:  # fmt: skip
    """Return prompts with a graded answer, oldest first; equal prompts are one item.

    Grades of an exchange count as in samples: the mean of all parties, with the latest grade of
    each. A grade of a decision counts for the exchange that answered. A judge's grade counts only
    if there is no other. Erased and failed exchanges, and fallbacks, are left out.

    If a model answered a prompt several times, its reward and cost are means. A prompt counts as
    often as it was graded outside calibration. The share of one party's opinions is limited
    (:func:`rater_weights`).

    Args:
        candidates: the route's models; their answers are keyed by candidate, others by the
            exchange's model.
        prices: prices in force. The cost of a candidate's answer at other prices is computed again
            from its tokens and server tools; ``None`` for costs as recorded.
        rules: rules by which tasks are recognised; the shipped ones if ``None``.
    """
    weights = rules or Weights.shipped()
    known_as = {one.provider_model: one for one in candidates}
    grades = _grades(ledger)
    weight_of = _party_weights(grades.values())
    found: dict[str, GradedPrompt] = {}
    sums: dict[tuple[str, str], list[float]] = {}
    for exchange_id in sorted(grades, key=lambda name: (len(name), name)):
        entry = ledger.read(exchange_id)
        prompt = _prompt(entry)
        meta = entry.metadata
        if prompt is None or meta.get("outcome") != _SUCCESS or meta.get("fallback_from"):
            continue
        reward, parties = reward_of(grades[exchange_id])
        if reward is None:
            reward, parties = reward_of(grades[exchange_id], judges=True)
        if reward is None:
            continue
        model = str(meta.get("model_id", ""))
        candidate = known_as.get(model)
        name = candidate.model_id if candidate else model
        key = prompt_key(prompt)
        weight = sum(weight_of[party] for party in parties) / len(parties)
        one = found.get(key)
        if one is None:
            asked = text_asked(prompt)[0]
            one = GradedPrompt(
                exchange_id, prompt, part_read(asked, weights.intent),
                read_intent(prompt, weights).task, {}, {}, [], traffic=0.0,
            )  # fmt: skip
        assert isinstance(one.evidence, list)
        one.evidence.append(exchange_id)
        mean = sums.setdefault((key, name), [0.0, 0.0, 0.0])
        for place, term in enumerate((1.0, reward, _usd(meta, candidate, prices))):
            mean[place] += weight * term
        found[key] = replace(
            one,
            rewards={**one.rewards, name: mean[1] / mean[0]},
            costs={**one.costs, name: mean[2] / mean[0]},
            traffic=one.traffic + (0.0 if meta.get("agent_id") == CALIBRATOR else weight),
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


def _party_weights(
    grades: Iterable[Mapping[tuple[str, str], float | None]],
) -> Mapping[str, float]:
    """Return the weight of each party's scores, so that no opinion exceeds its share.

    Reference answers, schemas and tests are no opinions, so their scores have full weight.
    """
    counts: Counter[str] = Counter()
    checks: set[str] = set()
    for scores in grades:
        counts.update({party for _, party in scores})
        checks.update(party for source, party in scores if source in _CHECKS)
    return {**rater_weights(counts), **dict.fromkeys(checks, 1.0)}


def _usd(meta: Mapping[str, Any], candidate: Candidate | None, prices: PriceTable | None) -> float:
    """Return the cost of an exchange at present prices; the recorded cost if it is not known."""
    recorded = float(meta.get("cost_usd") or 0.0)
    if candidate is None or prices is None or meta.get("price_version") == prices.version:
        return recorded
    if candidate.input_price == 0 and candidate.output_price == 0:  # The provider bills nothing.
        return 0.0
    price = prices.find(candidate.provider_id, candidate.provider_model)
    if price is None or price.per_second or price.per_character:
        return recorded
    try:
        nano = price.cost_nano(Usage(**{name: meta.get(name) or 0 for name in _TOKENS}))
    except InvalidInputError:  # The parts exceed their total, so the bound was billed.
        return recorded
    used: Mapping[str, int] = meta.get("server_tool_uses") or {}
    nano += sum(price.server_tools.get(name, 0) * times for name, times in used.items())
    return nano / _NANO


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
