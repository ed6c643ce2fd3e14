"""The amount of thinking: OpenAI's efforts, Anthropic's budgets and adaptive thinking."""

from __future__ import annotations

import re
from typing import Any

from remit.providers.dialects.model_call import ModelCall, Reasoning

_WITHOUT = re.compile(r"(.*/)?(gpt-3|gpt-4|chatgpt)")
"""OpenAI's models that refuse ``reasoning_effort``."""
_WITH_BUDGET = re.compile(r".*claude.*(-3[-.]|sonnet-4([-.][025]|$)|opus-4([-.][0125]|$)|haiku-4)")
"""Claude models that take a budget and know no adaptive thinking."""
_SAMPLES = re.compile(_WITH_BUDGET.pattern + r"|.*claude.*-4[-.]6")
_ONE_OF_BOTH = re.compile(r".*claude.*-4[-.][1-6](?!\d)")
_BUDGETS = {"minimal": 2048, "low": 2048, "medium": 8192, "high": 16384}
_GREAT_BUDGET = 32768
_MIN_BUDGET_TOKENS = 1024
_GEMINI_BUDGET = 24576  # The most that every Gemini 2.5 takes.
_WITH_LEVEL = re.compile(r"(.*/)?gemini-([3-9]|[1-9]\d)")
_REASONS_WITH_EFFORT = re.compile(r"(gpt-5\.[45]|codex)(?![0-9])")
_REASONS_ALWAYS = re.compile(r"gpt-(5\.([6-9]|[1-9][0-9])|[6-9])")
_TO_ANTHROPIC = {"minimal": "low", "none": "low"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_COMMON = ("low", "medium", "high")
_ACCEPTED = (
    (re.compile(r"(.*/)?o[134]"), _COMMON),
    (re.compile(r"(.*/)?gpt-5(?!\.)"), ("minimal", *_COMMON)),
    (re.compile(r"(.*/)?gpt-5\.1"), ("none", *_COMMON)),
    (re.compile(r"(.*/)?gpt-[5-9]"), ("none", *_COMMON, "xhigh")),
)
"""The efforts that each of OpenAI's models accepts."""


def needs_responses(model: str, tools: bool, effort: str | None) -> bool:
    """Return True if OpenAI refuses a call on Chat Completions and answers it on Responses.

    From GPT-5.6 on, functions are refused unless the effort is ``none``; GPT-5.4 and 5.5 refuse
    them next to an effort.

    Args:
        model: the provider's name of the model.
        tools: True if the call offers tools.
        effort: the wanted reasoning effort; None if the client leaves it to the model.
    """
    if not tools or effort == "none":
        return False
    if _REASONS_ALWAYS.match(model):
        return True
    return effort is not None and bool(_REASONS_WITH_EFFORT.match(model))


def openai_effort(call: ModelCall, model: str) -> str | None:
    """Return ``reasoning_effort`` for OpenAI's dialects; None to leave it to the model.

    A budget becomes an effort. An effort that the model refuses becomes the nearest that it
    accepts, or None, and is noted in the call's ``dropped``. An effort of a client of OpenAI's
    dialects for an unknown model stays.
    """
    wanted = call.reasoning
    if wanted is None:
        return None
    own = call.endpoint.startswith("openai.")
    effort = wanted.effort
    if effort is None and wanted.budget_tokens is not None:
        effort = _effort_of(wanted.budget_tokens)
    if effort is None:
        return None
    if not takes_effort(model):
        if effort != "none":
            call.drop("reasoning")
        return None
    accepted = next((efforts for models, efforts in _ACCEPTED if models.match(model)), None)
    if accepted is None:
        if own:
            return effort
        if effort == "none":
            call.drop("reasoning")
            return None
        accepted = _COMMON
    if effort in accepted or effort not in _EFFORTS:
        return effort
    place = _EFFORTS.index(effort)
    call.drop("reasoning")
    return min(accepted, key=lambda one: abs(_EFFORTS.index(one) - place))


def messages_thinking(wanted: Reasoning, model: str, max_tokens: int) -> dict[str, Any]:
    """Return ``thinking`` and ``output_config`` effort for the Messages API; empty if neither
    applies.

    Newer models of Claude decide by effort. Older ones, and other servers' models, get a budget
    below ``max_tokens``; one of under 1,024 tokens is left out.
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


def gemini_thinking(wanted: Reasoning | None, model: str) -> dict[str, Any] | None:
    """Return ``thinkingConfig`` for Gemini; None to leave it to the model.

    Gemini 3 and later take a level: ``low`` or ``high``. Older models take a budget of at most
    24,576 tokens, of which 0 means none and -1 leaves it to the model.
    """
    if wanted is None:
        return None
    shown = {"includeThoughts": wanted.summary != "omitted"}
    effort, budget = wanted.effort, wanted.budget_tokens
    if _WITH_LEVEL.match(model):
        if effort is None and budget is not None:
            effort = _effort_of(budget)
        levels = {None: {}, "none": {"thinkingLevel": "low"}, "low": {"thinkingLevel": "low"},
                  "minimal": {"thinkingLevel": "low"}}  # fmt: skip
        return shown | levels.get(effort, {"thinkingLevel": "high"})
    if effort == "none":
        return {"thinkingBudget": 0}
    if budget is None and effort is not None:
        budget = _BUDGETS.get(effort, _GEMINI_BUDGET)
    return shown | {"thinkingBudget": -1 if budget is None else min(budget, _GEMINI_BUDGET)}


def takes_effort(model: str) -> bool:
    """Return True if a model of OpenAI's dialects accepts an effort, judging by its name."""
    return _WITHOUT.match(model) is None


def takes_sampling(model: str) -> bool:
    """Return True if a model of the Messages API accepts ``temperature``, ``top_p`` and
    ``top_k``.
    """
    return "claude" not in model or _SAMPLES.match(model) is not None


def takes_both(model: str) -> bool:
    """Return True if a model of the Messages API accepts ``temperature`` next to ``top_p``."""
    return _ONE_OF_BOTH.match(model) is None


def _effort_of(budget: int) -> str:
    if budget <= _BUDGETS["low"]:
        return "low"
    return "medium" if budget <= _BUDGETS["medium"] else "high"


def _display(wanted: Reasoning) -> dict[str, str]:
    if wanted.summary is None:
        return {}
    return {"display": "omitted" if wanted.summary == "omitted" else "summarized"}
