"""A conversation that changes its provider and falls back in the middle, with thoughts and tools.

The providers refuse what the real ones refuse: seals, ids, lengths, fields and an order of messages
of another's making. ``_TABLE`` holds the numbers of adapted calls in each conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import pytest

from tests.server.running import Served, new_session
from tests.support import wire
from tests.support.raw_provider import RawProvider, replying, whole

_MODELS = {
    "claude": "anthropic/claude-haiku-4-5",
    "openai": "openai/gpt-5-mini",
    "gemini": "gemini/gemini-3-flash-preview",
    "mistral": "mistral/devstral-2512",
}
_DOWN = "-down-for-"  # in the name of a model whose provider answers 503
_FALLBACKS = "\n".join(
    f'"{_MODELS[first]}{_DOWN}{second}" = ["{_MODELS[second]}"]'
    for first, second in permutations(_MODELS, 2)
)
TOML = f"""
[gateway]
max_retries = 1
retry_base_ms = 1
retry_max_ms = 1
failure_threshold = 1000
[gateway.fallbacks]
{_FALLBACKS}
[providers.gemini]
kind = "openai"
base_url = "{{url}}/gemini/v1"
api_key = "k"
default_model = "gemini-3-flash-preview"
[providers.mistral]
kind = "openai"
base_url = "{{url}}/mistral/v1"
api_key = "k"
default_model = "devstral-2512"
"""
_DIALECTS = ("chat", "messages", "responses")  # the columns of the table
# 8+4: of 12 calls, 8 are translated into another dialect, and 4 adapted within the client's own.
_TABLE = {
    ("first", "second"): ("Chat Completions", "Messages API", "Responses"),
    ("claude", "openai"): ("8+0", "4+5", "8+4"),
    ("claude", "gemini"): ("8+4", "4+5", "12+0"),
    ("claude", "mistral"): ("8+4", "4+2", "12+0"),
    ("openai", "claude"): ("4+0", "8+4", "4+5"),
    ("openai", "gemini"): ("0+9", "12+0", "4+5"),
    ("openai", "mistral"): ("0+4", "12+0", "4+0"),
    ("gemini", "claude"): ("4+5", "8+4", "12+0"),
    ("gemini", "openai"): ("0+9", "12+0", "8+4"),
    ("gemini", "mistral"): ("0+9", "12+0", "12+0"),
    ("mistral", "claude"): ("4+5", "8+2", "12+0"),
    ("mistral", "openai"): ("0+5", "12+0", "8+0"),
    ("mistral", "gemini"): ("0+9", "12+0", "12+0"),
}
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
_RESULT = "a tree"
_CHAT_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name", "refusal", "annotations"}
_OF_OTHERS = {"reasoning_details"}


class RefusedError(Exception):
    """What a provider answers 400 to."""


def _require(condition: Any, said: str) -> None:
    if not condition:
        raise RefusedError(said)


def _calls(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        yield from message.get("tool_calls") or ()


def _claude(body: dict[str, Any]) -> None:
    open_calls: set[str] = set()
    for message in body["messages"]:
        content = message["content"]
        _require(content, "messages: text content blocks must be non-empty")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        _require(results == open_calls, "`tool_use` ids were found without `tool_result` blocks")
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        for block in blocks:
            if block["type"] == "thinking":
                _require(block["signature"] == "ANT-SIG", "Invalid `signature` in `thinking` block")
            if block["type"] == "text":
                _require(block["text"].strip(), "text content blocks must contain non-whitespace")
            for name in ("id", "tool_use_id"):
                _require(re.fullmatch("[a-zA-Z0-9_-]+", block.get(name, "x")), "tool_use.id")
            if block["type"] == "tool_use":
                _require(type(block["input"]) is dict, "tool_use.input")
    if body.get("thinking", {}).get("type") == "enabled" and results:
        first = body["messages"][-2]["content"][0]["type"]
        _require(first == "thinking", f"Expected `thinking`, but found `{first}`")


def _chat_order(body: dict[str, Any]) -> None:
    """Require a result for each call of a message, directly after it."""
    missing: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            _require(message["tool_call_id"] in missing, "'tool' must follow 'tool_calls'")
            missing.remove(message["tool_call_id"])
        else:
            _require(not missing, f"tool_call_ids did not have response messages: {missing}")
            missing = [call["id"] for call in message.get("tool_calls") or ()]


def _openai_chat(body: dict[str, Any]) -> None:
    _chat_order(body)
    for message in body["messages"]:
        _require(not message.keys() & _OF_OTHERS, f"Unrecognized field: {sorted(message)}")
        _require(len(message.get("tool_call_id", "")) <= 64, "string too long")
    for call in _calls(body):
        _require(call.keys() == {"id", "type", "function"}, f"Unrecognized field: {sorted(call)}")
        _require(len(call["id"]) <= 64, "string too long")


def _openai_responses(body: dict[str, Any]) -> None:
    begins = {"reasoning": "rs", "function_call": "fc", "message": "msg"}
    calls = {item["call_id"] for item in body["input"] if item.get("type") == "function_call"}
    for item, following in zip(body["input"], [*body["input"][1:], {}], strict=True):
        kind = item.get("type")
        if kind == "reasoning":
            _require(item.get("encrypted_content") == "OAI-SEAL", "invalid_encrypted_content")
            _require(following.get("type") in ("reasoning", "message", "function_call")
                     and following.get("role") != "user",
                     "'reasoning' was provided without its required following item")  # fmt: skip
        if kind == "function_call_output":
            _require(item["call_id"] in calls, "No tool call found for function call output")
        if "id" in item:
            _require(item["id"].startswith(begins.get(kind, "")), f"Expected an ID of a {kind}")
        _require(len(item.get("id", "")) <= 64, "string too long")
        _require(len(item.get("call_id", "")) <= 64, "string too long")


def _gemini(body: dict[str, Any]) -> None:
    """Refuse calls as Gemini 3 does.

    Each step of the current turn needs a signature on its first call; for calls of other models
    Google names a text that is taken instead.
    """
    _chat_order(body)
    turn = max(at for at, each in enumerate(body["messages"]) if each["role"] == "user")
    for at, message in enumerate(body["messages"]):
        for number, call in enumerate(message.get("tool_calls") or ()):
            google = (call.get("extra_content") or {}).get("google", {})
            signature = google.get("thought_signature")
            own = call["id"].startswith("gem_")
            required = own or (at > turn and number == 0)
            _require(signature or not required, "Function call is missing a thought_signature")
            allowed = ("GEM-SIG",) if own else (None, "skip_thought_signature_validator")
            _require(signature in allowed, "Invalid thought_signature")


def _mistral(body: dict[str, Any]) -> None:
    _chat_order(body)
    for message in body["messages"]:
        _require(message.keys() <= _CHAT_MESSAGE, f"Extra inputs are not permitted: {message}")
        if message["role"] == "tool":
            _require(re.fullmatch("[a-zA-Z0-9]{9}", message["tool_call_id"]), "tool_call_id")
    for call in _calls(body):
        _require(re.fullmatch("[a-zA-Z0-9]{9}", call["id"]), "a-z, A-Z, 0-9, with a length of 9")
        _require(call.keys() == {"id", "type", "function"}, f"Extra inputs: {sorted(call)}")
        _require(type(json.loads(call["function"]["arguments"])) is dict, "arguments")


def _chat_answer(identity: str, asked: bool, more: dict[str, Any], thought: str) -> dict[str, Any]:
    if not asked:
        return wire.completion("done")
    call = {**wire.function_call("look", '{"path":"a"}', identity), **more}
    answer = wire.completion(calls=[call])
    if thought:
        answer["choices"][0]["message"]["reasoning_content"] = thought
    return answer


def _claude_answer(asked: bool) -> dict[str, Any]:
    if not asked:
        return wire.message("done")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "ANT-SIG"}
    return wire.message(
        thought, wire.tool_use("look", {"path": "a"}, "toolu_01A09q90qw90lq917835lq9")
    )


def _responses_answer(asked: bool) -> dict[str, Any]:
    if not asked:
        return wire.response("done")
    return wire.response(
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "OAI-SEAL"},
        {"id": "fc_1", "type": "function_call", "status": "completed", "name": "look",
         "call_id": "call_" + "x" * 24, "arguments": '{"path":"a"}'},
    )  # fmt: skip


def _answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    # Images of a result may follow it in a message of their own.
    asked = _RESULT not in json.dumps((body.get("messages") or body.get("input"))[-2:])
    if path.endswith("/messages"):
        _claude(body)
        return _claude_answer(asked)
    if path.endswith("/responses"):
        _openai_responses(body)
        return _responses_answer(asked)
    if path.startswith("/gemini"):
        _gemini(body)
        signature = {"extra_content": {"google": {"thought_signature": "GEM-SIG"}}}
        return _chat_answer("gem_1", asked, signature, "")
    if path.startswith("/mistral"):
        _mistral(body)
        return _chat_answer("Ab3dEf6h9", asked, {}, "")
    _openai_chat(body)
    return _chat_answer("call_1", asked, {}, "Well.")


def _answered(path: str, raw: bytes) -> bytes:
    if not raw:
        return whole(b'{"object":"list","data":[]}')
    if path.endswith("/responses") and path.startswith(("/gemini", "/mistral")):
        return whole(b'{"error":"no such path"}', status="404 Not Found")
    if _DOWN.encode() in raw:
        said = b'{"error":{"message":"overloaded","type":"server_error"}}'
        return whole(said, status="503 Service Unavailable")
    try:
        return whole(json.dumps(_answer(path, json.loads(raw))).encode())
    except (RefusedError, LookupError, TypeError, AttributeError) as refused:
        error = {"error": {"message": str(refused), "type": "invalid_request_error"}}
        return whole(json.dumps(error).encode(), status="400 Bad Request")


ANSWER = replying(_answered)
BEFORE = "provider"


class Client:
    """One client of a dialect, who keeps what was answered as it came."""

    def __init__(self, served: Served, dialect: str) -> None:
        self._served = served
        self._dialect = dialect
        self._session = new_session()
        self.said: list[Any] = []
        self.answered = 0  # calls
        self.fallbacks = 0

    def _ask(self, model: str) -> dict[str, Any]:
        path, body = {
            "chat": ("/v1/chat/completions", {
                "messages": self.said, "reasoning_effort": "low",
                "tools": [{"type": "function",
                           "function": {"name": "look", "parameters": _SCHEMA}}],
            }),
            "messages": ("/v1/messages", {
                "max_tokens": 3000, "messages": self.said,
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "tools": [{"name": "look", "input_schema": _SCHEMA}],
            }),
            "responses": ("/v1/responses", {
                "input": self.said, "store": False, "include": ["reasoning.encrypted_content"],
                "tools": [{"type": "function", "name": "look", "parameters": _SCHEMA}],
                "reasoning": {"effort": "low"},
            }),
        }[self._dialect]  # fmt: skip
        status, raw, headers = self._served.ask(
            "POST", path, {"model": model, **body}, headers={"x-remit-session": self._session}
        )
        assert status == 200, (self._dialect, model, raw)
        self.answered += 1
        self.fallbacks += _DOWN in headers.get("x-remit-fallback-from", "")
        answered: dict[str, Any] = json.loads(raw)
        return answered

    def changes(self) -> str:
        """Return how many answered calls Remit translated, and adapted otherwise."""
        entries = self._served.entries("EXCHANGE", self._session)
        paths = [
            {change["path"] for change in each.metadata.get("changed", ())}
            for each in entries if each.metadata["outcome"] == "success"
        ]  # fmt: skip
        translated = sum("" in changed for changed in paths)
        adapted = sum("" not in changed and changed > {"/model"} for changed in paths)
        return f"{translated}+{adapted}"

    def turn(self, asked: str, answering: str) -> None:
        """Have one model call a tool, and another answer to what the tool gave."""
        self.said.append({"role": "user", "content": "look"})
        self._keep(self._ask(_MODELS.get(asked, asked)))
        self._keep(self._ask(_MODELS.get(answering, answering)))

    def _keep(self, answer: dict[str, Any]) -> None:
        if self._dialect == "chat":
            message = answer["choices"][0]["message"]
            self.said.append(message)
            for call in message.get("tool_calls") or ():
                self.said.append({"role": "tool", "tool_call_id": call["id"], "content": _RESULT})
        elif self._dialect == "messages":
            self.said.append({"role": "assistant", "content": answer["content"]})
            given = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": _RESULT}
                for block in answer["content"] if block["type"] == "tool_use"
            ]  # fmt: skip
            if given:
                self.said.append({"role": "user", "content": given})
        else:
            self.said += answer["output"]
            for item in answer["output"]:
                if item["type"] == "function_call":
                    self.said.append({"type": "function_call_output", "call_id": item["call_id"],
                                      "output": _RESULT})  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "dialect"),
    [(*pair, dialect) for pair, dialect in
     product(permutations(_MODELS, 2), _DIALECTS)],
)  # fmt: skip
def test_a_change_of_the_provider(served: Served, first: str, second: str, dialect: str) -> None:
    client = Client(served, dialect)
    down = f"{_MODELS[first]}{_DOWN}{second}"
    client.turn(first, first)
    client.turn(first, second)  # in the midst of a round of tools
    client.turn(second, first)
    client.turn(first, down)  # the model fails in the midst of its round: the second answers
    client.turn(down, first)  # the second calls the tool, the first answers
    client.turn(first, first)  # which gets back what it sealed itself
    assert (client.answered, client.fallbacks) == (12, 2)
    assert client.changes() == _TABLE[first, second][_DIALECTS.index(dialect)]


def test_a_client_may_lose_googles_signatures(served: Served) -> None:
    client = Client(served, "chat")
    client.turn("gemini", "gemini")
    text = json.dumps(client.said).replace("gem_1", "call_1").replace("extra_content", "x_lost")
    client.said = json.loads(text)
    client.turn("gemini", "gemini")


@pytest.mark.parametrize(
    "last", ["x", 7, None, [], {}, {"role": "user", "content": [1, "x", None]}]
)
@pytest.mark.parametrize("said", [None, "x", [[]], [{"type": "thinking", "thinking": "t"}, 3]])
def test_turns_of_any_form_are_fitted_or_passed_on(served: Served, last: Any, said: Any) -> None:
    unsigned = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}]}
    turns = [{"role": "user", "content": "x"}, unsigned, {"role": "assistant", "content": said}]
    body = {
        "model": _MODELS["claude"], "max_tokens": 2000, "messages": [*turns, last],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/messages", body)
    assert status < 500 or b"internal_error" not in raw, raw


_PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
_PLACES = {
    "anthropic/claude-haiku-4-5": "iVBORw0KGgo",
    "gemini/gemini-3-flash-preview": "data:image/png;base64,iVBORw0KGgo",
    "openai/gpt-5-mini": "data:image/png;base64,iVBORw0KGgo",
}


@pytest.mark.parametrize("model", _PLACES)
def test_images_of_messages_and_of_tools(served: Served, provider: RawProvider, model: str) -> None:
    image = {"type": "input_image", "image_url": _PNG}
    given = [{"type": "input_text", "text": _RESULT}, image]
    said = [
        {"role": "user", "content": [{"type": "input_text", "text": "look"}, image]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": given},
    ]
    tools = [{"type": "function", "name": "look", "parameters": _SCHEMA}]
    body = {"model": model, "input": said, "store": False, "tools": tools}
    status, raw, _ = served.ask("POST", "/v1/responses", body)
    assert status == 200, raw
    assert json.loads(raw)["output"][-1]["content"][0]["text"] == "done"
    assert provider.seen[-1][1].decode().count(_PLACES[model]) == 2
