"""Graded answers as the record has them, by prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on, reward_of
from remit.learning.held_out import is_held_out, prompt_key
from remit.learning.routes.ridge import GradedPrompt
from remit.ledger import LedgerEntry, LedgerReader
from remit.providers.prices import PriceTable, Usage
from remit.routing import Candidate, Weights, read_intent
from remit.routing.intent import part_read, text_asked

__all__ = ["graded_prompts", "held_out"]

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
    """Prompts with a graded answer, oldest first; answers to the same prompt are together.

    Grades of an exchange count as in samples: the mean of all parties, of each the latest word; a
    judge's where there is no other. What was erased, failed, or came of a fallback is left out.

    Args:
        ledger: where they are.
        candidates: answers of their models have their names; others that of the exchange.
        prices: in force now. What a candidate's answer cost at other prices is computed again from
            its tokens and the provider's tools that it used; without them, costs are as recorded.
        rules: by which the prompts' tasks are read.
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


def held_out(prompt: GradedPrompt) -> bool:
    """Whether no route is fitted to a prompt, whatever is graded later: it goes by its own hash."""
    return is_held_out(prompt.prompt)


def _usd(meta: Mapping[str, Any], candidate: Candidate | None, prices: PriceTable | None) -> float:
    """What an exchange would cost now; as recorded, where its tokens do not say."""
    recorded = float(meta.get("cost_usd") or 0.0)
    if candidate is None or prices is None or meta.get("price_version") == prices.version:
        return recorded
    if candidate.input_price == 0 and candidate.output_price == 0:  # its provider bills nothing
        return 0.0
    price = prices.find(candidate.provider_id, candidate.provider_model)
    if price is None or price.per_second or price.per_character:
        return recorded
    try:
        nano = price.cost_nano(Usage(**{name: meta.get(name) or 0 for name in _TOKENS}))
    except InvalidInputError:  # its parts exceed their total: it was billed by its bound
        return recorded
    used: Mapping[str, int] = meta.get("server_tool_uses") or {}
    nano += sum(price.server_tools.get(name, 0) * times for name, times in used.items())
    return nano / _NANO


def _prompt(entry: LedgerEntry) -> Any:
    """What was asked, as messages or a text; ``None`` where it cannot be routed again."""
    prompt: Any = entry.metadata.get("prompt")
    if not isinstance(prompt, (str, list)) or not prompt:
        return None
    try:
        text, _ = text_asked(prompt)
    except (InvalidInputError, AttributeError):  # messages in part erased
        return None
    return prompt if text else None
