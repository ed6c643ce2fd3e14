"""``response`` objects at their start and end, in the client's settings."""

from __future__ import annotations

from typing import Any

from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.responses.request_writer import format_of, own_tools, tool_of
from remit.providers.dialects.tool_choice import write_choice
from remit.providers.dialects.usage import responses_usage
from remit.providers.protocol import ProviderResponse

__all__ = ["ended", "response_object"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier",
)  # fmt: skip


def ended(
    head: dict[str, Any], output: list[dict[str, Any]], answer: ProviderResponse
) -> dict[str, Any]:
    """Return a ``response`` object in its last state: completed or incomplete.

    Args:
        head: the object at its start (:func:`response_object`).
        output: the output items.
        answer: the answer, with finish reason and usage.
    """
    reason = _INCOMPLETE.get(answer.finish_reason)
    return {
        **head,
        "status": "completed" if reason is None else "incomplete",
        "completed_at": head["created_at"],
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": output,
        "usage": responses_usage(answer),
    }


def response_object(call: ModelCall, *, answer_id: str, created: int, model: str) -> dict[str, Any]:
    """Return a ``response`` object at its start, with the client's settings."""
    names = ToolNames(None)  # the client's own names
    custom = frozenset(tool["name"] for tool in call.tools if tool.get("custom") is True)
    choice = call.tool_choice or {"type": "auto"}
    text = call.other.get("text")
    verbosity = text.get("verbosity") if isinstance(text, dict) else None
    wanted = call.reasoning
    return {
        "id": answer_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": call.other.get("background") is True,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": _instructions(call),
        "max_output_tokens": call.max_tokens,
        "metadata": call.other.get("metadata") or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": call.parallel_tools is not False,
        "presence_penalty": 0.0,
        "reasoning": {
            "effort": wanted.effort if wanted is not None else None,
            "summary": wanted.summary if wanted is not None else None,
        },
        "service_tier": "default",
        "store": call.other.get("store") is not False,
        "temperature": 1.0 if call.temperature is None else call.temperature,
        "text": {"format": format_of(call), "verbosity": verbosity or "medium"},
        "tool_choice": write_choice(choice, names, custom, nested=False),
        "tools": [tool_of(tool, names) for tool in own_tools(call.tools)],
        "top_logprobs": 0,
        "top_p": 1.0 if call.top_p is None else call.top_p,
        "truncation": call.other.get("truncation") or "disabled",
        "usage": None,
        "user": call.user,
        **{key: call.other.get(key) for key in _ECHOED},
        **_conversation(call),
    }


def _conversation(call: ModelCall) -> dict[str, Any]:
    named = call.other.get("conversation")
    return {"conversation": {"id": named} if isinstance(named, str) else named} if named else {}


def _instructions(call: ModelCall) -> str | None:
    for message in call.messages[:1]:
        if message.get("instructions") is True:
            return str(message["content"])
    return None
