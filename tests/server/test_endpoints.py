"""The endpoints that are no conversation, by the official SDKs: bytes, records, budgets, errors."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from typing import Any

import httpx2
import openai
import pytest
from aiohttp import web

from remit.ledger import wire_body
from tests.server.running import Served
from tests.server.sdks import anthropic_at, openai_at
from tests.support.keeping import Asked, Cut, Keeper

BEFORE = "keeper"
SOUND = b"ID3\x00\xff\xfb" + bytes(range(256)) * 2000


@pytest.fixture
def client(served: Served, session: str) -> openai.OpenAI:
    return openai_at(served, session=session)


def _whole(served: Served, session: str, wire: str, keeper: Keeper) -> dict[str, Any]:
    """The one exchange of a session; its body, put together again, is what was sent."""
    entry = served.exchange(session)
    assert (entry.decision, entry.metadata["wire"]) == ("SUCCESS", wire)
    sent = wire_body(served.ledger.exact(entry.id), entry.metadata["cut"])
    assert sent == keeper.asked[-1].body
    return entry.metadata


def test_embeddings_with_the_sdks_own_encoding(
    served: Served, keeper: Keeper, client: openai.OpenAI, session: str
) -> None:
    vector = base64.b64encode(struct.pack("<3f", 0.5, -1.0, 2.0)).decode()
    keeper.replies["embeddings"] = lambda asked: {
        "object": "list", "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": at, "embedding": vector} for at in (0, 1)],
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    }  # fmt: skip
    answer = client.embeddings.create(model="text-embedding-3-small", input=["one", "two"])
    assert [item.embedding for item in answer.data] == [[0.5, -1.0, 2.0]] * 2
    assert json.loads(keeper.asked[-1].body)["encoding_format"] == "base64"
    told = _whole(served, session, "openai.embeddings", keeper)
    assert told["prompt"] == ["one", "two"]
    assert (told["input_tokens"], told["output_tokens"]) == (8, 0)
    assert told["answer"]["data"][0]["embedding"] == vector


def test_completions_whole_and_streamed(
    served: Served, keeper: Keeper, client: openai.OpenAI, session: str
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    whole = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "gpt-4o-mini",
             "choices": [{"text": "hi", "index": 0, "finish_reason": "stop", "logprobs": None}],
             "usage": usage}  # fmt: skip

    def streamed(asked: Asked) -> web.Response:
        assert json.loads(asked.body)["stream_options"] == {"include_usage": True}
        events = [{**whole, "choices": [{**whole["choices"][0], "text": text,  # type: ignore[index,dict-item]
                                         "finish_reason": end}], "usage": None}
                  for text, end in (("h", None), ("i", "stop"))]  # fmt: skip
        events.append({**whole, "choices": [], "usage": usage})
        lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events]
        return web.Response(body=b"".join(lines) + b"data: [DONE]\n\n",
                            content_type="text/event-stream")  # fmt: skip

    keeper.replies["completions"] = lambda asked: whole
    assert client.completions.create(model="gpt-4o-mini", prompt="x", max_tokens=5).choices[
        0
    ].text == ("hi")
    assert _whole(served, session, "openai.completions", keeper)["response"] == "hi"
    keeper.replies["completions"] = streamed
    chunks = list(
        client.completions.create(model="gpt-4o-mini", prompt="x", max_tokens=5, stream=True)
    )
    assert [chunk.choices[0].text for chunk in chunks] == ["h", "i"]
    told = served.entries("EXCHANGE", session)[1].metadata
    assert (told["response"], told["input_tokens"], told["output_tokens"]) == ("hi", 3, 2)


def test_moderations_are_free(served: Served, keeper: Keeper, session: str) -> None:
    keeper.replies["moderations"] = lambda asked: {
        "id": "modr-1", "model": "omni-moderation-latest",
        "results": [{"flagged": False, "categories": {}, "category_scores": {},
                     "category_applied_input_types": {}}],
    }  # fmt: skip
    client = openai_at(served, served.key(usd_nano=1, tokens=1).key)
    answer = client.moderations.create(
        model="omni-moderation-latest", input="hello " * 100,
        extra_headers={"x-remit-session": session},
    )  # fmt: skip
    assert answer.results[0].flagged is False
    told = _whole(served, session, "openai.moderations", keeper)
    assert (told["cost_usd"], told["cost_certainty"]) == (0, "measured")
    assert (told["input_tokens"], told["output_tokens"]) == (0, 0)


def test_a_ranking(served: Served, keeper: Keeper, session: str) -> None:
    keeper.replies["rerank"] = lambda asked: {
        "id": "r1", "results": [{"index": 1, "relevance_score": 0.9}],
        "usage": {"total_tokens": 21},
    }  # fmt: skip
    body = {"model": "gpt-4o-mini", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}
    status, raw, _ = served.ask("POST", "/v1/rerank", body, headers={"x-remit-session": session})
    assert (status, json.loads(raw)["results"][0]["index"]) == (200, 1)
    told = _whole(served, session, "openai.rerank", keeper)
    assert told["prompt"] == ["a", {"text": "b"}]
    assert told["input_tokens"] == 21


def test_pictures(served: Served, keeper: Keeper, client: openai.OpenAI, session: str) -> None:
    keeper.replies["images/generations"] = keeper.replies["images/edits"] = lambda asked: {
        "created": 1, "data": [{"b64_json": "aGk="}],
        "usage": {"input_tokens": 9, "output_tokens": 272, "total_tokens": 281},
    }  # fmt: skip
    answer = client.images.generate(model="gpt-image-1", prompt="a cat")
    assert answer.data is not None
    assert answer.data[0].b64_json == "aGk="
    told = _whole(served, session, "openai.images", keeper)
    assert (told["prompt"], told["output_tokens"]) == ("a cat", 272)
    client.images.edit(model="gpt-image-1", prompt="a dog", image=("c.png", b"PNG"), n=2)
    told = served.entries("EXCHANGE", session)[1].metadata
    assert told["wire"] == "openai.image_edits"
    assert told["parameters"]["image"]["sha256"] == hashlib.sha256(b"PNG").hexdigest()
    assert told["parameters"]["prompt"] == "a dog"


def test_speech_is_passed_on_and_its_hash_is_on_record(
    served: Served, keeper: Keeper, client: openai.OpenAI, session: str
) -> None:
    asked: Any = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "say it"}
    keeper.replies["audio/speech"] = lambda asked: web.Response(
        body=SOUND, content_type="audio/mpeg"
    )
    with client.audio.speech.with_streaming_response.create(**asked) as answer:
        assert answer.headers["content-type"] == "audio/mpeg"
        assert b"".join(answer.iter_bytes()) == SOUND
    told = _whole(served, session, "openai.speech", keeper)
    assert told["prompt"] == "say it"
    assert told["answer"] == {"content_type": "audio/mpeg", "bytes": len(SOUND),
                              "sha256": hashlib.sha256(SOUND).hexdigest()}  # fmt: skip
    keeper.replies["audio/speech"] = lambda asked: Cut(SOUND, "audio/mpeg")
    with (
        pytest.raises((openai.APIError, httpx2.HTTPError)),
        client.audio.speech.with_streaming_response.create(**asked) as answer,
    ):
        answer.read()
    assert served.entries("EXCHANGE", session)[1].decision in ("ERROR", "TIMEOUT")


@pytest.mark.filterwarnings("ignore:deprecated")
def test_transcripts_of_every_kind(
    served: Served, keeper: Keeper, client: openai.OpenAI, session: str
) -> None:
    def transcribed(asked: Asked) -> web.StreamResponse | dict[str, Any]:
        assert asked.body.count(SOUND) == 1
        if b'"response_format"\r\n\r\nsrt' in asked.body:
            return web.Response(text="1\n00:00 --> 00:01\nhello", content_type="text/plain")
        if b'"stream"\r\n\r\ntrue' in asked.body:
            usage = {"type": "tokens", "input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
            events = [{"type": "transcript.text.delta", "delta": "hel"},
                      {"type": "transcript.text.delta", "delta": "lo"},
                      {"type": "transcript.text.done", "text": "hello",
                       "usage": usage}]  # fmt: skip
            lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events]
            return web.Response(body=b"".join(lines), content_type="text/event-stream")
        return {"text": "hello", "usage": {"type": "tokens", "input_tokens": 7,
                                           "output_tokens": 2, "total_tokens": 9}}  # fmt: skip

    keeper.replies["audio/transcriptions"] = keeper.replies["audio/translations"] = transcribed
    create = client.audio.transcriptions.create
    file = ("a.mp3", SOUND)
    assert create(model="gpt-4o-transcribe", file=file).text == "hello"
    assert "hello" in str(create(model="gpt-4o-transcribe", file=file, response_format="srt"))
    streamed = create(model="gpt-4o-transcribe", file=file, stream=True)
    assert [event.type for event in streamed][-1] == "transcript.text.done"
    assert client.audio.translations.create(model="gpt-4o-transcribe", file=file).text == "hello"
    told = [entry.metadata for entry in served.entries("EXCHANGE", session)]
    assert [one["response"].splitlines()[-1] for one in told] == ["hello"] * 4
    assert [one["input_tokens"] for one in (told[0], told[2], told[3])] == [7, 7, 7]
    assert told[0]["parameters"]["file"]["sha256"] == hashlib.sha256(SOUND).hexdigest()
    assert told[3]["wire"] == "openai.translations"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": "x"}),
        ("completions", {"prompt": "x", "max_tokens": 3}),
        ("moderations", {"input": "x"}),
        ("images/generations", {"prompt": "x"}),
        ("audio/speech", {"input": "x", "voice": "alloy"}),
    ],
)
def test_a_provider_of_the_other_dialect_cannot(
    served: Served, keeper: Keeper, path: str, body: dict[str, Any]
) -> None:
    asked = len(keeper.asked)
    status, raw, _ = served.ask("POST", f"/v1/{path}", {"model": "claude-sonnet-4-5", **body})
    error = json.loads(raw)["error"]
    assert (status, error["type"]) == (400, "invalid_request_error"), raw
    assert error["param"] == "model"
    assert len(keeper.asked) == asked


def test_what_has_no_price_is_refused_under_a_limit(served: Served, keeper: Keeper) -> None:
    client = openai_at(served, served.key(usd_nano=10**9).key)
    asked = len(keeper.asked)
    for call in (
        lambda: client.images.generate(model="gpt-image-1", prompt="x"),
        lambda: client.audio.speech.create(model="tts-9", voice="alloy", input="x"),
        lambda: client.audio.transcriptions.create(model="whisper-9", file=("a", b"a")),
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            call()
        assert refused.value.status_code == 402
    assert len(keeper.asked) == asked


def test_tokens_are_counted_by_who_can(served: Served, keeper: Keeper, session: str) -> None:
    keeper.replies["messages/count_tokens"] = lambda asked: {"input_tokens": 14}
    client = anthropic_at(served)
    turn: Any = [{"role": "user", "content": "hello"}]
    count = client.messages.count_tokens(
        model="claude-sonnet-4-5", messages=turn, extra_headers={"x-remit-session": session}
    )
    assert count.input_tokens == 14
    assert _whole(served, session, "anthropic.count_tokens", keeper)["cost_usd"] == 0
    asked = len(keeper.asked)
    raw = client.messages.with_raw_response.count_tokens(model="gpt-4o-mini", messages=turn)
    assert raw.headers["x-remit-estimated"] == "true"
    assert raw.parse().input_tokens > 0
    assert len(keeper.asked) == asked


def test_models_are_the_providers_and_remits_own(served: Served, keeper: Keeper) -> None:
    client = openai_at(served)
    other = anthropic_at(served)
    listed = {model.id: model for model in client.models.list()}
    assert listed["gpt-4o-mini"].created == 1_770_000_000
    assert listed["gpt-4o-mini"].owned_by == "system"
    assert listed["claude-sonnet-4-5"].owned_by == "anthropic"
    theirs = {model.id: model for model in other.models.list()}
    assert theirs["claude-sonnet-4-5"].model_extra == {"max_tokens": 64000} or (
        theirs["claude-sonnet-4-5"].to_dict()["max_tokens"] == 64000
    )
    assert set(theirs) == set(listed)
    assert client.models.retrieve("gpt-4o-mini").owned_by == "system"
    assert other.models.retrieve("claude-sonnet-4-5").display_name == "Claude-Sonnet-4-5"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    asked = sum(one.path.startswith("/v1/models") for one in keeper.asked)
    list(client.models.list())
    assert sum(one.path.startswith("/v1/models") for one in keeper.asked) == asked
    narrow = openai_at(served, served.key(models=("gpt-4o-mini",)).key)
    assert [model.id for model in narrow.models.list()] == ["gpt-4o-mini"]
