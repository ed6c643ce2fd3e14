"""Tools, the choice among them, and the form of the answer in OpenAI's two dialects.

Chat Completions nests an object under its type where Responses has one flat object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.providers.dialects import _checks as checks
from remit.providers.dialects.errors import cannot
from remit.providers.dialects.model_call import ModelCall, ResponseFormat
from remit.providers.dialects.tool_calls import ToolNames, namespaced

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
        inner, at = _inner(choice, kind, "tool_choice", nested)
        return {"type": "tool", "name": _chosen(inner, at)}
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools") if nested else choice, nested)
    if isinstance(kind, str) and kind:
        return {"type": "other", "value": choice, "at": "tool_choice"}
    raise checks.refuse("is none of the API's choices", "tool_choice.type")


def _inner(
    holder: dict[str, Any], kind: str, where: str, nested: bool
) -> tuple[dict[str, Any], str]:
    """Return the object with the members of a kind, and its place."""
    if nested:
        return checks.required(holder, kind, dict, where), f"{where}.{kind}"
    return holder, where


def _chosen(named: dict[str, Any], where: str) -> str:
    """Return the name of a chosen tool as other APIs know it, with its namespace."""
    name, namespace = checks.text(named, "name", where), named.get("namespace")
    return namespaced(namespace, name) if type(namespace) is str else name


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
        inner, at = _inner(tool, tool["type"], at, nested)
        names.append(_chosen(inner, at))
    return {"type": "allowed", "mode": _FROM_OPENAI[mode], "names": names}


def offered(call: ModelCall) -> tuple[Sequence[dict[str, Any]], dict[str, Any] | None]:
    """Return the tools and the choice of a call for an API that has no choice of allowed tools.

    The allowed tools alone are offered then: what is not offered is not called either.
    """
    choice = call.tool_choice
    if choice is None or choice["type"] != "allowed":
        return call.tools, choice
    tools = [tool for tool in call.tools if tool.get("name") in choice["names"]]
    return tools, {"type": choice["mode"]}


def write_choice(
    choice: Mapping[str, Any], names: ToolNames, custom: frozenset[str], *, nested: bool
) -> Any:
    """Return a neutral choice as ``tool_choice``.

    Args:
        choice: the choice in neutral form; of ``other``, the client's value is returned.
        names: names of the call's tools.
        custom: wire names of the tools with free text input.
        nested: as for :func:`read_choice`; a choice of allowed tools is never nested.
    """
    kind = choice["type"]
    if kind == "other":
        return choice["value"]
    if kind == "tool":
        return _tool(choice["name"], names, custom, nested)
    if kind == "allowed":
        tools = [_tool(name, names, custom, nested) for name in choice["names"]]
        return {"type": "allowed_tools", "mode": _TO_OPENAI[choice["mode"]], "tools": tools}
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


def read_tool(tool: Any, where: str, *, nested: bool) -> dict[str, Any]:
    """Return a function or custom tool in neutral form; any other tool as ``other``.

    Args:
        tool: the client's value.
        where: its place, for errors.
        nested: as for :func:`read_choice`.

    Raises:
        DialectError: the tool is malformed.
    """
    kind = checks.text(checks.checked_object(tool, where), "type", where)
    if kind not in ("function", "custom"):
        return {"type": "other", "value": tool, "at": where}
    if nested:
        checks.check_payload(tool, kind, where, {"function": ("function",), "custom": ("custom",)})
    inner, at = _inner(tool, kind, where, nested)
    neutral: dict[str, Any] = {"name": checks.text(inner, "name", at), "at": where}
    if description := checks.optional(inner, "description", str, at):
        neutral["description"] = description
    if kind == "custom":
        neutral["custom"] = True
        if wanted := _grammar(inner, at, nested):
            neutral["format"] = wanted
        return neutral
    schema = checks.optional(inner, "parameters", dict, at)
    neutral["input_schema"] = {"type": "object", "properties": {}} if schema is None else schema
    if (strict := checks.optional(inner, "strict", bool, at)) is not None:
        neutral["strict"] = strict
    return checks.with_hint(neutral, tool, inner) if nested else neutral


def _grammar(tool: dict[str, Any], where: str, nested: bool) -> dict[str, Any] | None:
    """Return a custom tool's ``format`` in the form of Responses; None for plain text."""
    wanted = checks.optional(tool, "format", dict, where)
    if wanted is None or wanted.get("type") == "text":
        return None
    at = f"{where}.format"
    if wanted.get("type") != "grammar":
        raise checks.refuse("is neither 'text' nor 'grammar'", f"{at}.type")
    wanted, at = _inner(wanted, "grammar", at, nested)
    words = {name: checks.text(wanted, name, at) for name in ("syntax", "definition")}
    return {"type": "grammar", **words}


def read_response_format(
    holder: dict[str, Any], key: str, where: str, *, nested: bool
) -> ResponseFormat | None:
    """Return the required form of the answer; None for plain text.

    Args:
        holder: the object with the form.
        key: its member.
        where: the object's place; empty for the body.
        nested: as for :func:`read_choice`.

    Raises:
        DialectError: the form is malformed.
    """
    wanted = checks.optional(holder, key, dict, where)
    at = f"{where}.{key}" if where else key
    kind = "text" if wanted is None else checks.text(wanted, "type", at)
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat()
    if kind != "json_schema":
        raise checks.refuse("is none of the forms of the API", f"{at}.type")
    wanted, at = _inner(wanted, kind, at, nested)
    read = checks.optional if nested else checks.required
    return ResponseFormat(
        schema=read(wanted, "schema", dict, at),
        name=checks.optional(wanted, "name", str, at) or "",
        strict=checks.optional(wanted, "strict", bool, at),
        description=checks.optional(wanted, "description", str, at) or "",
    )


def described(tool: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Return description and schema of a tool that is sent as a function.

    Args:
        tool: the neutral tool; one with free text input gets a schema with one text.
        where: its place, for errors.

    Raises:
        DialectError: only another provider has the tool.
    """
    if tool.get("custom") is not True:
        if "input_schema" not in tool:
            raise cannot(where, "a tool that only its own provider has")
        return str(tool.get("description", "")), tool["input_schema"]
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
