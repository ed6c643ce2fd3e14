"""Claude on Bedrock (``invoke``, ``converse``) and on Vertex AI (``rawPredict``)."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from tests.support.strict import messages
from tests.support.strict.shapes import Reply, Wrong, stream, whole

__all__ = ["reply"]

_PATH = re.compile(r"/model/(?P<model>[^/]+)/(?P<verb>[a-z-]+)"
                   r"|/projects/p/locations/l/publishers/anthropic/models/(?P<vertex>[^/:]+)"
                   r":(?P<predict>\w+)")  # fmt: skip
_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
_DATED = "2026-10-21"  # the version that Anthropic's newest clients send to both clouds
_MODEL = "claude-sonnet-4-5"  # the name by which the Messages API knows the clouds' model
_CONVERSE = {"messages", "system", "inferenceConfig", "toolConfig"}


def reply(route: str, body: dict[str, Any], number: int) -> Reply:
    """Return the reply to one request.

    Raises:
        Wrong: the cloud refuses it.
    """
    found = _PATH.fullmatch(route.removeprefix("POST "))
    verb = found and (found["verb"] or found["predict"])
    if found is None or verb not in _VERBS:
        raise Wrong("The requested operation is not recognized by the service.", code="not_found")
    if _MODEL not in unquote(found["model"] or found["vertex"]):
        raise Wrong("The provided model identifier is invalid.")
    if verb.startswith("converse"):
        asked = _from_converse(body)
    else:
        asked = dict(body)
        cloud = "vertex" if found["vertex"] else "bedrock"
        if asked.pop("anthropic_version", None) not in (_VERSIONS[cloud], _DATED):
            raise Wrong("anthropic_version: Field required")
        asked.pop("anthropic_beta", None)
        if found["vertex"] and (verb == "streamRawPredict") != bool(asked.pop("stream", False)):
            raise Wrong("stream: must be true for streamRawPredict alone")
        if extra := {"model", "stream"} & asked.keys():
            raise Wrong(f"{min(extra)}: Extra inputs are not permitted")
    asked["model"] = _MODEL
    turn = messages.read({**asked, "max_tokens": asked.get("max_tokens", 4096)}, beta=True)
    return _VERBS[verb](messages.complete({"max_tokens": 4096, **asked}, turn, number))


def _from_converse(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the Messages API that asks for the same."""
    if extra := body.keys() - _CONVERSE:
        raise Wrong(f"{min(extra)}: not permitted")
    config = body.get("inferenceConfig", {})
    asked = {"max_tokens": config.get("maxTokens", 4096), "messages": [
        {"role": message["role"], "content": [_block(block) for block in message["content"]]}
        for message in body["messages"]
    ]}  # fmt: skip
    if "system" in body:
        asked["system"] = [{"type": "text", "text": each["text"]} for each in body["system"]]
    if "toolConfig" in body:
        specs = [tool["toolSpec"] for tool in body["toolConfig"]["tools"]]
        asked["tools"] = [{"name": spec["name"], "input_schema": spec["inputSchema"]["json"]}
                          for spec in specs]  # fmt: skip
    return asked


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if "toolUse" in block:
        call = block["toolUse"]
        return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"],
                "input": call["input"]}  # fmt: skip
    if "toolResult" in block:
        result = block["toolResult"]
        return {"type": "tool_result", "tool_use_id": result["toolUseId"],
                "content": [_block(part) for part in result["content"]]}  # fmt: skip
    return {"type": "text", "text": block["text"]}


def _converse_block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"],
                            "input": block["input"]}}  # fmt: skip
    return {"text": block["text"]}


def _usage(answer: dict[str, Any]) -> dict[str, int]:
    read, made = answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]
    return {"inputTokens": read, "outputTokens": made, "totalTokens": read + made}


def _converse(answer: dict[str, Any]) -> Reply:
    content = [_converse_block(block) for block in answer["content"]]
    return whole("anthropic", {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": answer["stop_reason"], "usage": _usage(answer),
        "metrics": {"latencyMs": 12},
    })  # fmt: skip


def _converse_stream(answer: dict[str, Any]) -> Reply:
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for at, block in enumerate(map(_converse_block, answer["content"])):
        delta = block
        if "toolUse" in block:
            call = block["toolUse"]
            start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
            events.append(("contentBlockStart", {"contentBlockIndex": at, "start": start}))
            delta = {"toolUse": {"input": json.dumps(call["input"])}}
        events.append(("contentBlockDelta", {"contentBlockIndex": at, "delta": delta}))
        events.append(("contentBlockStop", {"contentBlockIndex": at}))
    events.append(("messageStop", {"stopReason": answer["stop_reason"]}))
    events.append(("metadata", {"usage": _usage(answer), "metrics": {"latencyMs": 12}}))
    return _frames(_frame(name, event) for name, event in events)


def _invoke_stream(answer: dict[str, Any]) -> Reply:
    texts = [event.partition(b"data: ")[2].strip() for event in messages.events(answer)]
    return _frames(_frame("chunk", {"bytes": base64.b64encode(text).decode()})
                   for text in texts)  # fmt: skip


def _frames(frames: Iterable[bytes]) -> Reply:
    return Reply(200, "application/vnd.amazon.eventstream", list(frames))


def _frame(name: str, event: dict[str, Any]) -> bytes:
    """Return an event in a frame of Amazon's event stream, with both checksums."""
    pairs = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in pairs.items()
    )
    payload = json.dumps(event, ensure_ascii=False).encode()
    head = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    wire = head + struct.pack(">I", zlib.crc32(head)) + headers + payload
    return wire + struct.pack(">I", zlib.crc32(wire))


def _whole(answer: dict[str, Any]) -> Reply:
    return whole("anthropic", answer)


_VERBS = {
    "invoke": _whole,
    "invoke-with-response-stream": _invoke_stream,
    "converse": _converse,
    "converse-stream": _converse_stream,
    "rawPredict": _whole,
    "streamRawPredict": lambda answer: stream(messages.events(answer)),
}
