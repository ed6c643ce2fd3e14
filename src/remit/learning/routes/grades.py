"""Recorded prompts with graded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on, reward_of
from remit.learning.held_out import prompt_key
from remit.learning.routes.ridge import GradedPrompt
from remit.ledger import LedgerEntry, LedgerReader
from remit.providers.prices import PriceTable, Usage
from remit.routing import Candidate, Weights, read_intent
from remit.routing.intent import part_read, text_asked

__all__ = ["graded_prompts"]

_SUCCESS = "success"
_NANO = 1_000_000_000
_TOKENS = (
    "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "reasoning_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip


def graded_prompts(
    ledger: LedgerReader,
    *,
    candidates: Sequence[Candidate] = (),
    prices: PriceTable | None = None,
    rules: Weights | None = None,
) -> list[GradedPrompt]:
    """Return prompts with a graded answer, oldest first; equal prompts are one item.

    Grades of an exchange count as in samples: the mean of all parties, with the latest grade of
    each. A judge's grade counts only if there is no other. Erased and failed exchanges, and
    fallbacks, are left out.

    Args:
        ledger: the ledger.
        candidates: the route's models; their answers are keyed by candidate, others by the
            exchange's model.
        prices: prices in force. The cost of a candidate's answer at other prices is computed again
            from its tokens and server tools; ``None`` for costs as recorded.
        rules: rules by which tasks are recognised; the shipped ones if ``None``.
    """
    weights = rules or Weights.shipped()
    known_as = {one.provider_model: one for one in candidates}
    grades: dict[str, dict[tuple[str, str], float | None]] = {}
    for word in feedback_on(ledger):
        if word.target_type == "exchange":
            grades.setdefault(word.target_entry_id, {})[word.source, word.rater] = word.score
    found: dict[str, GradedPrompt] = {}
    for exchange_id in sorted(grades, key=lambda name: (len(name), name)):
        entry = ledger.read(exchange_id)
        prompt = _prompt(entry)
        meta = entry.metadata
        if prompt is None or meta.get("outcome") != _SUCCESS or meta.get("fallback_from"):
            continue
        reward, _ = reward_of(grades[exchange_id])
        if reward is None:
            reward, _ = reward_of(grades[exchange_id], judges=True)
        if reward is None:
            continue
        model = str(meta.get("model_id", ""))
        candidate = known_as.get(model)
        name = candidate.model_id if candidate else model
        key = prompt_key(prompt)
        known = found.get(key)
        if known is None:
            asked = text_asked(prompt)[0]
            known = found[key] = GradedPrompt(
                exchange_id, prompt, part_read(asked, weights.intent),
                read_intent(prompt, weights).task, {}, {}, [],
            )  # fmt: skip
        assert isinstance(known.rewards, dict)
        assert isinstance(known.costs, dict)
        assert isinstance(known.evidence, list)
        known.rewards[name] = reward
        known.costs[name] = _usd(meta, candidate, prices)
        known.evidence.append(exchange_id)
    return list(found.values())


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
