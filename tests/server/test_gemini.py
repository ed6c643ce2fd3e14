"""Gemini's paths over the wire: to a provider of Gemini, and translated to and from others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from tests.server.running import Served, new_session
from tests.support.raw_provider import RawProvider, replying, whole
from tests.support.wire import completion, completion_stream

_EVENTS = "text/event-stream"
_MODEL = "gemini-2.5-flash"
_CONTENTS: list[Any] = [{"role": "user", "parts": [{"text": "hi"}]}]
_USAGE = {"promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 5,
          "cachedContentTokenCount": 40, "totalTokenCount": 125}  # fmt: skip
_NANO = 60 * 300 + 40 * 30 + 25 * 2500
"""Nano-dollars of that usage: what is not cached, what is, and what was written."""
_PARTS = [
    {"text": "Let me look.", "thought": True},
    {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2lnbmVk"},
]
_TOOLS = [{"functionDeclarations": [{"name": "look", "parameters": {
    "type": "OBJECT", "properties": {"at": {"type": "INTEGER"}}}}]}]  # fmt: skip
_TOP = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig",
        "safetySettings", "serviceTier", "service_tier", "generationConfig", "generation_config",
        "cachedContent", "content",
        "requests", "taskType", "outputDimensionality"}  # fmt: skip
BEFORE = "provider"
TOML = """
[providers.gemini]
kind = "gemini"
base_url = "{url}/v1beta"
api_key = "AIza-upstream-key"
default_model = "gemini-2.5-flash"
"""


def _answer(*parts: dict[str, Any], reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": [*parts], "role": "model"}, **more}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": _MODEL,
            "responseId": "r1"}  # fmt: skip


def _stream(*events: Any) -> bytes:
    wire = b"".join(b"data: %b\r\n\r\n" % json.dumps(event).encode() for event in events)
    return whole(wire, _EVENTS)


_MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
    "content": [{"type": "thinking", "thinking": "I look.", "signature": "Eg" + "A" * 60},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}],
    "stop_reason": "tool_use", "usage": {"input_tokens": 9, "output_tokens": 4},
}  # fmt: skip
_CASES = {
    "plain": _answer({"text": "Hello"}),
    "tools": _answer(*_PARTS),
    "blocked": {"promptFeedback": {"blockReason": "SAFETY"},
                "usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 100}},
    "safety": {"candidates": [{"finishReason": "SAFETY", "index": 0}], "usageMetadata": _USAGE},
    "empty": _answer(),
    "heard": {**_answer({"text": "x"}), "usageMetadata": {
        "promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10},
                                {"modality": "AUDIO", "tokenCount": 990}]}},
    "odd details": {**_answer({"text": "x"}), "usageMetadata": {
        "promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": "990"}]}},
    "flex": {**_answer({"text": "x"}), "usageMetadata": {**_USAGE, "serviceTier": "flex"}},
    "searched": _answer({"text": "x"}, groundingMetadata={"webSearchQueries": ["a", "b"]}),
    "two": {**_answer({"text": "one"}), "candidates": [
        {**_answer({"text": text})["candidates"][0], "index": index}
        for index, text in enumerate(("one", "two"))]},
}  # fmt: skip


_LATE = [
    {**_answer({"text": "one"}), "usageMetadata": {"promptTokenCount": 10,
     "candidatesTokenCount": made, "totalTokenCount": 10 + made}}
    for made in (5, 5000)
]  # fmt: skip
_TWO = [{**_CASES["two"], "candidates": [one]} for one in _CASES["two"]["candidates"]]


def _answered(path: str, raw: bytes) -> bytes:
    if path.startswith("/v1beta/"):
        return _gemini(path, json.loads(raw) if raw else {})
    if path.endswith("/messages"):
        return whole(json.dumps(_MESSAGE).encode())
    if path.endswith("/chat/completions"):
        return whole(b"".join(completion_stream(completion("Good day")).chunks), _EVENTS)
    return whole(b'{"object":"list","data":[]}')


ANSWER = replying(_answered)


def _gemini(path: str, body: dict[str, Any]) -> bytes:
    """Answer as Gemini does, which refuses members that it does not know."""
    if path.startswith("/v1beta/models?"):
        listed = {"models": [{"name": f"models/{_MODEL}", "inputTokenLimit": 1048576}]}
        return whole(json.dumps(listed).encode())
    verb = path.partition(":")[2].partition("?")[0]
    if not body.keys() <= _TOP:
        said = {"error": {"code": 400, "message": "Unknown name", "status": "INVALID_ARGUMENT"}}
        return whole(json.dumps(said).encode(), status="400 Bad Request")
    if verb == "countTokens":
        return whole(b'{"totalTokens": 7}')
    if verb == "embedContent":
        return whole(b'{"embedding": {"values": [0.5]}}')
    case = body["contents"][-1]["parts"][-1].get("text", "plain")
    if verb == "generateContent":
        return whole(json.dumps(_CASES.get(case, _CASES["plain"]), indent=2).encode())
    if case == "tools":
        return _stream(_answer(_PARTS[0], reason=None), _answer(_PARTS[1]))
    if case == "blocked":
        return _stream(_CASES["blocked"])
    if case == "two":
        return _stream(*_TWO)
    if case == "late":
        return _stream(*_LATE)
    if case == "cut":
        return _stream(_answer({"text": "Hel"}, reason=None))
    return _stream(_answer({"text": "Hel"}, reason=None), _answer({"text": "lo"}))


def _ask(
    served: Served, verb: str, body: Any, *, model: str = f"gemini/{_MODEL}", **more: Any
) -> tuple[int, bytes, Any, str]:
    session = new_session()
    path = f"/v1beta/models/{model}:{verb}"
    headers = {"x-remit-session": session, **more.pop("headers", {})}
    return *served.ask("POST", path, body, headers=headers, **more), session


def _last(provider: RawProvider) -> tuple[str, bytes]:
    return provider.seen[-1]


def _refused(
    served: Served, provider: RawProvider, status: int, body: Any, **more: Any
) -> dict[str, Any]:
    """The details of the refusal of a call that does not reach the provider."""
    before = len(provider.seen)
    found, raw, _, _ = _ask(served, "generateContent", body, **more)
    error: dict[str, Any] = json.loads(raw)["error"]
    assert (found, len(provider.seen)) == (status, before), raw
    return {"status": error["status"], **error["details"][0]}


def test_bytes_pass_unchanged_at_their_price(served: Served, provider: RawProvider) -> None:
    body = b'{ "contents" : [{"parts":[{"text":"plain"}]}],\n "generation_config":{"topP":1.0} }'
    status, raw, headers, session = _ask(served, "generateContent", body)
    assert (status, raw) == (200, json.dumps(_CASES["plain"], indent=2).encode())
    assert _last(provider) == (f"/v1beta/models/{_MODEL}:generateContent", body)
    assert headers["x-remit-cost-usd"] == f"{_NANO / 1e9:.9f}"
    recorded = served.exchange(session).metadata
    assert recorded["wire"] == "gemini.generate"
    assert (recorded["input_tokens"], recorded["output_tokens"]) == (100, 25)
    assert recorded["cached_input_tokens"] == 40


def test_a_stream_passes_unchanged(served: Served, provider: RawProvider) -> None:
    body, told = {"contents": _CONTENTS}, [_answer({"text": "Hel"}, reason=None),
                                           _answer({"text": "lo"})]  # fmt: skip
    status, raw, _, session = _ask(served, "streamGenerateContent?alt=sse", body)
    events = [line for line in raw.split(b"\r\n\r\n") if line.startswith(b"data: ")]
    assert status == 200
    assert b"".join(line + b"\r\n\r\n" for line in events) in _stream(*told)
    assert _last(provider)[0] == f"/v1beta/models/{_MODEL}:streamGenerateContent?alt=sse"
    recorded = served.exchange(session).metadata
    assert recorded["response"] == "Hello"
    assert recorded["cost_usd"] == _NANO / 1e9
    # Without alt, a stream is one array.
    status, raw, headers, _ = _ask(served, "streamGenerateContent", body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(raw) == told


@pytest.mark.parametrize("case", ["blocked", "safety", "empty", "two", "tools"])
def test_odd_answers_pass_and_are_billed_by_their_usage(served: Served, case: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": case}]}]}
    status, raw, headers, session = _ask(served, "generateContent", body)
    assert (status, json.loads(raw)) == (200, _CASES[case])
    assert headers["x-remit-cost-certainty"] == "measured"
    reason = {"blocked": "content_filter", "safety": "content_filter", "tools": "tool_use"}
    assert served.exchange(session).metadata["finish_reason"] == reason.get(case, "stop")


def test_a_stream_that_is_cut_ends_with_an_error_in_googles_form(served: Served) -> None:
    body = {"contents": [{"parts": [{"text": "cut"}]}]}
    _, raw, _, session = _ask(served, "streamGenerateContent?alt=sse", body)
    last = json.loads(raw.strip().split(b"data: ")[-1])
    assert last["error"]["code"] == 502
    assert last["error"]["details"][0]["reason"] == "SERVER_ERROR"
    assert served.exchange(session).metadata["outcome"] == "error"


@pytest.mark.parametrize("place", ["x-goog-api-key", "query", "bearer"])
def test_a_key_in_three_places(served: Served, provider: RawProvider, place: str) -> None:
    key = served.token
    verb = f"generateContent?key={key}" if place == "query" else "generateContent"
    headers = {"x-goog-api-key": key} if place == "x-goog-api-key" else {}
    token = key if place == "bearer" else ""
    body = {"contents": _CONTENTS}
    status, _, _, session = _ask(served, verb, body, token=token, headers=headers)
    assert status == 200
    assert key not in str(_last(provider))
    assert key not in json.dumps(served.exchange(session).metadata)
    assert key not in served.errors.read_text()


def test_errors_have_googles_form(served: Served) -> None:
    status, raw, _, _ = _ask(served, "generateContent", {"contents": _CONTENTS}, token="")
    said = json.loads(raw)["error"]
    assert (status, said["code"], said["status"]) == (401, 401, "UNAUTHENTICATED")
    status, raw, _, _ = _ask(served, "generateContent", b"{")
    assert (status, json.loads(raw)["error"]["status"]) == (400, "INVALID_ARGUMENT")
    status, raw, _, _ = _ask(served, "generateContent", {"contents": _CONTENTS, "unknown": 1})
    assert (status, json.loads(raw)["error"]["message"]) == (400, "Unknown name")
    status, raw, _, _ = _ask(served, "sing", {})
    assert (status, json.loads(raw)["error"]["status"]) == (404, "NOT_FOUND")


def test_models_tokens_and_embeddings(served: Served) -> None:
    status, raw, _ = served.ask("GET", "/v1beta/models")
    names = [model["name"] for model in json.loads(raw)["models"]]
    assert status == 200
    assert any(name.endswith(_MODEL) for name in names)
    headers = {"x-goog-api-key": served.token}
    assert served.ask("GET", "/v1/models", token="", headers=headers)[1] == raw
    status, raw, _ = served.ask("GET", f"/v1beta/{names[0]}")
    assert (status, json.loads(raw)["name"]) == (200, names[0])
    _, raw, _, _ = _ask(served, "countTokens", {"contents": _CONTENTS})
    assert json.loads(raw) == {"totalTokens": 7}
    _, raw, headers, _ = _ask(served, "countTokens", {"contents": _CONTENTS}, model="gpt-4o-mini")
    assert json.loads(raw)["totalTokens"] > 0
    assert headers["x-remit-estimated"] == "true"
    body = {"content": {"parts": [{"text": "hi"}]}}
    status, raw, _, _ = _ask(served, "embedContent", body, model="gemini/gemini-embedding-001")
    assert (status, json.loads(raw)) == (200, {"embedding": {"values": [0.5]}})


def test_a_client_talks_to_claude_and_seals_return(served: Served, provider: RawProvider) -> None:
    claude = "claude-sonnet-4-5"
    body = {"contents": _CONTENTS, "tools": _TOOLS, "generationConfig": {"seed": 1}}
    status, raw, headers, _ = _ask(served, "generateContent", body, model=claude)
    assert status == 200
    assert headers["x-remit-dropped"] == "generationConfig.seed"
    (candidate,) = json.loads(raw)["candidates"]
    thought, call = candidate["content"]["parts"]
    assert (thought["text"], thought["thought"]) == ("I look.", True)
    assert base64.b64decode(thought["thoughtSignature"]).startswith(b"remit-anthropic-signature:")
    assert call == {"functionCall": {"id": "toolu_1", "name": "look", "args": {"at": 1}}}
    result = {"functionResponse": {"id": "toolu_1", "name": "look", "response": {"result": "x"}}}
    more = [candidate["content"], {"role": "user", "parts": [result]}]
    # The client library writes base64 in the alphabet of URLs.
    thought["thoughtSignature"] = thought["thoughtSignature"].replace("+", "-").replace("/", "_")
    _ask(served, "generateContent", {**body, "contents": [*_CONTENTS, *more]}, model=claude)
    sent = json.loads(_last(provider)[1])["messages"]
    assert sent[1]["content"] == _MESSAGE["content"]
    assert sent[2]["content"][0]["content"] == "x"
    _ask(served, "generateContent", {**body, "contents": [*_CONTENTS, *more]})
    assert b"thoughtSignature" not in _last(provider)[1]


def test_a_stream_of_chat_completions_reaches_a_client_of_gemini(served: Served) -> None:
    for verb in ("streamGenerateContent?alt=sse", "streamGenerateContent"):
        body = {"contents": _CONTENTS}
        status, raw, _, _ = _ask(served, verb, body, model="gpt-4o-mini")
        assert status == 200
        if verb.endswith("sse"):
            lines = raw.split(b"\r\n\r\n")
            data = [line.rpartition(b"data: ")[2] for line in lines if b"data: " in line]
            events = [json.loads(one) for one in data]
        else:
            events = json.loads(raw)
        contents = [event["candidates"][0].get("content", {"parts": []}) for event in events]
        assert "".join(part["text"] for one in contents for part in one["parts"]) == "Good day"
        assert events[-1]["candidates"][0]["finishReason"] == "STOP"
        assert events[-1]["usageMetadata"]["totalTokenCount"] == 18


@pytest.mark.parametrize("stream", [False, True])
def test_clients_of_other_dialects(served: Served, provider: RawProvider, stream: bool) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    body = {"model": f"gemini/{_MODEL}", "max_tokens": 50, "tools": tools, "stream": stream,
            "messages": [{"role": "user", "content": "tools"}]}  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/messages", body)
    assert status == 200
    path, sent = _last(provider)
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert path == f"/v1beta/models/{_MODEL}:{verb}"
    assert json.loads(sent) == {
        "contents": [{"role": "user", "parts": [{"text": "tools"}]}],
        "tools": [{"functionDeclarations": [
            {"name": "look", "parametersJsonSchema": {"type": "object"}}]}],
        "generationConfig": {"maxOutputTokens": 50},
    }  # fmt: skip
    assert b"remit-google-signature:c2lnbmVk" in raw
    if not stream:
        answer = json.loads(raw)
        assert answer["stop_reason"] == "tool_use"
        assert answer["content"][-1]["input"] == {"at": 1}
        chat = {"model": f"gemini/{_MODEL}", "messages": [{"role": "user", "content": "tools"}]}
        _, raw, _ = served.ask("POST", "/v1/chat/completions", chat)
        (call,) = json.loads(raw)["choices"][0]["message"]["tool_calls"]
        assert call["extra_content"] == {"google": {"thought_signature": "c2lnbmVk"}}


_DATA = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
_IN_TWO_SPELLINGS = [
    ({"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 9}},
     "generationConfig.maxOutputTokens"),
    ({"generationConfig": {"topP": 1}, "generation_config": {"maxOutputTokens": 9}},
     "generationConfig"),
    ({"systemInstruction": {"parts": []}, "system_instruction": {"parts": []}},
     "systemInstruction"),
    ({"tools": [{"googleSearch": {}, "google_search": {}}]}, "tools[0].googleSearch"),
    ({"contents": [{"parts": [{"inlineData": {}, "inline_data": {}}]}]},
     "contents[0].parts[0].inlineData"),
]  # fmt: skip
_WITHOUT_A_TRANSLATION = [
    ({"cachedContent": "cachedContents/1"}, "cachedContent"),
    ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
    ({"contents": [{"parts": [{"text": "hi"}, {"text": "what?", **_DATA}]}]},
     "contents[0].parts[1]"),
    ({"contents": [{"parts": [{"thought": True, "text": "a", "functionCall": {"name": "f"}}]}]},
     "contents[0].parts[0]"),
    ({"contents": [{"parts": [{"text": "", "function_call": {"name": "f"}}]}]},
     "contents[0].parts[0]"),
    ({"systemInstruction": {"parts": [{"text": "a", **_DATA}]}}, "systemInstruction.parts[0]"),
    ({"systemInstruction": {"parts": [{"text": "a"}]},
      "system_instruction": {"parts": [{"text": "b"}]}}, "systemInstruction"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        *((f"gemini/{_MODEL}", *row) for row in _IN_TWO_SPELLINGS),
        *(("claude-sonnet-4-5", *row) for row in (*_IN_TWO_SPELLINGS, *_WITHOUT_A_TRANSLATION)),
    ],
)
def test_what_cannot_be_kept_or_told_apart_is_refused_by_its_name(
    served: Served, provider: RawProvider, model: str, body: dict[str, Any], field: str
) -> None:
    told = _refused(served, provider, 400, {"contents": _CONTENTS, **body}, model=model)
    assert told["metadata"]["param"] == field


def test_vertex_spells_the_same_calls(served: Served, provider: RawProvider) -> None:
    place = "/v1/projects/p/locations/global/publishers"
    path = f"{place}/google/models/gemini%2F{_MODEL}:generateContent"
    status, raw, _ = served.ask("POST", path, {"contents": _CONTENTS})
    assert (status, json.loads(raw)) == (200, _CASES["plain"])
    body = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 50,
            "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    path = f"{place}/anthropic/models/claude-sonnet-4-5:rawPredict"
    status, raw, _ = served.ask("POST", path, body)
    assert (status, json.loads(raw)) == (200, _MESSAGE)
    sent = json.loads(_last(provider)[1])
    assert sent.pop("model") == "claude-sonnet-4-5"
    assert sent == {name: value for name, value in body.items() if name != "anthropic_version"}
    status, raw, _ = served.ask("POST", path, b"{")
    assert (status, json.loads(raw)["type"]) == (400, "error")


def _config(**members: Any) -> dict[str, Any]:
    return {"contents": _CONTENTS, **members}


_SEARCH: dict[str, Any] = {"googleSearch": {}}
_CODE: dict[str, Any] = {"codeExecution": {}}


def test_a_searched_prompt_is_within_a_budget_and_billed_once(served: Served) -> None:
    key = served.key(usd_nano=10**10)
    body = {"contents": [{"parts": [{"text": "searched"}]}], "tools": [_SEARCH]}
    status, _, headers, session = _ask(served, "generateContent", body, token=key.key)
    assert (status, headers["x-remit-cost-certainty"]) == (200, "measured")
    recorded = served.exchange(session).metadata
    assert recorded["server_tool_uses"] == {"web_search": 2}
    assert recorded["cost_usd"] == (_NANO + 35_000_000) / 1e9


def _cost(served: Served, body: dict[str, Any], case: str = "plain") -> tuple[str, str]:
    asked = {**body, "contents": [{"parts": [{"text": case}]}]}
    _, _, headers, _ = _ask(served, "generateContent", asked)
    return headers["x-remit-cost-usd"], headers["x-remit-cost-certainty"]


@pytest.mark.parametrize("tier", ["priority", "PRIORITY", "SERVICE_TIER_PRIORITY"])
@pytest.mark.parametrize("name", ["serviceTier", "service_tier"])
def test_a_dearer_service_is_charged_and_reserved(
    served: Served, provider: RawProvider, name: str, tier: str
) -> None:
    assert _cost(served, {name: tier}) == (f"{2 * _NANO / 1e9:.9f}", "measured")
    body = _config(generationConfig={"maxOutputTokens": 1000}) | {name: tier}
    key, before = served.key(usd_nano=4_000_000), len(provider.seen)
    assert _ask(served, "generateContent", body, token=key.key)[0] == 402
    assert len(provider.seen) == before
    del body[name]
    assert _ask(served, "generateContent", body, token=key.key)[0] == 200


_FILE = {"parts": [{"fileData": {"fileUri": "gs://x/y.pdf", "mimeType": "application/pdf"}}]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        # Either spelling of a field bounds a call.
        *(
            (_config(**{config: {limit: 8000, count: 8}}), "BUDGET_EXHAUSTED")
            for config, limit, count in (
                ("generationConfig", "maxOutputTokens", "candidateCount"),
                ("generationConfig", "maxOutputTokens", "candidate_count"),
                ("generation_config", "maxOutputTokens", "candidateCount"),
                ("generation_config", "max_output_tokens", "candidateCount"),
            )
        ),
        (_config(generationConfig={"max_output_tokens": 65536}), "BUDGET_EXHAUSTED"),
        *(
            ({**body, "generationConfig": {"maxOutputTokens": 10}}, "BUDGET_EXHAUSTED")
            for body in (
                {"contents": [_FILE]},
                _config(systemInstruction=_FILE),
                _config(system_instruction=_FILE),
                {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {}},
                                          **_FILE["parts"][0]}]}]},
            )
        ),
        *(
            (_config(generationConfig={"maxOutputTokens": 10, **config}), "UNBOUNDED")
            for config in (
                {"responseModalities": ["AUDIO"]}, {"responseModalities": ["TEXT", "IMAGE"]},
                {"response_modalities": [3]},
            )
        ),
        (_config(serviceTier="new"), "UNBOUNDED"),
        (_config(serviceTier=2), "UNBOUNDED"),
        # Every member of every tool counts.
        *(
            (_config(tools=tools), "UNBOUNDED")
            for tools in (
                [_CODE], [{**_TOOLS[0], **_CODE}], [{"name": "x", **_SEARCH}],
                [{"function_declarations": [], "code_execution": {}, "url_context": {}}],
                {**_SEARCH, **_CODE}, _CODE,
            )
        ),
    ],
)  # fmt: skip
def test_what_a_budget_cannot_bear_or_has_no_bound_is_refused(
    served: Served, provider: RawProvider, body: dict[str, Any], reason: str
) -> None:
    key = served.key(usd_nano=30_000_000 if reason == "BUDGET_EXHAUSTED" else 10**12)
    told = _refused(served, provider, 402, body, token=key.key)
    assert (told["status"], told["reason"]) == ("RESOURCE_EXHAUSTED", reason)


@pytest.mark.parametrize("config", ["generationConfig", "generation_config"])
@pytest.mark.parametrize("limit", ["maxOutputTokens", "max_output_tokens"])
def test_a_lowered_limit_replaces_the_clients_in_its_spelling(
    served: Served, provider: RawProvider, config: str, limit: str
) -> None:
    key = served.key()
    limits = BudgetLimits(None, 3_000_000, on_short="clamp")
    TokenBudgeter(served.ledger).allocate(BudgetScope(key_id=key.key_id), limits=limits)
    body = {"contents": _CONTENTS, config: {limit: 60_000}}
    status, _, _, session = _ask(served, "generateContent", body, token=key.key)
    assert status == 200
    sent = json.loads(_last(provider)[1])
    assert sent.keys() == body.keys()
    assert sent[config].keys() == {limit}
    assert 0 < sent[config][limit] < 60_000
    changed = served.exchange(session).metadata["changed"]
    assert f"/{config}/{limit}" in [change["path"] for change in changed]


@pytest.mark.parametrize("config", [{"candidateCount": "2"}, {"candidate_count": 2}, {}])
def test_a_stream_ends_with_the_body_and_the_last_usage_counts(
    served: Served, provider: RawProvider, config: dict[str, Any]
) -> None:
    body = {"contents": [{"parts": [{"text": "late"}]}], "generationConfig": config}
    status, raw, _, session = _ask(served, "streamGenerateContent", body)
    assert (status, json.loads(raw)) == (200, _LATE)
    assert served.exchange(session).metadata["output_tokens"] == 5000


def test_sound_and_the_service_given_have_their_own_price(served: Served) -> None:
    nano = 10 * 300 + 990 * 1000 + 10 * 2500
    assert _cost(served, {}, "heard") == (f"{nano / 1e9:.9f}", "measured")
    assert _cost(served, {}, "odd details")[1] == "upper_bound"
    assert _cost(served, {"serviceTier": "priority"}, "flex")[0] == f"{_NANO / 2e9:.9f}"
