"""Graded answers as the record has them, by prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on, reward_of
from remit.learning.held_out import is_held_out, prompt_key
from remit.learning.routes.fitting import GradedPrompt
from remit.ledger import LedgerEntry, LedgerReader
from remit.routing import Weights, read_intent
from remit.routing.intent import part_read, text_asked

__all__ = ["graded_prompts", "held_out"]

_SUCCESS = "success"


def graded_prompts(
    ledger: LedgerReader,
    *,
    names: Mapping[str, str] | None = None,
    rules: Weights | None = None,
) -> list[GradedPrompt]:
    """Prompts with a graded answer, oldest first; answers to the same prompt are together.

    Grades of an exchange count as in samples: the mean of all parties, of each the latest word; a
    judge's where there is no other. What was erased, failed, or came of a fallback is left out.

    Args:
        ledger: where they are.
        names: a candidate's name by what its provider calls it, where that is another.
        rules: by which the prompts' tasks are read.
    """
    weights = rules or Weights.shipped()
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
        name = (names or {}).get(model, model)
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
        known.costs[name] = float(meta.get("cost_usd") or 0.0)
        known.evidence.append(exchange_id)
    return list(found.values())


def held_out(prompt: GradedPrompt) -> bool:
    """Whether no route is fitted to a prompt, whatever is graded later: it goes by its own hash."""
    return is_held_out(prompt.prompt)


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
