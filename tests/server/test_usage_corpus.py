"""The bill of every provider's usage object, to the nano-dollar, and refusals, which are free."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from remit.gateway.auth import NewKey
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.providers import EVENT_STREAM, frame
from tests.server.conftest import QUICK
from tests.server.running import Served, new_root, new_session, serving
from tests.server.usage_corpus import CORPUS, LIES, Case
from tests.support import wire
from tests.support.commands import run_remit
from tests.support.raw_provider import RawProvider, says, whole
from tests.support.soak import sample

USD = 10**9
PROVIDERS = sorted({case.provider for case in CORPUS})
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_MESSAGES = ("anthropic", "bedrock", "zai")
"""Providers with the Messages API; those in other dialects have a second name."""
_OF_MESSAGES = ("output", "stopReason")
_KINDS = {"messages": "anthropic", "converse": "converse"}


def _name(case: Case) -> str:
    other = case.provider in _MESSAGES and case.shape != "messages"
    return f"{case.provider}-{case.shape}" if other else case.provider


@pytest.fixture(scope="module")
def served(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("corpus") / "root"
    toml = QUICK + "max_retries = 0\nfailure_threshold = 100000\nrecover_every_s = 3600\n"
    kinds = {_name(case): _KINDS.get(case.shape, "openai") for case in CORPUS}
    for name, kind in kinds.items():
        if name not in ("openai", "anthropic"):
            url = f"{provider.url}/v1" if kind == "openai" else provider.url
            toml += f'[providers.{name}]\nkind = "{kind}"\nbase_url = "{url}"\n'
            toml += 'default_model = "corpus"\n'
    new_root(root, toml)
    for name in kinds:
        told = run_remit(
            "price", "set", "corpus", "--provider", name, "--input", "1", "--output", "4",
            "--cached-input", "0.1", "--cache-write", "1.25", "--cache-write-long", "2",
            "--context-window", "200000", "--max-output-tokens", "32768", "--root", root,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
    with serving(root, provider.url) as running:
        yield running


def _body(case: Case, shape: str, session: str, *, stream: bool) -> dict[str, Any]:
    model = case.model if case.model != "corpus" else f"{_name(case)}/corpus"
    text = "x" * 6000 + session
    body: dict[str, Any] = {"model": model, "max_tokens": 500, "stream": stream}
    if shape == "responses":
        del body["max_tokens"]
        return {**body, "max_output_tokens": 500, "input": text, **case.asked}
    if shape == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    asked = case.asked if shape == case.shape else {}
    return {**body, "messages": [{"role": "user", "content": text}], **asked}


def _sse(*events: Any) -> bytes:
    done = [f"data: {event}\n\n".encode() for event in events if isinstance(event, str)]
    parts = wire.sse(event for event in events if not isinstance(event, str))
    return whole(b"".join([*parts, *done]), "text/event-stream")


def _answer(case: Case, usage: Any) -> dict[str, Any]:
    members = {name: value for name, value in case.answer.items()
               if name not in ("zeros", "streamed_only")}  # fmt: skip
    if case.shape == "converse":
        said = {"message": {"role": "assistant", "content": [{"text": "ok"}]}}
        return {"output": said, "stopReason": "end_turn", "usage": usage, **members}
    answers = {"messages": wire.message, "responses": wire.response, "chat": wire.completion}
    return {**answers[case.shape]("ok"), "model": case.model, "usage": usage, **members}


def _streamed(case: Case, usage: Any) -> bytes:
    answer = _answer(case, usage)
    if case.shape == "converse":
        end = {name: value for name, value in answer.items() if name not in _OF_MESSAGES}
        return whole(b"".join([
            frame({":event-type": name}, json.dumps(event).encode())
            for name, event in (
                ("messageStart", {"role": "assistant"}),
                ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "ok"}}),
                ("contentBlockStop", {"contentBlockIndex": 0}),
                ("messageStop", {"stopReason": "end_turn"}),
                ("metadata", end),
            )
        ]), EVENT_STREAM)  # fmt: skip
    if case.shape == "messages":
        started, *later = [*case.before, usage] if case.before else [usage, usage]
        for name in case.answer.get("zeros", ()):
            later[-1] = {**later[-1], name: 0}
        begun = {**answer, "content": [], "stop_reason": None, "usage": started}
        text = {"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}}  # fmt: skip
        piece = {"type": "content_block_delta", "index": 0,
                 "delta": {"type": "text_delta", "text": "ok"}}  # fmt: skip
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        return _sse(
            {"type": "message_start", "message": begun}, text, piece,
            {"type": "content_block_stop", "index": 0},
            *({"type": "message_delta", "delta": end, "usage": each} for each in later),
            {"type": "message_stop"},
        )  # fmt: skip
    if case.shape == "responses":
        return _sse(
            {"type": "response.created", "response": {**answer, "output": [], "usage": None,
                                                      "status": "in_progress"}},
            {"type": "response.output_text.delta", "item_id": "i", "output_index": 0,
             "content_index": 0, "delta": "ok"},
            {"type": "response.completed", "response": answer},
        )  # fmt: skip
    head = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    said = {"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": None}
    stop: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks: list[Any] = [{**head, "choices": [said], "usage": None}]
    chunks += ({**head, "choices": [{**said, "delta": {"content": "."}}], "usage": each}
               for each in case.before)  # fmt: skip
    if case.place == "x_groq":
        chunks.append({**head, "choices": [stop], "x_groq": {"id": "q", "usage": usage}})
    elif case.place == "choice":
        chunks.append({**head, "choices": [{**stop, "usage": usage}]})
    else:
        chunks += [{**head, "choices": [stop]}, {**head, "choices": [], "usage": usage}]
    return _sse(*chunks, "[DONE]")


def _call(
    served: Served, provider: RawProvider, case: Case, reply: bytes, *, stream: bool,
    shape: str = "", token: str = "",
) -> tuple[int, bytes, dict[str, Any]]:  # fmt: skip
    """Make one call; return the status, what the client got, and the ``EXCHANGE``."""
    session = new_session()
    provider.answers[session] = says(reply)
    shape = shape or ("chat" if case.shape == "converse" else case.shape)
    headers = {"x-remit-session": session, "content-type": "application/json"}
    body = _body(case, shape, session, stream=stream)
    status, said, _ = served.ask("POST", PATHS[shape], body, headers=headers, token=token or None)
    found = served.entries("EXCHANGE", session)
    return status, said, found[-1].metadata if found else {}


def _nano(metadata: dict[str, Any]) -> int:
    return round(metadata["cost_usd"] * USD)


def _reply(case: Case, *, stream: bool) -> bytes:
    if stream:
        return _streamed(case, case.usage)
    return whole(json.dumps(_answer(case, case.usage)).encode())


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60
    assert len(PROVIDERS) >= 12
    assert len({(str(case), case.shape) for case in CORPUS}) == len(CORPUS)


@pytest.mark.soak
def test_the_bill_of_every_usage_object(served: Served, provider: RawProvider) -> None:
    for case in CORPUS:
        for stream in (False, True):
            if not stream and (case.place != "usage" or "streamed_only" in case.answer):
                continue
            status, said, told = _call(served, provider, case, _reply(case, stream=stream),
                                       stream=stream)  # fmt: skip
            assert status == 200, (str(case), said)
            bill = (told["cost_certainty"], _nano(told))
            assert bill == ("measured", case.nano), (str(case), stream, told)


def _counts(shape: str, said: bytes, *, stream: bool) -> tuple[int, int]:
    """Return input and output tokens as a client reads them, all input counted."""
    usage: dict[str, Any] = {}
    for line in said.splitlines() if stream else [b"data: " + said]:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            for place in (event, event.get("message"), event.get("response")):
                usage |= (place.get("usage") or {}) if isinstance(place, dict) else {}
    if shape == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    if shape == "responses":
        return usage["input_tokens"], usage["output_tokens"]
    cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return usage["input_tokens"] + cached, usage["output_tokens"]


_OTHERS = [(case, shape, stream) for case in CORPUS for shape in PATHS for stream in (False, True)
           if shape != case.shape and not case.asked
           and (stream or (case.place == "usage" and "streamed_only" not in case.answer))
           and (shape != "responses" or case.shape == "messages")
           and not (case.shape == "responses" or case.model != "corpus")]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize(
    ("case", "shape", "stream"), sample(_OTHERS, 20), ids=lambda value: str(value)
)
def test_a_client_of_another_dialect_sees_the_bills_usage(
    served: Served, provider: RawProvider, case: Case, shape: str, stream: bool
) -> None:
    status, said, told = _call(served, provider, case, _reply(case, stream=stream), stream=stream,
                               shape=shape)  # fmt: skip
    assert (status, _nano(told)) == (200, case.nano), said
    counts = _counts(shape, said, stream=stream)
    assert counts == (told["input_tokens"], told["output_tokens"])


@pytest.mark.parametrize("stream", [False, True])
def test_lies_are_charged_the_bound(served: Served, provider: RawProvider, stream: bool) -> None:
    key = served.key(usd_nano=100 * USD)
    seen = set()
    for usage in LIES:
        case = Case("openai", "lie", usage, 0)
        for shape in ("chat", "messages"):
            status, said, told = _call(served, provider, case, _reply(case, stream=stream),
                                       stream=stream, shape=shape, token=key.key)  # fmt: skip
            assert (status, told["cost_certainty"]) == (200, "upper_bound"), (usage, said)
            seen.add((shape, _nano(told)))
            counts = _counts(shape, said, stream=stream) if shape == "messages" else None
            assert counts in (None, (told["input_tokens"], told["output_tokens"])), usage
    assert len(seen) == 2  # one reservation for each shape
    [account] = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))
    assert 0 < account.spent_nano <= 100 * USD
    assert account.reserved_nano == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_budget_holds_converse(served: Served, provider: RawProvider, stream: bool) -> None:
    key = served.key(usd_nano=USD)
    spent = 0
    for case in (each for each in CORPUS if each.shape == "converse"):
        status, said, told = _call(served, provider, case, _reply(case, stream=stream),
                                   stream=stream, token=key.key)  # fmt: skip
        assert (status, _nano(told)) == (200, case.nano), said
        spent += case.nano
    lie = Case("bedrock", "lie", {"inputTokens": 1, "outputTokens": -1}, 0, "converse")
    status, said, told = _call(served, provider, lie, _reply(lie, stream=stream), stream=stream,
                               token=key.key)  # fmt: skip
    assert (status, told["cost_certainty"]) == (200, "upper_bound"), said
    [account] = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))
    assert (account.spent_nano, account.reserved_nano) == (spent + _nano(told), 0)
    poor = served.key(usd_nano=1000)
    status, said, _ = _call(served, provider, lie, b"", stream=stream, token=poor.key)
    assert status == 402, said


_ERROR = {"message": "no", "type": "overloaded_error", "code": "overloaded"}
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": None, "usage": {"input_tokens": 900, "output_tokens": 1}}  # fmt: skip
_RESPONSE = {"id": "r", "object": "response", "created_at": 1, "status": "in_progress",
             "model": "m", "output": [], "usage": None, "error": None}  # fmt: skip
_FAILED = {**_RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "no"}}


def _json(value: Any, status: str = "200 OK") -> bytes:
    return whole(json.dumps(value).encode(), status=status)


_WAYS = [(shape, stream) for shape in PATHS for stream in (False, True)]
_CODES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
REFUSALS: dict[str, tuple[str, bool, bytes]] = {
    **{f"HTTP {code}, {shape}, streamed: {stream}":
       (shape, stream, _json({"type": "error", "error": _ERROR}, f"{code} No"))
       for code in _CODES for shape, stream in _WAYS
       if shape == "chat" or code in (400, 429, 529)},
    **{f"200 with {name}, {shape}, streamed: {stream}": (shape, stream, _json(value))
       for name, value in {
           "an error": {"error": _ERROR}, "a typed error": {"type": "error", "error": _ERROR},
           "an error in words": {"error": "no"},
           "a list": [{"error": {"code": 503, "message": "no"}}],
           "an error object": {"object": "error", "message": "no", "code": 500},
           "a status": {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "no"}},
           "no success": {"success": False, "code": 1301, "msg": "no"},
           "an error in the choice": {**_CHUNK, "choices": [{"index": 0, "error": _ERROR,
               "finish_reason": "error", "message": {"role": "assistant", "content": ""}}]},
       }.items() for shape, stream in _WAYS},
    "200 with a failed response": ("responses", False, _json(_FAILED)),
    "first event, chat": ("chat", True, _sse({"error": _ERROR})),
    "first event beside no choices": ("chat", True, _sse(
        {**_CHUNK, "choices": [], "error": _ERROR})),
    "first event in the choice": ("chat", True, _sse({**_CHUNK, "choices": [
        {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": _ERROR}]})),
    "behind an empty chunk": ("chat", True, _sse({**_CHUNK, "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": ""}}]}, {"error": _ERROR})),
    "a status in a stream": ("chat", True, _sse({**_CHUNK, "choices": None, "base_resp": {
        "status_code": 1002, "status_msg": "no"}})),
    "first event, messages": ("messages", True, _sse({"type": "error", "error": _ERROR})),
    "behind message_start": ("messages", True, _sse({"type": "message_start", "message": _MESSAGE},
                                                    {"type": "error", "error": _ERROR})),
    "first event, responses": ("responses", True, _sse({**_ERROR, "type": "error"})),
    "response.failed": ("responses", True, _sse(
        {"type": "response.created", "response": _RESPONSE},
        {"type": "response.failed", "response": _FAILED})),
}  # fmt: skip


def test_a_refusal_before_any_output_is_free(served: Served, provider: RawProvider) -> None:
    key: NewKey = served.key(usd_nano=USD)
    for name, (shape, stream, reply) in REFUSALS.items():
        case = Case("anthropic" if shape == "messages" else "openai", name, None, 0, shape)
        status, said, told = _call(served, provider, case, reply, stream=stream, token=key.key)
        assert told.get("outcome") in ("error", "timeout"), (name, status, said)
        assert _nano(told) == 0, (name, status, said)
    [account] = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))
    assert (account.spent_nano, account.reserved_nano) == (0, 0)


def test_a_late_refusal_costs_what_was_served(served: Served, provider: RawProvider) -> None:
    said = {"index": 0, "delta": {"content": "some words"}}
    broken = _sse({**_CHUNK, "choices": [said]}, {"error": _ERROR})
    _, _, told = _call(served, provider, Case("openai", "", None, 0), broken, stream=True)
    assert (told["outcome"], told["cost_certainty"]) == ("error", "estimated")
    assert 0 < told["output_tokens"] < 20
    state = {**_CHUNK, "choices": None, "base_resp": {"status_code": 1002, "status_msg": "no"}}
    for end in (state, {**_CHUNK, "choices": None, "success": False, "msg": "no"}):
        # The same text again and again is added up without a look at each event.
        odd = _sse(*[{**_CHUNK, "choices": [said]}] * 8, end)
        _, _, told = _call(served, provider, Case("openai", "", None, 0), odd, stream=True)
        assert told["outcome"] == "error"
    counted = _sse({**_CHUNK, "choices": [said], "usage": {"prompt_tokens": 1000,
                                                           "completion_tokens": 2}},
                   {"error": _ERROR})  # fmt: skip
    _, _, told = _call(served, provider, Case("openai", "", None, 0), counted, stream=True)
    assert (told["cost_certainty"], _nano(told)) == ("measured", 1000 * 1000 + 2 * 4000)
    failed = {**_FAILED, "usage": {"input_tokens": 1000, "output_tokens": 2, "total_tokens": 1002}}
    case = Case("openai", "", None, 0, "responses")
    stream = _sse({"type": "response.created", "response": _RESPONSE},
                  {"type": "response.failed", "response": failed})  # fmt: skip
    for streams, reply in ((False, _json(failed)), (True, stream)):
        _, _, told = _call(served, provider, case, reply, stream=streams)
        assert told["outcome"] == "error"
        assert (told["cost_certainty"], _nano(told)) == ("measured", 1000 * 1000 + 2 * 4000)
