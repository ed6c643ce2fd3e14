"""Bodies of Gemini's ``generateContent``, read into the neutral form."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.seals import read_gemini_seal
from remit.providers.dialects.tool_calls import json_text
from remit.providers.dialects.tool_choice import read_stop
from remit.providers.wire.body import camel_case

ENDPOINT = "gemini.generate"
_ROLES = {None: "user", "": "user", "user": "user", "function": "user", "model": "assistant"}
_MODES = {"AUTO": "auto", "MODE_UNSPECIFIED": "auto", "VALIDATED": "auto", "ANY": "any",
          "NONE": "none"}  # fmt: skip
_TOP = frozenset(
    ("model", "stream", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")
)
_CONFIG = frozenset(
    ("maxOutputTokens", "temperature", "topP", "topK", "stopSequences", "responseMimeType",
     "responseSchema", "responseJsonSchema", "thinkingConfig")
)  # fmt: skip
_KINDS = frozenset(
    ("text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode",
     "codeExecutionResult")
)  # fmt: skip
"""Members of a part of which one may be given."""
_CONTENT = _KINDS - {"text"}
_KNOWN = {
    "contents[]": frozenset(("role", "parts")),
    "contents[].parts[]": _KINDS | {"thought", "thoughtSignature"},
    "generationConfig.thinkingConfig": frozenset(
        ("thinkingBudget", "thinkingLevel", "includeThoughts")
    ),
    "contents[].parts[].functionCall": frozenset(("id", "name", "args")),
    "contents[].parts[].functionResponse": frozenset(("id", "name", "response", "parts")),
    "contents[].parts[].inlineData": frozenset(("mimeType", "data")),
    "contents[].parts[].fileData": frozenset(("mimeType", "fileUri")),
    "toolConfig": frozenset(("functionCallingConfig",)),
    "toolConfig.functionCallingConfig": frozenset(("mode", "allowedFunctionNames")),
    "tools[].functionDeclarations[]": frozenset(
        ("name", "description", "parameters", "parametersJsonSchema")
    ),
}  # fmt: skip
_ONE_ANSWER = {"candidateCount": (1,), "responseModalities": (["TEXT"], ["text"], [])}
_SCHEMA_HINTS = ("propertyOrdering", "nullable", "example")


def read_request(body: Any) -> ModelCall:
    """Return a body of ``generateContent``, with ``model`` and ``stream`` set, in neutral form.

    Names are in camel case, as in the value of every :class:`~remit.providers.wire.body.Body`.
    Fields that the neutral form does not have are in ``other``, unread members in ``dropped``.

    Raises:
        DialectError: the body is invalid.
    """
    body = checks.checked_body(body)
    config = checks.optional(body, "generationConfig", dict) or {}
    flat = {name: value for name, value in body.items() if name not in _TOP}
    for name, value in config.items():
        if name not in _CONFIG and value not in _ONE_ANSWER.get(name, ()):
            flat[f"generationConfig.{name}"] = value
    sampled = {"temperature": config.get("temperature"), "top_p": config.get("topP"),
               "top_k": config.get("topK")}  # fmt: skip
    common = checks.read_common(
        {**flat, **sampled, "model": body.get("model"), "stream": body.get("stream")},
        ENDPOINT, {"": frozenset((*sampled, "model", "stream"))},
    )  # fmt: skip
    common["dropped"] = checks.unread(body, _KNOWN)
    form = _format(config)
    if form is None:  # Google ignores a schema unless the answer is JSON.
        schemas = ("responseSchema", "responseJsonSchema")
        common["dropped"] += [f"generationConfig.{name}" for name in schemas if config.get(name)]
    tools = tuple(_tools(checks.optional(body, "tools", list) or []))
    return ModelCall(
        **common,
        messages=_messages(body),
        max_tokens=checks.max_tokens(config, "maxOutputTokens"),
        tools=tools,
        tool_choice=_choice(body, {tool.get("name") for tool in tools}),
        response_format=form,
        stop=read_stop(config.get("stopSequences"), "stopSequences"),
        top_k=checks.number(sampled, "top_k"),
        reasoning=_reasoning(config),
    )


def _messages(body: dict[str, Any]) -> list[Message]:
    messages: list[Message] = []
    system = checks.optional(body, "systemInstruction", dict)
    if system is not None:
        parts = _parts(system, "systemInstruction")
        texts = [{"type": "text", "text": checks.text(part, "text", at)} for part, at in parts]
        messages.append({"role": "system", "content": texts})
    contents = body.get("contents")
    contents = [contents] if type(contents) is dict else contents
    if type(contents) is not list or not contents:
        raise checks.refuse("is not a non-empty list", "contents")
    waiting: dict[str, deque[str]] = defaultdict(deque)  # ids of unanswered calls, by function
    calls = 0
    for content, where in checks.objects(contents, "contents"):
        role = checks.role_of(content, _ROLES, where)
        blocks: list[dict[str, Any]] = []
        for part, at in _parts(content, where):
            calls += "functionCall" in part
            _add_part(blocks, part, at, waiting, f"call_{calls}")
        messages.append({"role": _ROLES[role], "content": blocks})
    return messages


def _parts(content: dict[str, Any], where: str) -> list[tuple[dict[str, Any], str]]:
    """Return each part with its place; a single part may stand in place of the list.

    Raise DialectError if a part has more than one kind.
    """
    parts = content.get("parts")
    if type(parts) is dict:
        parts = [parts]
    elif parts is not None and type(parts) is not list:
        raise checks.refuse("is not a list", f"{where}.parts")
    found = list(checks.objects(parts or (), f"{where}.parts"))
    for part, at in found:
        checks.check_kind(part, at, _KINDS)
    return found


def _add_part(
    blocks: list[dict[str, Any]], part: dict[str, Any], where: str,
    waiting: dict[str, deque[str]], next_id: str,
) -> None:  # fmt: skip
    """Append a part in neutral form. The seal of a part stands before it."""
    sealed = read_gemini_seal(checks.optional(part, "thoughtSignature", str, where) or "")
    if part.get("thought") is True and _CONTENT.isdisjoint(part):
        text = checks.optional(part, "text", str, where) or ""
        last = blocks[-1] if blocks else {}
        if last.keys() == {"type", "thinking"}:
            text = blocks.pop()["thinking"] + text
        blocks.append({"type": "thinking", "thinking": text, **sealed})
        return
    if sealed:
        blocks.append({"type": "thinking", "thinking": "", **sealed})
    if type(part.get("text")) is str:
        if part["text"]:
            blocks.append({"type": "text", "text": part["text"]})
    elif (call := checks.optional(part, "functionCall", dict, where)) is not None:
        name = checks.text(call, "name", f"{where}.functionCall")
        identity = checks.optional(call, "id", str, where) or next_id
        given = checks.optional(call, "args", dict, where) or {}
        waiting[name].append(identity)
        blocks.append({"type": "tool_use", "id": identity, "name": name, "input": given})
    elif (result := checks.optional(part, "functionResponse", dict, where)) is not None:
        blocks.append(_result(result, f"{where}.functionResponse", waiting))
    elif (data := checks.optional(part, "inlineData", dict, where)) is not None:
        blocks.append(_media(data, f"{where}.inlineData", part))
    elif (file := checks.optional(part, "fileData", dict, where)) is not None:
        blocks.append(_media(file, f"{where}.fileData", part))
    elif part.keys() - {"thoughtSignature", "thought"}:
        blocks.append(checks.other(ENDPOINT, part, where))


def _result(result: dict[str, Any], where: str, waiting: dict[str, deque[str]]) -> dict[str, Any]:
    """Return a tool's result. One without an id answers the oldest open call of its function."""
    name = checks.text(result, "name", where)
    identity = checks.optional(result, "id", str, where)
    opened = waiting[name]
    if identity is None:
        identity = opened.popleft() if opened else f"call_of_{name}"
    elif identity in opened:
        opened.remove(identity)
    given = checks.optional(result, "response", dict, where) or {}
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity}
    value: Any = given
    if len(given) == 1 and (key := next(iter(given))) in ("result", "output", "error"):
        value = given[key]
        if key == "error":
            block["is_error"] = True
    block["content"] = value if isinstance(value, str) else json_text(value)
    parts = checks.optional(result, "parts", list, where)
    if parts:
        block["content"] = [{"type": "text", "text": block["content"]}]
        for part, at in _parts({"parts": parts}, where):
            data = checks.required(part, "inlineData", dict, at)
            block["content"].append(_media(data, at, part))
    return block


def _media(data: dict[str, Any], where: str, part: dict[str, Any]) -> dict[str, Any]:
    kind = (checks.optional(data, "mimeType", str, where) or "").lower()
    uri = checks.optional(data, "fileUri", str, where)
    block = {"type": "image" if kind.startswith("image/") else "document", "at": where}
    stored = uri is not None and (
        not uri.startswith(("https://", "http://")) or "generativelanguage.googleapis.com" in uri
    )
    if stored or kind.startswith(("audio/", "video/")):
        return checks.other(ENDPOINT, part, where)
    if uri is not None:
        return {**block, "source": {"type": "url", "url": uri}}
    # The client library writes base64 in the alphabet of URLs.
    text = checks.text(data, "data", where).replace("-", "+").replace("_", "/")
    return {**block, "source": {"type": "base64", "media_type": kind, "data": text}}


def _tools(tools: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for tool, where in checks.objects(tools, "tools"):
        for kind, value in tool.items():
            at = f"{where}.{kind}"
            if kind == "functionDeclarations" and type(value) is list:
                found += [_function(*one) for one in checks.objects(value, at)]
            elif kind == "googleSearch" and value == {}:
                found.append({"type": "web_search", "at": at})
            elif value is not None:
                found.append({"type": "other", "value": {kind: value}, "at": at})
    return found


def _function(given: dict[str, Any], where: str) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": checks.text(given, "name", where), "at": where}
    if description := checks.optional(given, "description", str, where):
        tool["description"] = description
    schema = checks.optional(given, "parametersJsonSchema", dict, where)
    if schema is None:
        schema = _schema(checks.optional(given, "parameters", dict, where))
    tool["input_schema"] = schema or {"type": "object", "properties": {}}
    return tool


def _schema(given: Any) -> Any:
    """Return Google's form of a schema as JSON Schema: types in lower case, no ``nullable``."""
    if type(given) is not dict:
        return given
    found: dict[str, Any] = {}
    for name, value in given.items():
        name = camel_case(name)
        if name == "type" and type(value) is str:
            value = value.lower()
        elif name == "properties" and type(value) is dict:
            value = {own: _schema(each) for own, each in value.items()}
        elif name in ("items", "additionalProperties"):
            value = _schema(value)
        elif name == "anyOf" and type(value) is list:
            value = [_schema(each) for each in value]
        elif name[:3] in ("min", "max") and type(value) is str and value.isdigit():
            value = int(value)
        if name not in _SCHEMA_HINTS and value is not None:
            found[name] = value
    if given.get("nullable") is True and type(found.get("type")) is str:
        found["type"] = [found["type"], "null"]
    return found


def _choice(body: dict[str, Any], functions: set[Any]) -> dict[str, Any] | None:
    """Return the choice of tools; None without one.

    Raise DialectError if a name is none of ``functions``, which are the names of the call's tools.
    """
    holder = checks.optional(body, "toolConfig", dict) or {}
    config = checks.optional(holder, "functionCallingConfig", dict, "toolConfig")
    if config is None:
        return None
    where = "toolConfig.functionCallingConfig"
    kind = _MODES.get((checks.optional(config, "mode", str, where) or "AUTO").upper())
    if kind is None:
        raise checks.refuse("is none of the API's modes", f"{where}.mode")
    names = checks.optional(config, "allowedFunctionNames", list, where) or []
    if not all(type(name) is str for name in names):
        raise checks.refuse("is not a list of texts", f"{where}.allowedFunctionNames")
    if not functions.issuperset(names):
        raise checks.refuse("names a function that is not defined", f"{where}.allowedFunctionNames")
    if not names or kind == "none":
        return {"type": kind}
    if len(names) == 1 and kind == "any":
        return {"type": "tool", "name": names[0]}
    return {"type": "allowed", "mode": kind, "names": names}


def _format(config: dict[str, Any]) -> ResponseFormat | None:
    kind = checks.optional(config, "responseMimeType", str, "generationConfig")
    schema = checks.optional(config, "responseJsonSchema", dict, "generationConfig")
    if schema is None:
        schema = _schema(checks.optional(config, "responseSchema", dict, "generationConfig"))
    if kind in (None, "", "text/plain"):
        return None
    if kind != "application/json":
        raise checks.refuse("is neither text nor JSON", "generationConfig.responseMimeType")
    return ResponseFormat(schema, "answer" if schema is not None else "")


def _reasoning(config: dict[str, Any]) -> Reasoning | None:
    wanted = checks.optional(config, "thinkingConfig", dict, "generationConfig")
    if wanted is None:
        return None
    where = "generationConfig.thinkingConfig"
    budget = checks.optional(wanted, "thinkingBudget", int, where)
    level = checks.optional(wanted, "thinkingLevel", str, where)
    summary = "auto" if checks.optional(wanted, "includeThoughts", bool, where) else "omitted"
    if budget == 0:
        return Reasoning(effort="none")
    if level:
        return Reasoning(effort=level.lower(), summary=summary)
    if budget is not None and budget > 0:
        return Reasoning(budget_tokens=budget, summary=summary)
    return Reasoning(summary=summary, adaptive=True)
