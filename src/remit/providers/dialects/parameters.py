"""A client's parameters for a provider of the other dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.call import Dialect, DialectError

__all__ = ["translate_parameters"]

_TO_CHOICE = {"auto": "auto", "none": "none", "required": "any"}
_FROM_CHOICE = {"auto": "auto", "none": "none", "any": "required"}
_NEXT_STEP = "Leave it out, or use a model whose provider speaks the client's dialect."
_PROMISES = {
    "openai": {
        "logprobs": "log probabilities",
        "top_logprobs": "log probabilities",
        "audio": "audio",
        "logit_bias": "a bias of tokens",
        "moderation": "moderation results",
        "web_search_options": "web search",
    },
    "anthropic": {
        "mcp_servers": "MCP servers run by the provider",
        "container": "a container run by the provider",
        "inference_geo": "a place of inference",
    },
}
"""What a client cannot do without unawares, where it asks for it at all."""


def translate_parameters(
    parameters: Mapping[str, Any], source: Dialect, target: Dialect
) -> dict[str, Any]:
    """``parameters`` of a client of ``source`` in the words of ``target``.

    Translated are stop texts, ``top_p``, ``top_k`` (towards Anthropic), the choice of tools,
    whether tools are called in parallel, and the end user's id. What only shapes the answer's
    style, speed or price (``seed``, penalties, ``reasoning_effort``, ``thinking``, ``store``,
    ``service_tier``, …) has no counterpart and is left out; so are ``response_format``,
    ``output_format`` and ``output_config``, whose schema is
    :attr:`~remit.providers.dialects.ClientCall.response_schema`. The Messages API takes a
    ``tool_choice`` only beside ``tools``.

    Raises:
        DialectError: the client asks for something that it would not get: log probabilities,
            audio, ``json_object`` answers, MCP servers, a place of inference and such; or a
            field does not have the form that the dialect gives it.
    """
    if source == target:
        return dict(parameters)
    for key, what in _PROMISES[source].items():
        if parameters.get(key):
            raise _refused(key, what)
    if source == "openai":
        return _to_anthropic(parameters)
    return _to_openai(parameters)


def _refused(param: str, what: str) -> DialectError:
    return DialectError(
        f"{param} asks for {what}, which this model's provider cannot give.",
        param=param,
        next_step=_NEXT_STEP,
    )


def _misshapen(param: str) -> DialectError:
    return DialectError(f"{param} does not have the form that the API gives it.", param=param)


def _to_anthropic(parameters: Mapping[str, Any]) -> dict[str, Any]:
    _check_answer(parameters)
    wire: dict[str, Any] = {}
    if stop := _texts(parameters.get("stop"), "stop"):
        if not all(text.strip() for text in stop):
            raise _refused("stop", "a stop text of white space alone")
        wire["stop_sequences"] = stop
    _copy_numbers(parameters, wire, ("top_p", "top_k"))
    choice = _anthropic_choice(parameters.get("tool_choice"))
    parallel = parameters.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise _misshapen("parallel_tool_calls")
    if parallel is False:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    if choice:
        wire["tool_choice"] = choice
    for key in ("user", "safety_identifier"):
        user = parameters.get(key)
        if user is not None and not isinstance(user, str):
            raise _misshapen(key)
        if user:
            wire["metadata"] = {"user_id": user}
            break
    return wire


def _check_answer(parameters: Mapping[str, Any]) -> None:
    """Refuse what would make the answer another one."""
    count = parameters.get("n")
    if count is not None and count != 1:
        raise _refused("n", "more than one answer")
    modalities = parameters.get("modalities")
    if modalities and modalities != ["text"]:
        raise _refused("modalities", "an answer that is not text alone")
    wanted = parameters.get("response_format")
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_object":
        raise DialectError(
            "response_format asks for a JSON object without saying which one, and this model's "
            "provider can only be held to a schema.",
            param="response_format",
            next_step="Use the type 'json_schema'.",
        )
    if kind not in ("text", "json_schema"):
        raise _refused("response_format", "a form of answer")


def _texts(value: Any, param: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return list(value)
    raise _misshapen(param)


def _copy_numbers(
    parameters: Mapping[str, Any], wire: dict[str, Any], keys: tuple[str, ...]
) -> None:
    for key in keys:
        value = parameters.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _misshapen(key)
        wire[key] = value


def _anthropic_choice(choice: Any) -> dict[str, Any] | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        if choice not in _TO_CHOICE:
            raise _misshapen("tool_choice")
        return {"type": _TO_CHOICE[choice]}
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return {"type": "tool", "name": _name(choice)}
    if kind == "allowed_tools":
        return _only_allowed(choice.get("allowed_tools"))
    if kind == "custom":
        raise _refused("tool_choice", "a tool with a text for its input")
    raise _misshapen("tool_choice")


def _name(holder: Mapping[str, Any]) -> str:
    function = holder.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise _misshapen("tool_choice")
    return name


def _only_allowed(allowed: Any) -> dict[str, Any]:
    """One tool that must be used is the one case that both dialects have."""
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _misshapen("tool_choice")
    if len(tools) == 1 and allowed.get("mode") == "required":
        return {"type": "tool", "name": _name(tools[0])}
    raise _refused("tool_choice", "some of the tools alone")


def _to_openai(parameters: Mapping[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    if stop := _texts(parameters.get("stop_sequences"), "stop_sequences"):
        wire["stop"] = stop
    _copy_numbers(parameters, wire, ("top_p",))
    choice = parameters.get("tool_choice")
    if choice is not None:
        if not isinstance(choice, dict):
            raise _misshapen("tool_choice")
        wire["tool_choice"] = _openai_choice(choice)
        alone = choice.get("disable_parallel_tool_use")
        if alone is not None and not isinstance(alone, bool):
            raise _misshapen("tool_choice")
        if alone:
            wire["parallel_tool_calls"] = False
    metadata = parameters.get("metadata")
    if metadata is not None:
        user = metadata.get("user_id") if isinstance(metadata, dict) else metadata
        if user is not None and not isinstance(user, str):
            raise _misshapen("metadata.user_id")
        if isinstance(metadata, str):
            raise _misshapen("metadata")
        if user:
            wire["user"] = user
    return wire


def _openai_choice(choice: Mapping[str, Any]) -> str | dict[str, Any]:
    kind = choice.get("type")
    if kind == "tool":
        name = choice.get("name")
        if not isinstance(name, str) or not name:
            raise _misshapen("tool_choice")
        return {"type": "function", "function": {"name": name}}
    if not isinstance(kind, str) or kind not in _FROM_CHOICE:
        raise _misshapen("tool_choice")
    return _FROM_CHOICE[kind]
