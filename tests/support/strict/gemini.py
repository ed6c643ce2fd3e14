"""Gemini's ``generateContent``: its rules, its answers, its streams."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.strict.chat import pieces, tokens
from tests.support.strict.script import Call, Text, Thinking, Turn, answer
from tests.support.strict.shapes import Reply, Wrong, stream, whole

__all__ = ["reply"]

_FIELDS = {
    "generateContent": {"contents", "systemInstruction", "tools", "toolConfig", "safetySettings",
                        "generationConfig", "cachedContent", "labels"},
    "countTokens": {"contents", "generateContentRequest"},
    "embedContent": {"content", "taskType", "title", "outputDimensionality"},
    "batchEmbedContents": {"requests"},
}  # fmt: skip
_FIELDS["streamGenerateContent"] = _FIELDS["generateContent"]
_PARTS = {"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData",
          "fileData"}  # fmt: skip
_MODELS = ("gemini-2.5-flash", "gemini-3-flash-preview", "gemini-embedding-001")
_SIGNATURE = base64.b64encode(b"strictly signed").decode()
_PATH = re.compile(r"/models/([^/:]+):(\w+)")


def reply(route: str, body: dict[str, Any], query: Any) -> Reply:
    """Return the reply to one request.

    Raises:
        Wrong: the provider refuses it.
    """
    method, _, path = route.partition(" ")
    if method == "GET":
        return _listed(path)
    found = _PATH.fullmatch(path)
    if found is None or found[2] not in _FIELDS:
        raise Wrong("", code="not_found")
    model, verb = found.groups()
    if model not in _MODELS:
        raise Wrong(f"models/{model} is not found for API version v1beta", code="model_not_found")
    for name in body.keys() - _FIELDS[verb]:
        raise Wrong(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    if verb == "embedContent":
        return whole("gemini", {"embedding": {"values": [0.25, 0.5]}})
    if verb == "batchEmbedContents":
        return whole("gemini", {"embeddings": [{"values": [0.25]} for _ in body["requests"]]})
    turn = _read(body)
    if verb == "countTokens":
        return whole("gemini", {"totalTokens": tokens(body)})
    events = list(_events(model, body, turn))
    if verb == "generateContent":
        last = events[-1]
        if (found := last.get("candidates")) is not None:
            parts = [
                part for event in events for part in event["candidates"][0]["content"]["parts"]
            ]
            found[0]["content"] = {"parts": parts, "role": "model"}
        return whole("gemini", last)
    if query.get("alt") == "sse":
        return stream(f"data: {json.dumps(event)}\r\n\r\n".encode() for event in events)
    return whole("gemini", events)


def _listed(path: str) -> Reply:
    models = [{"name": f"models/{name}", "version": "001", "displayName": name,
               "inputTokenLimit": 1048576, "outputTokenLimit": 65536,
               "supportedGenerationMethods": ["generateContent"]} for name in _MODELS]  # fmt: skip
    if path == "/models":
        return whole("gemini", {"models": models})
    for model in models:
        if path == f"/{model['name']}":
            return whole("gemini", model)
    raise Wrong("", code="not_found")


def _read(body: dict[str, Any]) -> Turn:
    config = body.get("generationConfig") or {}
    tools = {
        tool["name"]: tool.get("parameters") or tool.get("parametersJsonSchema") or {}
        for group in body.get("tools") or ()
        for tool in group.get("functionDeclarations", ())
    }
    turn = Turn(tools=tools, thinking=(config.get("thinkingConfig") or {}).get("includeThoughts")
                is True)  # fmt: skip
    if config.get("responseMimeType") == "application/json":
        turn.schema = config.get("responseJsonSchema") or {}
    waiting: list[str] = []
    for at, content in enumerate(body["contents"]):
        if content.get("role", "user") not in ("user", "model"):
            raise Wrong("Please use a valid role: user, model.")
        if not content.get("parts"):
            raise Wrong(f"* GenerateContentRequest.contents[{at}].parts: must not be empty.")
        for part in content["parts"]:
            for name in part.keys() - _PARTS:
                raise Wrong(f'Invalid JSON payload received. Unknown name "{name}"')
            if (seal := part.get("thoughtSignature")) not in (None, _SIGNATURE):
                raise Wrong(f"Thought signature is not valid: {seal[:8]}")
            if "functionCall" in part:
                waiting.append(part["functionCall"]["name"])
            if "functionResponse" in part:
                if part["functionResponse"]["name"] not in waiting:
                    raise Wrong("Please ensure that function response turn comes immediately after "
                                "a function call turn.")  # fmt: skip
                turn.results.append(json.dumps(part["functionResponse"]["response"]))
            elif content.get("role") != "model" and part.get("text"):
                turn.text, turn.results = part["text"], []
    return turn


def _events(model: str, body: dict[str, Any], turn: Turn) -> Iterator[dict[str, Any]]:
    about = {"modelVersion": model, "responseId": "resp-strict"}
    given = tokens(body)
    if "[[block]]" in turn.text:
        used = {"promptTokenCount": given, "totalTokenCount": given}
        yield {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": used, **about}
        return
    parts: list[dict[str, Any]] = []
    for part in answer(turn):
        if isinstance(part, Thinking):
            parts.append({"text": part.text, "thought": True})
        elif isinstance(part, Call):
            call = {"name": part.name, "args": part.arguments}
            parts.append({"functionCall": call, "thoughtSignature": _SIGNATURE})
        elif isinstance(part, Text):
            parts += [{"text": piece} for piece in pieces(part.text)]
    reason = "STOP" if parts else "SAFETY"
    parts = parts or [{"text": ""}]
    made = tokens(parts)
    used = {"promptTokenCount": given, "candidatesTokenCount": made, "thoughtsTokenCount": 3,
            "totalTokenCount": given + made + 3}  # fmt: skip
    for at, part in enumerate(parts):
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if at == len(parts) - 1:
            candidate["finishReason"] = reason
        yield {"candidates": [candidate], "usageMetadata": used, **about}
