"""What the ordered upstream answers: directives read, replies made in both dialects."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BadRequestError", "Dialect", "Reply", "count_tokens", "make_reply", "read_body",
           "read_orders", "refuse", "whole"]  # fmt: skip

Dialect = Literal["openai", "anthropic"]
_Json = dict[str, Any]

_NUMBER, _COUNT, _NAME, _FLAG = r"\d+(?:\.\d+)?", r"\d+", r"[^\s,\]]+", ""
_VALUES = {  # what each key of a directive takes
    **dict.fromkeys(("delay", "slow", "retry_after"), _NUMBER),
    **dict.fromkeys(("cut", "tokens", "cached"), _COUNT),
    **dict.fromkeys(("parallel", "fail_first"), _COUNT),
    **dict.fromkeys(("key", "tag"), _NAME),
    **dict.fromkeys(("hang", "once", "thinking"), _FLAG),
    "garbage": "json|html|empty|truncated|wrong_shape|invalid_utf8|huge_usage|negative_usage",
    "status": r"[45]\d\d",
    "usage": "none",
    "tool": r"[\w-]+",
}
_WILD_USAGE = {"huge_usage": (10**18, 10**20), "negative_usage": (-5, -7)}
_WRONG = {"json": b'{"id": nothing, ', "wrong_shape": b'{"answer": [1, 2, 3]}'}
_ERRORS = {"openai": {429: "requests", 500: "server_error"},
           "anthropic": {402: "billing_error", 404: "not_found_error", 413: "request_too_large",
                         429: "rate_limit_error", 500: "api_error", 504: "timeout_error",
                         529: "overloaded_error"}}  # fmt: skip


class BadRequestError(Exception):
    """A body or a directive that no client may send: answered with 400."""


@dataclass(frozen=True)
class Reply:
    """``length``: the Content-Length, None: chunked; ``cut``: chunks before the socket closes."""

    chunks: list[bytes]
    status: int = 200
    kind: str = "application/json"
    length: int | None = None
    cut: int | None = None


def read_body(dialect: Dialect, raw: bytes) -> _Json:
    """A request's body with what an answer needs. Raises :class:`BadRequestError`."""
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the body is no JSON") from error
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(turn, dict) for turn in messages):
        raise BadRequestError("messages: a list of objects is needed")
    if not isinstance(body.get("model"), str):
        raise BadRequestError("model: a string is needed")
    return dict(body)


def _scan(text: str, at: int, end: str) -> tuple[_Json, int]:
    """The orders from ``at`` to ``end`` (empty: the text's end), and where they stop."""
    orders: _Json = {}
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]
        if text.startswith(end, at) if end else at == len(text):
            return orders, at + len(end)
        found = re.compile(r"([a-z_]+)(=?)").match(text, at)
        if not found or (key := found[1]) not in _VALUES or key in orders:
            raise BadRequestError(f"directive: unknown, repeated or unclosed: {text[at:][:20]!r}")
        pattern = _VALUES[key]
        value = re.compile(f"(?:{pattern})(?=[\\s,\\]:]|$)").match(text, found.end())
        if value is None or bool(found[2]) == (pattern == _FLAG):
            raise BadRequestError(f"directive: no or no good value of {key}")
        at, orders[key] = value.end(), value[0] or True
        if pattern == _NUMBER:
            orders[key] = float(value[0])
        elif pattern == _COUNT or key == "status":
            orders[key] = int(value[0])
        elif key == "tool":
            orders[key] = (value[0], {})
            if text.startswith(":", at):
                try:
                    arguments, at = json.JSONDecoder().raw_decode(text, at + 1)
                except ValueError as error:
                    raise BadRequestError("directive: the tool's arguments are no JSON") from error
                orders[key] = (value[0], arguments)


def _texts(content: Any, *, results: bool = True) -> Iterator[str]:
    """Every text in a content; those of tool results when asked."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part, results=results)
    elif isinstance(content, dict):
        yield from _texts(content.get("text"))
        yield from _texts(content.get("content")) if results else ()


def read_orders(body: _Json) -> tuple[str, _Json]:
    """The last user text; the orders in the model's name and, above these, in that text."""
    text, fresh = "", False
    for message in reversed(body["messages"]):
        texts = list(_texts(message.get("content"), results=False))
        if message.get("role") == "user" and texts:
            text, fresh = "\n".join(texts), message is body["messages"][-1]
            break
    orders, at = _scan(body["model"].partition("@")[2], 0, "")[0], 0
    while (at := text.find("[[", at)) >= 0:
        more, at = _scan(text, at + 2, "]]")
        orders |= more
    if "fail_first" in orders and "key" not in orders:
        raise BadRequestError("directive: fail_first needs a key")
    if not fresh:  # the tool was called for this text already: now a model answers its result
        orders.pop("tool", None)
    return text, orders


def count_tokens(body: _Json) -> int:
    """A quarter of the characters of all text in ``system`` and ``messages``, rounded up."""
    contents = [body.get("system"), [message.get("content") for message in body["messages"]]]
    return math.ceil(sum(map(len, _texts(contents))) / 4)


def whole(body: Any, orders: _Json, **more: Any) -> Reply:
    """A reply of known length in two halves: of bytes, or of anything as JSON."""
    raw = body if isinstance(body, bytes) else _dump(body, orders)
    cut, half = 1 if "cut" in orders else None, len(raw) // 2
    return Reply([raw[:half], raw[half:]], length=len(raw), cut=cut, **more)


def _dump(value: Any, orders: _Json) -> bytes:
    # A lone surrogate gives bytes that are no UTF-8: what `garbage=invalid_utf8` sends.
    way = "surrogatepass" if orders.get("garbage") == "invalid_utf8" else "replace"
    return json.dumps(value, ensure_ascii=False).encode("utf-8", way)


def refuse(dialect: Dialect, status: int, message: str, orders: _Json) -> Reply:
    usual = {401: "authentication_error", 403: "permission_error"} | _ERRORS[dialect]
    kind = usual.get(status, "invalid_request_error" if status < 500 else usual[500])
    error = {"type": kind, "message": message}
    if dialect == "anthropic":
        return whole({"type": "error", "error": error}, orders, status=status)
    code = "rate_limit_exceeded" if status == 429 else None
    return whole({"error": {**error, "param": None, "code": code}}, orders, status=status)


def make_reply(dialect: Dialect, body: _Json, text: str, orders: _Json, n: int) -> Reply:
    """The reply to the ``n``-th request, misbehaving as ordered."""
    garbage, stream, openai = orders.get("garbage"), body.get("stream") is True, dialect == "openai"
    wrong = _WRONG.get(garbage or "")
    if garbage == "html":
        return whole(b"<html><h1>502 Bad Gateway</h1></html>", orders, kind="text/html")
    blocks = _blocks(text, orders, n)
    usage = {} if "usage" in orders else {"usage": _usage(openai, body, blocks, orders)}
    reasons = ("tool_calls", "tool_use") if "tool" in orders else ("stop", "end_turn")
    reason = reasons[not openai]
    events = (_chat if openai else _message)(body, blocks, usage, reason, n)
    if not stream:
        raw = wrong or _dump(events[0], orders)
        parts = {"empty": b"", "truncated": raw[: len(raw) // 2]}
        return whole(parts.get(garbage or "", raw), orders)
    heads = [b"" if openai else b"event: %b\n" % event["type"].encode() for event in events]
    datas = [_dump(event, orders) for event in events]
    middle = len(datas) // 2
    datas[middle] = wrong or datas[middle]
    chunks = [head + b"data: " + data + b"\n\n" for head, data in zip(heads, datas, strict=True)]
    chunks += [b"data: [DONE]\n\n"] if openai else []
    half = {"empty": 0, "truncated": len(chunks) // 2}.get(garbage or "", len(chunks))
    chunks = chunks[:half] + ([chunks[half][:-9]] if garbage == "truncated" else [])
    # A cut falls behind the N-th word, whatever opens a block in between.
    ends = [i for i, event in enumerate(events) if _is_word(event)]
    after = dict(enumerate([*ends[:1], *(i + 1 for i in ends)]))
    return Reply(chunks, kind="text/event-stream", cut=after.get(orders.get("cut", -1)))


def _is_word(event: _Json) -> bool:
    deltas = [choice["delta"] for choice in event.get("choices", ())]
    return event.get("type") == "content_block_delta" or any(d and "role" not in d for d in deltas)


def _blocks(asked: str, orders: _Json, n: int) -> list[_Json]:
    text = f"You said: {asked[:200]}"
    if "tokens" in orders:
        text = " ".join(["word"] * orders["tokens"])
    thought = {"type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmVk"}
    calls = [orders["tool"]] * orders.get("parallel", 1) if "tool" in orders else []
    text = ("\ud800" if orders.get("garbage") == "invalid_utf8" else "") + ("" if calls else text)
    return [
        *([thought] if "thinking" in orders else []),
        *([{"type": "text", "text": text}] if text or not calls else []),
        *({"type": "tool_use", "id": f"call_{n}_{i}", "name": name, "input": given}
          for i, (name, given) in enumerate(calls)),
    ]  # fmt: skip


def _words(block: _Json) -> list[str]:
    kind = block["type"]
    text = json.dumps(block["input"]) if kind == "tool_use" else block[kind]
    return re.findall(r"\s*\S+(?:\s+$)?|\s+", text)


def _usage(openai: bool, body: _Json, blocks: list[_Json], orders: _Json) -> _Json:
    cached = orders.get("cached", 0)
    made = sum(bool(word.strip()) for block in blocks for word in _words(block))
    given = max(count_tokens(body), cached)
    given, made = _WILD_USAGE.get(orders.get("garbage", ""), (given, made))
    if openai:
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    # In this dialect what came from the cache is no part of input_tokens.
    return {"input_tokens": given - cached, "output_tokens": made,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
            "output_tokens_details": {"thinking_tokens": 0}}  # fmt: skip


def _chat(body: _Json, blocks: list[_Json], usage: _Json, reason: str, n: int) -> list[_Json]:
    base = {"id": f"chatcmpl-{n}", "created": 1_700_000_000 + n, "model": body["model"]}
    turn: _Json = {"role": "assistant", "content": None}
    deltas: list[_Json] = [{**turn, "content": ""}]
    for block in blocks:
        words, calls = _words(block), turn.get("tool_calls", [])
        if block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": "".join(words)}
            call = {"id": block["id"], "type": "function", "function": function}
            parts: list[_Json] = [{**call, "function": {**function, "arguments": ""}}]
            parts += [{"function": {"arguments": word}} for word in words]
            deltas += [{"tool_calls": [{"index": len(calls), **part}]} for part in parts]
            turn["tool_calls"] = [*calls, call]
        else:
            key = "content" if block["type"] == "text" else "reasoning_content"
            turn[key] = "".join(words)
            deltas += [{key: word} for word in words]
    ended = {"index": 0, "finish_reason": reason}
    if body.get("stream") is not True:
        choices = [{**ended, "message": turn}]
        return [{**base, "object": "chat.completion", "choices": choices, **usage}]
    counted = usage and (body.get("stream_options") or {}).get("include_usage") is True
    base |= {"object": "chat.completion.chunk"} | ({"usage": None} if counted else {})
    opened = {**ended, "finish_reason": None}
    events = [{**base, "choices": [{**opened, "delta": delta}]} for delta in deltas]
    events.append({**base, "choices": [{**ended, "delta": {}}]})
    return events + ([{**base, "choices": [], **usage}] if counted else [])


def _message(body: _Json, blocks: list[_Json], usage: _Json, reason: str, n: int) -> list[_Json]:
    base = {"id": f"msg_{n}", "type": "message", "role": "assistant", "model": body["model"]}
    ended = {"stop_reason": reason, "stop_sequence": None}
    if body.get("stream") is not True:
        return [{**base, "content": blocks, **ended, **usage}]
    first = {"usage": {**usage["usage"], "output_tokens": 1}} if usage else {}
    opened = {**base, "content": [], "stop_reason": None, "stop_sequence": None, **first}
    events: list[_Json] = [{"type": "message_start", "message": opened}]
    for i, block in enumerate(blocks):
        kind = block["type"]
        empty: _Json = {"input": {}} if kind == "tool_use" else {kind: ""}
        name, key = ("input_json", "partial_json") if kind == "tool_use" else (kind, kind)
        deltas = [{"type": f"{name}_delta", key: word} for word in _words(block)]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            empty["signature"] = ""
        events.append({"type": "content_block_start", "content_block": {**block, **empty}})
        events += [{"type": "content_block_delta", "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop"})
        events[-len(deltas) - 2 :] = [{**e, "index": i} for e in events[-len(deltas) - 2 :]]
    return [*events, {"type": "message_delta", "delta": ended, **usage}, {"type": "message_stop"}]
