"""The amount of thinking: OpenAI's efforts, Anthropic's budgets and adaptive thinking."""

from __future__ import annotations

import re
from typing import Any

from remit.providers.dialects.model_call import ModelCall, Reasoning

__all__ = [
    "messages_thinking",
    "openai_effort",
    "said_thinking",
    "takes_effort",
    "takes_sampling",
]

_WITHOUT = re.compile(r"(.*/)?(gpt-3|gpt-4|chatgpt)")
"""OpenAI's models that refuse ``reasoning_effort``."""
_WITH_BUDGET = re.compile(r".*claude.*(-3[-.]|sonnet-4([-.][025]|$)|opus-4([-.][0125]|$)|haiku-4)")
"""Claude models that take a budget and know no adaptive thinking."""
_SAMPLES = re.compile(_WITH_BUDGET.pattern + r"|.*claude.*-4[-.]6")
_BUDGETS = {"minimal": 2048, "low": 2048, "medium": 8192, "high": 16384}
_GREAT_BUDGET = 32768
_MIN_BUDGET_TOKENS = 1024
_TO_ANTHROPIC = {"minimal": "low", "none": "low"}
_TO_OPENAI = {"xhigh": "high", "max": "high"}


def openai_effort(call: ModelCall, model: str) -> str | None:
    """Return ``reasoning_effort`` for OpenAI's dialects; None to leave it to the model."""
    wanted = call.reasoning
    if wanted is None:
        return None
    if call.endpoint.startswith("openai."):
        return wanted.effort
    if not takes_effort(model):
        return None
    if wanted.effort is not None:
        return _TO_OPENAI.get(wanted.effort, wanted.effort)
    if wanted.budget_tokens is None:
        return None
    return _effort_of(wanted.budget_tokens)


def messages_thinking(wanted: Reasoning, model: str, max_tokens: int) -> dict[str, Any]:
    """Return ``thinking`` and ``output_config`` effort for the Messages API; empty if neither
    applies.

    Newer models of Claude decide by effort. Older ones, and other servers' models, get a budget
    below ``max_tokens``.
    """
    if wanted.budget_tokens is None and not wanted.adaptive and wanted.effort is None:
        return {}
    display = _display(wanted)
    if "claude" in model and not _WITH_BUDGET.match(model):
        effort = wanted.effort
        said: dict[str, Any] = {}
        if effort != "none":
            said["thinking"] = {"type": "adaptive", **display}
        if effort is None and not wanted.adaptive:
            effort = _effort_of(wanted.budget_tokens or 0)
        if effort is not None:
            said["effort"] = _TO_ANTHROPIC.get(effort, effort)
        return said
    if wanted.effort == "none":
        return {}
    budget = wanted.budget_tokens
    if budget is None:
        budget = _BUDGETS.get(wanted.effort or "medium", _GREAT_BUDGET)
    budget = min(budget, max_tokens // 2 if wanted.budget_tokens is None else max_tokens - 1)
    if budget < _MIN_BUDGET_TOKENS:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget, **display}}


def said_thinking(wanted: Reasoning) -> dict[str, Any]:
    """Return the fields that a client of the Messages API sent, whatever the model."""
    said: dict[str, Any] = {}
    display = _display(wanted)
    if wanted.budget_tokens is not None:
        budget = wanted.budget_tokens
        said["thinking"] = {"type": "enabled", "budget_tokens": budget, **display}
    elif wanted.adaptive:
        said["thinking"] = {"type": "adaptive", **display}
    elif wanted.effort == "none":
        return {"thinking": {"type": "disabled"}}
    return said if wanted.effort is None else {**said, "effort": wanted.effort}


def takes_effort(model: str) -> bool:
    """Return True if a model of OpenAI's dialects accepts an effort, judging by its name."""
    return _WITHOUT.match(model) is None


def takes_sampling(model: str) -> bool:
    """Return True if a model of the Messages API accepts ``temperature``, ``top_p`` and
    ``top_k``.
    """
    return "claude" not in model or _SAMPLES.match(model) is not None


def _effort_of(budget: int) -> str:
    if budget <= _BUDGETS["low"]:
        return "low"
    return "medium" if budget <= _BUDGETS["medium"] else "high"


def _display(wanted: Reasoning) -> dict[str, str]:
    if wanted.summary is None:
        return {}
    return {"display": "omitted" if wanted.summary == "omitted" else "summarized"}
