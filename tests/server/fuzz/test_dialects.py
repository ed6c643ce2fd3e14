"""Calls between two dialects, whatever a client sends and a provider answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from remit.kernel.json_text import load
from remit.providers import EVENT_STREAM, frame
from remit.providers.sse import SseParser
from tests.providers.dialects.bodies import ANSWERS, REQUESTS
from tests.providers.wire.streams import converse_events
from tests.server.cases import Came, Case, run
from tests.server.running import Served, new_session
from tests.support.raw_provider import RawProvider, pieces, says, whole
from tests.support.soak import sample
from tests.support.wire_corpus import CORPUS, WireExchange
from tests.support.wire_mutations import mutated, odd_stream, paths

OTHERS = (
    ("openai.chat", "claude-%s", "anthropic.messages"),
    ("openai.responses", "claude-%s", "anthropic.messages"),
    ("anthropic.messages", "gpt-%s", "openai.chat"),
    ("openai.responses", "plain/gpt-%s", "openai.chat"),
)
"""Who asks, for which model, and how its provider speaks."""

_PLAIN = {
    "openai.chat": '{"model":"%s","messages":[{"role":"user","content":"hi"}],"stream":%s}',
    "openai.responses": '{"model":"%s","input":"hi","stream":%s}',
    "anthropic.messages": (
        '{"model":"%s","max_tokens":64,"messages":[{"role":"user","content":"hi"}],"stream":%s}'
    ),
}
_WHOLES: dict[str, TypeAdapter[Any]] = {
    "openai.chat": TypeAdapter(ChatCompletion),
    "openai.responses": TypeAdapter(Response),
    "anthropic.messages": TypeAdapter(Message),
}
_EVENTS: dict[str, TypeAdapter[Any]] = {
    "openai.chat": TypeAdapter(ChatCompletionChunk),
    "openai.responses": TypeAdapter(ResponseStreamEvent),
    "anthropic.messages": TypeAdapter(RawMessageStreamEvent),
}


@pytest.mark.soak
def test_odd_bodies_are_refused_by_field_or_answered(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in sample(range(800), 100):
        asks, model, _ = OTHERS[seed % len(OTHERS)]
        some = [exchange for exchange in CORPUS if exchange.endpoint == asks]
        exchange = some[seed // len(OTHERS) % len(some)]
        value = load(exchange.request)
        name = new_session()
        value["model"] = model % name
        body = json.dumps(value).encode().replace(b"Infinity", b"1e999")
        at: object = "as it is"
        if seed >= len(OTHERS) * len(some):
            places = [path for path in paths(value) if path[0] != "model"]
            at, body = mutated(body, seed, places[seed % len(places)])
        cases.append(Case(asks, body, f"{exchange.name} {at} {seed}", name=name))
    came = run(served, provider, cases)
    wrong = [f"{problem}: {each}" for each in came for problem in _problems(each)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert sum(each.status == 200 for each in came) > len(came) * 3 / 16


@pytest.mark.soak
def test_odd_answers_are_translated_or_an_error(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in sample(range(800), 100):
        asks, model, speaks = OTHERS[seed % len(OTHERS)]
        some = [exchange for exchange in CORPUS if exchange.endpoint == speaks]
        exchange = some[seed // len(OTHERS) % len(some)]
        about, answer = _odd(exchange, seed)
        streamed = exchange.streamed
        name = new_session()
        body = (_PLAIN[asks] % (model % name, str(streamed).lower())).encode()
        said = pieces(_STREAM, [answer]) if streamed else says(whole(answer))
        cases.append(
            Case(asks, body, f"{exchange.name} {about} {seed} {answer!r}", said, name=name)
        )
    came = run(served, provider, cases, own_errors=False)
    wrong = [f"{problem}: {each}" for each in came for problem in _problems(each)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert sum(each.status == 200 for each in came) > len(came) * 3 / 8


_IN_PATH = {
    "gemini.generate": "/v1beta/models/%s:generateContent",
    "bedrock.converse": "/model/%s/converse",
}
"""The dialects whose path names the model."""


def _named(endpoint: str, model: str, body: bytes, about: str, **more: Any) -> Case:
    path = _IN_PATH[endpoint] % quote(model, safe="")
    return Case(endpoint, body, about, path=path, **more)


@pytest.mark.soak
@pytest.mark.parametrize("endpoint", _IN_PATH)
def test_odd_bodies_of_dialects_that_name_the_model_in_the_path(
    served: Served, provider: RawProvider, endpoint: str
) -> None:
    given = {key: each for key, each in REQUESTS[endpoint].items() if key not in _PATH_MEMBERS}
    models = ("gpt-%s", "claude-%s", "gemini/gemini-2.5-%s")
    if endpoint == "gemini.generate":
        given["tools"] = given["tools"][:1]  # OpenAI's chat models have no search.
    cases = []
    for seed in sample(range(300), 40):
        at, body = mutated(json.dumps(given).encode(), seed) if seed > 3 else ("", b"")
        name = new_session()
        answer = says(whole(json.dumps(ANSWERS["gemini.generate"]).encode()))
        model = models[seed % 3]
        cases.append(
            _named(endpoint, model % name, body or json.dumps(given).encode(), f"{at} {seed}",
                   name=name, answer=answer if model.startswith("gemini") else None)
        )  # fmt: skip
    came = run(served, provider, cases)
    wrong = [str(each) for each in came if each.status not in (200, 400, 402, 429)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert sum(each.status == 200 for each in came) > len(came) / 6


@pytest.mark.soak
@pytest.mark.parametrize("model", ["gemini/gemini-2.5-%s", "converse/amazon.nova-%s"])
@pytest.mark.parametrize("asks", ["openai.chat", "bedrock.converse", "gemini.generate"])
def test_odd_answers_of_dialects_that_name_the_model_in_the_path(
    served: Served, provider: RawProvider, asks: str, model: str
) -> None:
    speaks = "gemini.generate" if model.startswith("gemini") else "bedrock.converse"
    good = json.dumps(ANSWERS[speaks]).encode()
    cases = []
    for seed in sample(range(200), 20):
        at, answer = mutated(good, seed) if seed else ("", good)
        name = new_session()
        said, about = says(whole(answer)), f"{at} {seed} {answer!r}"
        if asks in _PLAIN:
            body = (_PLAIN[asks] % (model % name, "false")).encode()
            cases.append(Case(asks, body, about, said, name=name))
        else:
            turn = {"role": "user", "content": [{"text": "hi"}]}
            asked = {"messages": [turn]}
            if asks == "gemini.generate":
                asked = {"contents": [{"parts": [{"text": "hi"}]}]}
            body = json.dumps(asked).encode()
            cases.append(_named(asks, model % name, body, about, name=name, answer=said))
    came = run(served, provider, cases, own_errors=False)
    wrong = [str(each) for each in came if each.status not in (200, 502)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert sum(each.status == 200 for each in came) > len(came) / 2


@pytest.mark.soak
@pytest.mark.parametrize("asks", ["openai.chat", "anthropic.messages"])
def test_odd_streams_of_converse(served: Served, provider: RawProvider, asks: str) -> None:
    events = converse_events(ANSWERS["bedrock.converse"], 20)
    cases = []
    for seed in sample(range(200), 25):
        some = [*events]
        if place := seed % len(events):
            _, data = mutated(some[place][1], seed)
            some[place] = (some[place][0], data)
        frames = bytearray(b"".join(frame({":event-type": name}, data) for name, data in some))
        if seed % 5 == 4:
            frames[seed * 7 % len(frames)] ^= 1 << seed % 8
        name = new_session()
        body = (_PLAIN[asks] % (f"converse/amazon.nova-{name}", "true")).encode()
        said = pieces(_STREAM.replace(b"text/event-stream", EVENT_STREAM.encode()), [bytes(frames)])
        cases.append(Case(asks, body, f"{seed} {bytes(frames)!r}", said, name=name))
    came = run(served, provider, cases, own_errors=False)
    wrong = [f"{problem}: {each}" for each in came for problem in _problems(each)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert sum(each.status == 200 for each in came) > len(came) / 2


_PATH_MEMBERS = ("model", "stream")
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _odd(exchange: WireExchange, seed: int) -> tuple[object, bytes]:
    return odd_stream(exchange, seed) if exchange.streamed else mutated(exchange.answer, seed)


def _problems(came: Came) -> list[str]:
    """What is wrong with an answer to a call that was translated."""
    if came.status == 400 and not came.got:
        error = json.loads(came.body)["error"]
        return [] if error.get("param") or "param" not in error else ["no field is named"]
    if came.status != 200:
        return [] if came.status in (400, 402, 429, 502) else ["an odd status"]
    try:
        if "event-stream" in came.headers["content-type"]:
            return _wrong_in_stream(came)
        # The tools are the client's own, told back as they came.
        value = {**json.loads(came.body), "tools": []}
        _WHOLES[came.case.endpoint].validate_python(value)
    except (ValidationError, ValueError) as error:
        return [f"not of the client's dialect: {str(error)[:300]} {came.body[-900:]!r}"]
    return []


def _wrong_in_stream(came: Came) -> list[str]:
    endpoint = came.case.endpoint
    events = SseParser().feed(came.body)
    ended = failed = False
    for event in events:
        if not event.data or event.data == b"[DONE]":
            ended = ended or event.data != b""
            continue
        value = json.loads(event.data)
        if value.get("error") or value.get("type") in ("error", "response.failed"):
            failed = True
            continue
        try:
            _EVENTS[endpoint].validate_python(value)
        except ValidationError:
            return [f"no event: {value}"]
        kind = value.get("type")
        ended = ended or kind in ("message_stop", "response.completed", "response.incomplete")
    success = came.entry is not None and came.entry.metadata["outcome"] == "success"
    if failed and success and not _is_untranslatable(came):
        return [f"an error of a call that went well {came.body[-900:]!r}"]
    return [] if ended or failed else ["no end"]


def _is_untranslatable(came: Came) -> bool:
    return b"untranslatable" in came.body or b"cannot be translated" in came.body
