"""Calls in neutral form as bodies of Gemini's ``generateContent``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.exchange import text_of
from remit.providers.dialects.effort import gemini_thinking
from remit.providers.dialects.errors import cannot, foreign_part, leave_out_rest, words_of
from remit.providers.dialects.media import image_type, plain_document
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.tool_calls import ASIDE, OPENING, ToolNames, in_rounds, wire_id
from remit.providers.dialects.tool_choice import described

_MODES = {"auto": "AUTO", "any": "ANY", "none": "NONE", "tool": "ANY"}


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of ``generateContent`` with ``model`` and
    ``stream``, which the provider's path states.

    Fields that the body cannot have are noted in the call's ``dropped``; those whose absence would
    change the answer are refused. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_request`.

    Raises:
        DialectError: Gemini's API cannot express the call.
    """
    leave_out_rest(call)
    names = ToolNames(call)
    system, contents = _conversation(call, names)
    body: dict[str, Any] = {"model": model, "contents": contents}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    body |= _tools(call, names)
    optional: dict[str, Any] = {
        "maxOutputTokens": call.max_tokens,
        "temperature": call.temperature,
        "topP": call.top_p,
        "topK": call.top_k,
        "stopSequences": list(call.stop) or None,
        "thinkingConfig": gemini_thinking(call.reasoning, model),
    }
    config = {name: value for name, value in optional.items() if value is not None}
    if call.response_format is not None:
        config["responseMimeType"] = "application/json"
        if call.response_format.schema is not None:
            config["responseJsonSchema"] = call.response_format.schema
        if call.response_format.description:
            call.drop("response_format.description")
    if config:
        body["generationConfig"] = config
    if call.user:
        call.drop("user")
    if call.parallel_tools is False:
        call.drop("parallel_tool_calls")
    if call.stream:
        body["stream"] = True
    return body


def _conversation(call: ModelCall, names: ToolNames) -> tuple[str, list[dict[str, Any]]]:
    """Return the system prompt and the turns. Later system prompts become marked text at their
    place, because the API has no such role.
    """
    system: list[str] = []
    contents: list[dict[str, Any]] = []
    functions: dict[str, str] = {}
    for index, message in enumerate(in_rounds(call.messages)):
        role, content = message["role"], message["content"]
        if role == "system" and not contents:
            system.append(text_of(content))
            continue
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if role == "system":
            content = [{"type": "text", "text": ASIDE.format(text_of(content))}]
        parts: list[dict[str, Any]] = []
        seal: dict[str, Any] = {}
        for at, block in enumerate(content):
            if block["type"] == "thinking" and "thought_signature" in block:
                seal = {"thoughtSignature": block["thought_signature"]}
                if not block["thinking"]:
                    continue
            where = f"messages[{index}].content[{at}]"
            found = _parts(call, block, str(block.get("at", where)), names, functions)
            if found and seal:
                found[0] |= seal
                seal = {}
            parts += found
        if seal:  # The text that it belongs to came before it.
            parts.append({"text": "", **seal})
        speaker = "model" if role == "assistant" else "user"
        if contents and contents[-1]["role"] == speaker:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": speaker, "parts": parts})
    if not contents and system:  # The API demands a turn.
        contents.append({"role": "user", "parts": [{"text": system.pop()}]})
    if not contents or contents[0]["role"] == "model":  # The API demands a user's turn first.
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    return "\n\n".join(system), contents


def _parts(
    call: ModelCall, block: Mapping[str, Any], where: str, names: ToolNames,
    functions: dict[str, str],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return a block as parts. ``functions`` maps ids of calls to names and is added to."""
    kind = block["type"]
    for hint in ("cache_control", "citations", "detail"):
        if block.get(hint) not in (None, "auto", []):
            call.drop(hint)
    if kind in ("text", "refusal"):
        return [{"text": block[kind]}] if block[kind] else []
    if kind == "thinking":
        if "thought_signature" in block:
            return [{"text": block["thinking"], "thought": True}]
        call.drop("thoughts" if call.endpoint == "openai.chat" else "thinking")
        return []
    if kind in ("redacted_thinking", "server_tool"):
        call.drop("thinking" if kind == "redacted_thinking" else "web_search")
        return []
    if kind == "tool_use":
        identity, name = wire_id(block["id"]), names.sent(block["name"])
        functions[identity] = name
        return [{"functionCall": {"id": identity, "name": name, "args": block["input"]}}]
    if kind == "tool_result":
        identity, content = wire_id(block["tool_use_id"]), block["content"]
        seen: list[dict[str, Any]] = []
        if not isinstance(content, str):
            parts = [one for part in content for one in _parts(call, part, where, names, functions)]
            content = "".join(one["text"] for one in parts if "text" in one)
            seen = [one for one in parts if "text" not in one]
        said = {"error" if block.get("is_error") is True else "result": content}
        name = functions.get(identity, identity)
        return [{"functionResponse": {"id": identity, "name": name, "response": said}}, *seen]
    if kind in ("image", "document"):
        if (text := plain_document(block) if kind == "document" else None) is not None:
            return [{"text": text}]
        source = block["source"]
        if source.get("type") == "base64":
            media = image_type(source) if kind == "image" else source.get("media_type")
            return [{"inlineData": {"mimeType": media, "data": source.get("data")}}]
        if source.get("type") == "url":
            return [{"fileData": {"fileUri": source.get("url")}}]
    if (words := words_of(block)) is not None:
        return [{"text": words}]
    raise foreign_part(block, where, "Gemini's API")


def _tools(call: ModelCall, names: ToolNames) -> dict[str, Any]:
    functions: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(call.tools):
        where = str(tool.get("at", f"tools[{index}]"))
        if tool.get("type") == "web_search":
            tools.append({"googleSearch": {}})
            continue
        description, schema = described(tool, where)
        if "cache_control" in tool:
            call.drop("cache_control")
        if tool.get("strict") is True:
            call.drop("tools[].strict")
        function = {"name": names.sent(tool["name"]), "parametersJsonSchema": schema}
        functions.append({**function, "description": description} if description else function)
    if functions:
        tools.append({"functionDeclarations": functions})
    if not tools:
        return {}
    choice = call.tool_choice
    if choice is None:
        return {"tools": tools}
    if choice["type"] == "other":
        raise cannot(call.own("tool_choice"), "a tool that only its own provider has")
    allowed = [choice["name"]] if choice["type"] == "tool" else choice.get("names", [])
    config: dict[str, Any] = {"mode": _MODES[choice.get("mode", choice["type"])]}
    if allowed:
        config["allowedFunctionNames"] = [names.sent(name) for name in allowed]
    return {"tools": tools, "toolConfig": {"functionCallingConfig": config}}
