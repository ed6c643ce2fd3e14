"""Usage that cannot be believed is usage that nobody reported: it is charged at the bound."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from remit.gateway import call_bound
from remit.providers.prices import PriceTable
from tests.server.running import Served, new_session
from tests.support.raw_provider import RawProvider, says, whole

BEFORE = "provider"
STREAM = "text/event-stream"
GPT = "gpt-4o-mini"

# IN, OUT, DETAILS, CACHED, MADE and THOUGHT stand for the names that the dialect has.
MALFORMED = {
    "texts": '{"IN":"9","OUT":"9"}',
    "a fraction": '{"IN":9.5,"OUT":9}',
    "a whole fraction": '{"IN":1.0,"OUT":9}',
    "an exponent": '{"IN":1e3,"OUT":9}',
    "negative": '{"IN":-9,"OUT":9}',
    "NaN": '{"IN":NaN,"OUT":9}',
    "Infinity": '{"IN":9,"OUT":Infinity}',
    "beyond a double": '{"IN":1e999,"OUT":9}',
    "null": "null",
    "null counts": '{"IN":null,"OUT":null}',
    "booleans": '{"IN":true,"OUT":true}',
    "beyond 2^53": '{"IN":9007199254740992,"OUT":9}',
    "beyond 64 bits": '{"IN":18446744073709551625,"OUT":9}',
    "beyond the window": '{"IN":3000000,"OUT":9}',
    "nothing": "{}",
    "one level too deep": '{"usage":{"IN":9,"OUT":9}}',
    "counts that are objects": '{"IN":{"count":9},"OUT":{"count":9}}',
    "details that are none": '{"IN":9,"OUT":9,"DETAILS":[9],"MADE":[9]}',
    "an array": "[9,9]",
    "a text": '"9"',
    "a number": "9",
    "one count twice": '{"IN":9000,"IN":1,"OUT":1}',
    "one count twice, escaped": '{"IN":9000,"\\u0049N":1,"OUT":1}',
    "one count twice, a joint escaped": '{"IN":9000,"I\\u004e":1,"OUT":1}',
    "more cached than came in": '{"IN":9,"OUT":9,"DETAILS":{"CACHED":99}}',
    "more sound than came in": '{"IN":9,"OUT":9,"DETAILS":{"audio_tokens":99}}',
    "negative details": '{"IN":9,"OUT":9,"DETAILS":{"CACHED":-5},"MADE":{"THOUGHT":-5}}',
    "more thought than made": '{"IN":9,"OUT":9,"total_tokens":18,"MADE":{"THOUGHT":99}}',
    "nothing for a text": '{"IN":0,"OUT":0}',
}
PROMPTS = {"IN": "prompt_tokens", "OUT": "completion_tokens", "DETAILS": "prompt_tokens_details",
           "CACHED": "cached_tokens", "MADE": "completion_tokens_details",
           "THOUGHT": "reasoning_tokens"}  # fmt: skip
INPUTS = {"IN": "input_tokens", "OUT": "output_tokens", "DETAILS": "input_tokens_details",
          "CACHED": "cached_tokens", "MADE": "output_tokens_details",
          "THOUGHT": "reasoning_tokens"}  # fmt: skip
MESSAGES = INPUTS | {"THOUGHT": "thinking_tokens"}


@dataclass(frozen=True)
class Way:
    """One endpoint, whole or streamed.

    Attributes:
        body: with ``SAID`` for what is asked, and ``BOUNDARY`` where it is a form.
        answer: the JSON text of the whole, or of each event, with ``USAGE`` in it.
        names: of its counts.
        has_not: what it cannot say wrongly.
    """

    endpoint: str
    path: str
    body: dict[str, Any]
    answer: tuple[str, ...]
    names: dict[str, str]
    has_not: tuple[str, ...] = ()

    @property
    def streamed(self) -> bool:
        return "stream" in self.body or "stream_format" in self.body

    def reply(self, usage: str, member: str = '"usage":') -> bytes:
        parts = [part.replace('"usage":USAGE', member + usage) for part in self.answer]
        for name, own in self.names.items():
            joint = next((at for at, one in enumerate(own) if not one.islower()), 0)
            for spelled, given in (
                (f'"{name}"', f'"{own}"'),
                (_escaped(name), _escaped(own)),
                (_escaped(name, 1), _escaped(own, joint)),
            ):
                parts = [part.replace(spelled, given) for part in parts]
        if not self.streamed:
            return whole(parts[0].encode())
        return whole("".join(f"{part}\n\n" for part in parts).encode(), STREAM)


def _escaped(name: str, at: int = 0) -> str:
    return f'"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"'


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": GPT, "max_tokens": 20, "messages": [{"role": "user", "content": "SAID"}],
            **more}  # fmt: skip


_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
_CHUNK = 'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-mini",'
_CHOICE = '"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]'
_STOP = '"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]'
_CLAUDE = "claude-3-haiku-20240307"
_SAID = (
    '"output":[{"type":"message","id":"m","role":"assistant","status":"completed",'
    '"content":[{"type":"output_text","text":"Hi","annotations":[]}]}]'
)
_NO_OUTPUT = ("more thought than made",)  # of answers that no model wrote
WAYS = {
    "chat": Way(
        "openai.chat", "/v1/chat/completions", _chat(),
        ('{"id":"c","object":"chat.completion","model":"gpt-4o-mini","choices":[{"index":0,'
         '"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":USAGE}',),
        PROMPTS,
    ),
    "chat, streamed": Way(
        "openai.chat", "/v1/chat/completions", _chat(**_STREAM),
        (f"{_CHUNK}{_CHOICE}}}", f"{_CHUNK}{_STOP}}}", f'{_CHUNK}"choices":[],"usage":USAGE}}',
         "data: [DONE]"),
        PROMPTS,
    ),
    "completions": Way(
        "openai.completions", "/v1/completions",
        {"model": "gpt-3.5-turbo-instruct", "max_tokens": 20, "prompt": "SAID"},
        ('{"id":"c","object":"text_completion","choices":[{"index":0,"text":"Hi",'
         '"finish_reason":"stop"}],"usage":USAGE}',),
        PROMPTS,
    ),
    "completions, streamed": Way(
        "openai.completions", "/v1/completions",
        {"model": "gpt-3.5-turbo-instruct", "max_tokens": 20, "prompt": "SAID", **_STREAM},
        ('data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":"Hi",'
         '"finish_reason":"stop"}]}',
         'data: {"id":"c","object":"text_completion","choices":[],"usage":USAGE}', "data: [DONE]"),
        PROMPTS,
    ),
    "responses": Way(
        "openai.responses", "/v1/responses",
        {"model": GPT, "max_output_tokens": 20, "input": "SAID"},
        (f'{{"id":"resp_1","object":"response","status":"completed","model":"{GPT}",{_SAID},'
         '"usage":USAGE}',),
        INPUTS,
    ),
    "responses, streamed": Way(
        "openai.responses", "/v1/responses",
        {"model": GPT, "max_output_tokens": 20, "input": "SAID", "stream": True},
        ('event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
         '"output_index":0,"content_index":0,"item_id":"m","delta":"Hi"}',
         'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1",'
         f'"object":"response","status":"completed","model":"{GPT}",{_SAID},"usage":USAGE}}}}'),
        INPUTS,
    ),
    "messages": Way(
        "anthropic.messages", "/v1/messages", _chat(model=_CLAUDE),
        ('{"id":"m","type":"message","role":"assistant","model":"claude-3-haiku-20240307",'
         '"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":USAGE}',),
        MESSAGES,
        ("more cached than came in", "more sound than came in"),  # cached tokens stand beside
    ),
    "messages, streamed": Way(
        "anthropic.messages", "/v1/messages", _chat(model=_CLAUDE, stream=True),
        ('event: message_start\ndata: {"type":"message_start","message":{"id":"m",'
         '"type":"message","role":"assistant","model":"claude-3-haiku-20240307","content":[],'
         '"usage":{}}}',
         'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
         '"content_block":{"type":"text","text":""}}',
         'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
         '"delta":{"type":"text_delta","text":"Hi"}}',
         'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
         '"usage":USAGE}',
         'event: message_stop\ndata: {"type":"message_stop"}'),
        MESSAGES,
        ("more cached than came in", "more sound than came in"),
    ),
    "embeddings": Way(
        "openai.embeddings", "/v1/embeddings",
        {"model": "text-embedding-3-small", "input": "SAID" + "x" * 1000},
        ('{"object":"list","model":"text-embedding-3-small","data":[{"index":0,'
         '"embedding":[0.5]}],"usage":USAGE}',),
        PROMPTS, (*_NO_OUTPUT, "beyond the window"),  # the table names no window of it
    ),
    "rerank": Way(
        "openai.rerank", "/v1/rerank",
        {"model": GPT, "query": "q", "documents": ["SAID"]},
        ('{"id":"r","results":[{"index":0,"relevance_score":0.9}],"usage":USAGE}',),
        PROMPTS, (*_NO_OUTPUT,),
    ),
    "images": Way(
        "openai.images", "/v1/images/generations", {"model": "gpt-image-1", "prompt": "SAID"},
        ('{"created":1,"data":[{"b64_json":"aGk="}],"usage":USAGE}',),
        INPUTS, (*_NO_OUTPUT, "beyond the window"),
    ),
    "images, streamed": Way(
        "openai.images", "/v1/images/generations",
        {"model": "gpt-image-1", "prompt": "SAID", "stream": True},
        ('data: {"type":"image_generation.completed","b64_json":"aGk=","usage":USAGE}',),
        INPUTS, (*_NO_OUTPUT, "beyond the window"),
    ),
    "speech, streamed": Way(
        "openai.speech", "/v1/audio/speech",
        {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "SAID", "stream_format": "sse"},
        ('data: {"type":"speech.audio.delta","audio":"QQ=="}',
         'data: {"type":"speech.audio.done","usage":USAGE}'),
        INPUTS, (*_NO_OUTPUT, "beyond the window"),
    ),
}  # fmt: skip


def _call(
    served: Served, provider: RawProvider, way: Way, reply: bytes, token: str = ""
) -> tuple[str, int, bytes]:
    session = new_session()
    provider.answers[session] = says(reply)
    text = json.dumps(way.body).replace("SAID", session)
    headers = {"x-remit-session": session, "content-type": "application/json"}
    status, said, _ = served.ask(
        "POST", way.path, text.encode(), token=token or served.token, headers=headers
    )
    return session, status, said


def _bound(way: Way) -> tuple[int, int]:
    """Nano-dollars, and input tokens."""
    text = json.dumps(way.body).replace("SAID", new_session())
    dialect = way.endpoint.split(".")[0]
    price = PriceTable.shipped().find(dialect, way.body["model"])
    bound = call_bound(way.endpoint, json.loads(text), len(text), price)
    assert bound.amount.bounded
    assert bound.amount.nano
    return bound.amount.nano, bound.tokens[0]


@pytest.mark.parametrize("name", WAYS)
def test_odd_usage_is_charged_at_the_bound(
    served: Served, provider: RawProvider, name: str
) -> None:
    way = WAYS[name]
    bound, _ = _bound(way)
    replies = {about: way.reply(usage) for about, usage in MALFORMED.items()
               if about not in way.has_not}  # fmt: skip
    usage = '{"IN":9,"OUT":9}'
    good = way.reply(usage)
    replies["the usage twice"] = way.reply(usage, f'"usage":{usage},"usage":')
    replies["the usage twice, escaped"] = way.reply(usage, f'"usage":{usage},"\\u0075sage":')
    replies["another name"] = way.reply(usage, '"useage":')
    assert len(replies) > 16
    with ThreadPoolExecutor(6) as pool:
        calls = pool.map(lambda reply: _call(served, provider, way, reply), replies.values())
        came = dict(zip(replies, calls, strict=True))
    wrong = []
    for about, (session, status, said) in came.items():
        told = served.exchange(session).metadata
        nano = round(told.get("cost_usd", 0) * 10**9)
        if (status, told["cost_certainty"], nano) != (200, "upper_bound", bound):
            wrong.append(f"{about}: {status} {told['cost_certainty']} {nano} of {bound} {said!r}")
    assert not wrong, "\n".join(wrong)
    session, status, said = _call(served, provider, way, good)
    assert (status, served.exchange(session).metadata["cost_certainty"]) == (200, "measured"), said


@pytest.mark.parametrize("name", ["chat, streamed", "completions, streamed", "messages, streamed"])
@pytest.mark.parametrize("second", ['{"IN":90,"OUT":1}', '{"IN":1,"OUT":9}'])
def test_the_last_counts_of_a_stream_are_the_final_ones(
    served: Served, provider: RawProvider, name: str, second: str
) -> None:
    way = WAYS[name]
    at = next(at for at, part in enumerate(way.answer) if "USAGE" in part)
    first = way.answer[at].replace("USAGE", '{"IN":90,"OUT":9}')
    twice = replace(way, answer=(*way.answer[:at], first, *way.answer[at:]))
    session, status, said = _call(served, provider, way, twice.reply(second))
    told = served.exchange(session).metadata
    assert (status, told["cost_certainty"]) == (200, "measured"), said
    counts = json.loads(second)
    assert (told["input_tokens"], told["output_tokens"]) == (counts["IN"], counts["OUT"])
    more = twice.reply('{"IN":90,"OUT":19}')
    told = served.exchange(_call(served, provider, way, more)[0]).metadata
    assert (told["cost_certainty"], told["output_tokens"]) == ("measured", 19)


@pytest.mark.parametrize("name", ["chat", "completions", "responses", "messages"])
def test_an_errors_usage_is_its_own(served: Served, provider: RawProvider, name: str) -> None:
    way = WAYS[f"{name}, streamed"]
    event = '{"type":"error","error":{"type":"api_error","message":"x"},"usage":{"IN":1,"OUT":1}}'
    begun = [part for part in way.answer if "Hi" in part and "USAGE" not in part]
    broken = replace(way, answer=(*begun, f"event: error\ndata: {event}"))
    session, status, said = _call(served, provider, way, broken.reply(""))
    told = served.exchange(session).metadata
    assert (status, told["cost_certainty"]) == (200, "estimated"), said
    assert told["input_tokens"] == _bound(way)[1]
