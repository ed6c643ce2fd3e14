"""Tools and the choice among them in OpenAI's two dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects import _checks as checks
from remit.providers.dialects.names import ToolNames

__all__ = ["custom_schema", "read_choice", "read_format", "read_stop", "write_choice"]

_FROM_OPENAI = {"auto": "auto", "none": "none", "required": "any"}
_TO_OPENAI = {"auto": "auto", "none": "none", "any": "required"}
_GRAMMAR = "The input must follow this {syntax} grammar:\n{definition}"


def read_choice(choice: Any, *, nested: bool) -> dict[str, Any] | None:
    """Return ``tool_choice`` in neutral form; None if missing.

    Args:
        choice: the client's value.
        nested: True if a tool's name is in an object under its type (Chat Completions).

    Raises:
        DialectError: the value has none of the API's forms.
    """
    if choice is None:
        return None
    if isinstance(choice, str):
        if choice in _FROM_OPENAI:
            return {"type": _FROM_OPENAI[choice]}
        raise checks.refuse("is none of the API's choices", "tool_choice")
    if not isinstance(choice, dict):
        raise checks.refuse("is neither a text nor an object", "tool_choice")
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": "tool", "name": _name(choice, kind, nested, "tool_choice")}
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools") if nested else choice, nested)
    if isinstance(kind, str) and kind:
        return {"type": "other", "value": choice, "at": "tool_choice"}
    raise checks.refuse("is none of the API's choices", "tool_choice.type")


def _name(holder: dict[str, Any], kind: Any, nested: bool, where: str) -> str:
    if nested:
        inner = holder.get(kind) if isinstance(kind, str) else None
        if not isinstance(inner, dict):
            raise checks.refuse("is not an object", f"{where}.{kind}")
        return checks.text(inner, "name", f"{where}.{kind}")
    return checks.text(holder, "name", where)


def _allowed(allowed: Any, nested: bool) -> dict[str, Any]:
    where = "tool_choice.allowed_tools" if nested else "tool_choice"
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list):
        raise checks.refuse("is not a list", f"{where}.tools")
    mode = allowed.get("mode")
    if mode not in ("auto", "required"):
        raise checks.refuse("is neither 'auto' nor 'required'", f"{where}.mode")
    names = []
    for index, tool in enumerate(tools):
        at = f"{where}.tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
            raise checks.refuse("is neither a function nor a custom tool", at)
        names.append(_name(tool, tool["type"], nested, at))
    return {"type": "allowed", "mode": _FROM_OPENAI[mode], "names": names}


def write_choice(
    choice: Mapping[str, Any], names: ToolNames, custom: frozenset[str], *, nested: bool
) -> Any:
    """Return a neutral choice as ``tool_choice``.

    Args:
        choice: the choice; ``other`` is returned unchanged.
        names: names of the call's tools.
        custom: wire names of the tools with free text input.
        nested: as for :func:`read_choice`.
    """
    kind = choice["type"]
    if kind == "other":
        return choice["value"]
    if kind == "tool":
        return _tool(choice["name"], names, custom, nested)
    if kind == "allowed":
        tools = [_tool(name, names, custom, nested) for name in choice["names"]]
        allowed = {"mode": _TO_OPENAI[choice["mode"]], "tools": tools}
        if nested:
            return {"type": "allowed_tools", "allowed_tools": allowed}
        return {"type": "allowed_tools", **allowed}
    return _TO_OPENAI[kind]


def _tool(name: str, names: ToolNames, custom: frozenset[str], nested: bool) -> dict[str, Any]:
    kind = "custom" if name in custom else "function"
    named = {"name": names.sent(name)}
    return {"type": kind, kind: named} if nested else {"type": kind, **named}


def read_stop(value: Any, param: str) -> tuple[str, ...]:
    """Return stop texts, given as one text or a list.

    Raises:
        DialectError: the value is anything else.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise checks.refuse("is neither a text nor a list of texts", param)


def read_format(tool: dict[str, Any], where: str, *, nested: bool) -> dict[str, Any] | None:
    """Return a custom tool's ``format`` in the form of Responses; None for plain text.

    Raises:
        DialectError: the format is malformed.
    """
    wanted = checks.object_or_none(tool, "format", f"{where}.format")
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") != "grammar":
        raise checks.refuse("is neither 'text' nor 'grammar'", f"{where}.format.type")
    at = f"{where}.format.grammar" if nested else f"{where}.format"
    grammar = wanted.get("grammar") if nested else wanted
    if not isinstance(grammar, dict):
        raise checks.refuse("is not an object", at)
    return {
        "type": "grammar",
        "syntax": checks.text(grammar, "syntax", at),
        "definition": checks.text(grammar, "definition", at),
    }


def custom_schema(tool: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return description and schema of a tool with free text input, sent as a function."""
    said = [str(tool.get("description") or "")]
    if wanted := tool.get("format"):
        said.append(_GRAMMAR.format(**wanted))
    schema = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The whole input, as text."}},
        "required": ["input"],
        "additionalProperties": False,
    }
    return "\n\n".join(text for text in said if text), schema
