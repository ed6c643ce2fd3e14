"""Chat completions sent with ``store``: read, listed, labelled, deleted; by their owner alone."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.server.running import Served
from tests.server.sdks import openai_at


def _store(client: openai.OpenAI, text: str, **more: Any) -> str:
    given: dict[str, Any] = {"model": "gpt-4o-mini", "store": True, **more}
    made = client.chat.completions.create(
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        **given,
    )
    if given.get("stream"):
        return [str(chunk.id) for chunk in made][0]  # noqa: RUF015 - the stream is read to its end
    return str(made.id)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_completion_until_its_deletion(stream: bool, model: str, served: Served) -> None:
    key = served.key()
    client = openai_at(served, key.key)
    name = _store(client, "a word of its own", model=model, stream=stream, metadata={"a": "1"})
    found = client.chat.completions.retrieve(name)
    assert (found.id, found.object, found.model) == (name, "chat.completion", found.model)
    assert found.choices[0].message.content
    assert found.metadata == {"a": "1"}
    messages = client.chat.completions.messages.list(name).data
    assert [one.content for one in messages] == ["Be brief.", "a word of its own"]
    assert [one.role for one in messages] == ["system", "user"]
    (first,) = client.chat.completions.messages.list(name, limit=1, order="desc").data
    assert first.content == "a word of its own"
    assert client.chat.completions.update(name, metadata={"b": "2"}).metadata == {"b": "2"}
    assert client.chat.completions.retrieve(name).metadata == {"b": "2"}
    assert client.chat.completions.update(name, metadata=None).metadata == {}
    assert client.chat.completions.update(name, metadata={"b": "2"}).metadata == {"b": "2"}
    assert [one.id for one in client.chat.completions.list()] == [name]
    assert [one.id for one in client.chat.completions.list(metadata={"b": "2"})] == [name]
    assert not list(client.chat.completions.list(metadata={"b": "1"}))
    assert not list(client.chat.completions.list(model="gpt-5"))
    assert served.ledger.verify().verified
    assert client.chat.completions.delete(name).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(name)
    assert not list(client.chat.completions.list())
    shown = [str(entry.metadata) for entry in served.ledger.query(event_type="EXCHANGE")
             if entry.metadata.get("key_id") == key.key_id]  # fmt: skip
    assert not any("a word of its own" in text for text in shown)


def test_only_what_was_stored_is_found_and_only_by_its_owner(served: Served) -> None:
    mine, other = (openai_at(served, served.key().key) for _ in range(2))
    name, unstored = _store(mine, "hello"), _store(mine, "hi", store=False)
    for client, wanted in ((other, name), (mine, "chatcmpl-none")):
        for verb in (client.chat.completions.retrieve, client.chat.completions.delete,
                     client.chat.completions.messages.list):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                verb(wanted)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.update(wanted, metadata={"a": "b"})
    assert not list(other.chat.completions.list())
    assert len(list(mine.chat.completions.list())) == 1
    assert unstored


def test_pages_of_a_list_follow_each_other_without_what_was_erased(served: Served) -> None:
    client = openai_at(served, served.key().key)
    chats = client.chat.completions
    names = [_store(client, f"number {number}") for number in range(5)]
    assert [one.id for one in chats.list(limit=2)] == names
    assert [one.id for one in chats.list(limit=2, order="desc")] == names[::-1]
    entry = next(served.ledger.query(event_type="EXCHANGE", order="desc", limit=1))
    served.ledger.erase(entry.id, reason="asked for", requested_by="tester")
    for verb in (chats.retrieve, chats.messages.list):
        with pytest.raises(openai.NotFoundError):
            verb(names[-1])
    assert names[-1] not in [one.id for one in chats.list()]


@pytest.mark.parametrize(
    ("method", "tail", "body"),
    [("GET", f"?limit=000000001{'0' * 5000}", None), ("GET", "?limit=000000001000", None),
     ("GET", f"/{{}}/messages?limit=000000001{'0' * 5000}", None), ("GET", "?limit=0", None),
     ("GET", "?limit=x", None), ("GET", "?order=up", None),
     ("GET", "?after=none", None), ("POST", "/{}", b"[]"), ("POST", "/{}", b"{}"),
     ("POST", "/{}", b'{"metadata":{"a":1}}'), ("POST", "/{}", b"{"), ("PUT", "/{}", b"{}"),
     ("GET", "/{}/messages?after=none", None)],
)  # fmt: skip
def test_bad_requests_are_refused(
    method: str, tail: str, body: bytes | None, served: Served
) -> None:
    key = served.key().key
    name = _store(openai_at(served, key), "hello")
    path = f"/v1/chat/completions{tail.format(name)}"
    status, raw, _ = served.ask(method, path, body, token=key)
    assert status in (400, 405), raw
    assert json.loads(raw)["error"]["message"]
