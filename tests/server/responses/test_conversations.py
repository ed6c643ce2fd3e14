"""Conversations that Remit keeps, with every provider, and deletions from them."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tests.server.conftest import QUICK
from tests.server.erasing import holds
from tests.server.running import Served, serving
from tests.server.strict import CLAUDE, GPT, Strict, client_of
from tests.support.commands import run_remit
from tests.support.keeping import Asked, keeping
from tests.support.wire import message


def _texts(client: openai.OpenAI, conversation: str) -> list[str]:
    items: Any = client.conversations.items.list(conversation, order="asc", limit=3)
    return [part.text for item in items for part in item.content]


def test_it_goes_over_providers(served: Served, client: openai.OpenAI, strict: Strict) -> None:
    made = client.conversations.create(
        items=[{"type": "message", "role": "developer", "content": "You are a heron."}],
        metadata={"topic": "birds"},
    )
    assert made.metadata == {"topic": "birds"}
    for model, words in ((GPT, "one"), (CLAUDE, "two"), (GPT, "three"), (GPT, "four")):
        answer = client.responses.create(
            model=model, input=f"[[say {words}]]", conversation=made.id
        )
        assert answer.output_text == words
    said = ["one", "two", "three"]
    sent = strict.seen("/responses")
    assert "conversation" not in sent[-1]
    assert sent[-1]["previous_response_id"]  # its last turn is kept where it is answered
    before = json.dumps(sent[-2])
    assert all(f"[[say {words}]]" in before for words in said)
    assert "You are a heron." in before
    assert _texts(client, made.id) == [
        "You are a heron.", "[[say one]]", "one", "[[say two]]", "two", "[[say three]]", "three",
        "[[say four]]", "four",
    ]  # fmt: skip
    exchange = next(served.ledger.query(event_type="EXCHANGE", order="desc", limit=1))
    assert exchange.metadata["conversation_id"] == made.id


def test_the_answer_names_it_and_a_call_that_fails_leaves_it(client: openai.OpenAI) -> None:
    made = client.conversations.create()
    with pytest.raises(openai.APIStatusError):
        client.responses.create(model=GPT, input="[[status 400]]", conversation=made.id)
    assert _texts(client, made.id) == []
    answer = client.responses.create(model=CLAUDE, input="[[say x]]", conversation={"id": made.id})
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    assert client.responses.retrieve(answer.id) == answer
    with pytest.raises(openai.BadRequestError):  # not with a response as well
        client.responses.create(
            model=GPT, input="x", conversation=made.id, previous_response_id=answer.id
        )
    assert _texts(client, made.id) == ["[[say x]]", "x"]


def test_items_are_put_in_and_taken_out(client: openai.OpenAI, strict: Strict) -> None:
    made = client.conversations.create()
    added = client.conversations.items.create(
        made.id,
        items=[
            {"type": "message", "role": "user", "content": "I like owls."},
            {"type": "message", "role": "user", "content": "I like cats."},
        ],
    )
    assert len({item.id for item in added.data}) == 2
    client.responses.create(model=GPT, input="first", conversation=made.id)
    client.conversations.items.delete(added.data[1].id or "", conversation_id=made.id)
    assert "I like cats." not in _texts(client, made.id)
    for model in (GPT, CLAUDE):
        client.responses.create(model=model, input="which?", conversation=made.id)
        told = json.dumps(strict.seen()[-1])
        assert ("I like owls." in told) == (model == CLAUDE or "previous_response_id" not in told)
        assert "I like cats." not in told
    item: Any = client.conversations.items.retrieve(added.data[0].id or "", conversation_id=made.id)
    assert item.content[0].text == "I like owls."
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(added.data[1].id or "", conversation_id=made.id)


def test_its_owner_alone_changes_and_deletes_it(served: Served, client: openai.OpenAI) -> None:
    made = client.conversations.create(metadata={"a": "b"})
    assert client.conversations.retrieve(made.id).to_dict() == made.to_dict()
    changed = client.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert changed.created_at == made.created_at
    with client_of(served, served.key().key) as other:
        conversations = other.conversations
        for call in (conversations.retrieve, conversations.delete, conversations.items.list):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
        with pytest.raises(openai.NotFoundError):
            other.responses.create(model=GPT, input="x", conversation=made.id)
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=GPT, input="x", conversation=made.id)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": "x"}, "items"),
        ({"items": [7]}, "items"),
        ({"items": [{}] * 21}, "items"),
        ({"metadata": {"a": 1}}, "metadata"),
        ([], None),
        (b"{", None),
    ],
)
def test_what_is_none_is_refused(served: Served, body: Any, param: str | None) -> None:
    status, answer, _ = served.ask("POST", "/v1/conversations", body)
    assert status == 400
    assert json.loads(answer)["error"]["param"] == param


class _Client:
    """One key, and a conversation of its own."""

    def __init__(self, served: Served) -> None:
        self.served, self.token = served, served.key().key
        self.path = f"/v1/conversations/{self.ask('POST', '/v1/conversations', {})[1]['id']}"

    @property
    def name(self) -> str:
        """The conversation's id."""
        return self.path.rpartition("/")[2]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request in compact JSON; return the status and the parsed answer."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        named = {"content-type": "application/json"}
        status, raw, _ = self.served.ask(method, path, data, token=self.token, headers=named)
        return status, json.loads(raw)

    def put(self, *texts: str, **more: str) -> list[str]:
        """Put items in at once; return their ids."""
        items = [{"type": "message", "role": "user", "content": one, **more} for one in texts]
        status, listed = self.ask("POST", f"{self.path}/items", {"items": items})
        assert status == 200, listed
        return [item["id"] for item in listed["data"]]

    def take(self, item_id: str) -> None:
        """Delete an item."""
        assert self.ask("DELETE", f"{self.path}/items/{item_id}")[0] == 200

    def texts(self) -> list[str]:
        """Return the texts that the conversation shows."""
        status, listed = self.ask("GET", f"{self.path}/items?order=asc&limit=100")
        assert status == 200, listed
        return [part["text"] for item in listed["data"] for part in item["content"]]

    def call(self, model: str, text: str) -> str:
        """Make a call in the conversation; return the id of the response."""
        body = {"model": model, "input": text, "conversation": self.name}
        status, answer = self.ask("POST", "/v1/responses", body)
        assert status == 200, answer
        return str(answer["id"])


@pytest.fixture
def own(served: Served) -> _Client:
    """A client with a conversation."""
    return _Client(served)


def _mark() -> str:
    return f"mark-{uuid.uuid4().hex}"


@pytest.mark.parametrize("model", [GPT, CLAUDE])
@pytest.mark.parametrize("first", ["item", "response"])
def test_an_item_and_the_call_that_showed_it(own: _Client, model: str, first: str) -> None:
    text = _mark()
    (item,) = own.put(text)
    response = own.call(model, "[[say yes]]")
    deletes = [lambda: own.take(item), lambda: own.ask("DELETE", f"/v1/responses/{response}")]
    for delete in deletes if first == "item" else reversed(deletes):
        delete()
    assert holds(own.served, text) == []
    assert own.texts() == []


@pytest.mark.parametrize("model", [GPT, CLAUDE])
@pytest.mark.parametrize("which", range(3))
def test_it_outlives_a_deleted_response(
    own: _Client, strict: Strict, model: str, which: int
) -> None:
    ids = [own.call(model, f"[[say answer {number}]]") for number in range(3)]
    assert own.ask("DELETE", f"/v1/responses/{ids[which]}")[0] == 200
    left = [number for number in range(3) if number != which]
    assert own.texts() == [
        text for number in left for text in (f"[[say answer {number}]]", f"answer {number}")
    ]
    own.call(CLAUDE, "[[say more]]")
    sent = json.dumps(strict.seen("/messages")[-1])
    assert [number for number in range(3) if f"[[say answer {number}]]" in sent] == left


class _Held(web.Response):
    """An answer that waits until it is let go."""

    def __init__(self, value: Any, came: threading.Event, go: threading.Event) -> None:
        super().__init__(text=json.dumps(value), content_type="application/json")
        self._came, self._go = came, go

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self._came.set()
        await asyncio.to_thread(self._go.wait, 60)
        return await super().prepare(request)


def test_a_call_that_ends_later_leaves_a_deleted_conversation_deleted(tmp_path: Path) -> None:
    came, go = threading.Event(), threading.Event()

    def reply(asked: Asked) -> web.StreamResponse:
        return _Held(message("late"), came, go)

    with keeping() as upstream, serving(tmp_path / "root", upstream.url, toml=QUICK) as served:
        upstream.replies["messages"] = reply
        client, text = _Client(served), _mark()
        client.put(_mark())
        with ThreadPoolExecutor(1) as thread:
            call = thread.submit(client.call, CLAUDE, text)
            assert came.wait(60)
            assert client.ask("DELETE", client.path)[0] == 200
            go.set()
            response = call.result(60)
        for method, path in (("GET", ""), ("GET", "/items"), ("DELETE", "")):
            status, said = client.ask(method, client.path + path)
            assert (status, said["error"]["code"]) == (404, "conversation_not_found")
        assert client.ask("GET", f"/v1/responses/{response}")[0] == 200
        assert run_remit("ledger", "verify", "--root", served.root).returncode == 0
        assert client.ask("DELETE", f"/v1/responses/{response}")[0] == 200
        assert holds(served, text) == []


def test_what_is_put_in_while_a_conversation_is_deleted(served: Served) -> None:
    """Each item is refused, or deleted with the conversation."""
    for _ in range(10):
        client, texts = _Client(served), [_mark() for _ in range(6)]
        items = [
            {"items": [{"type": "message", "role": "user", "content": text}]} for text in texts
        ]
        with ThreadPoolExecutor(3) as threads:
            path = f"{client.path}/items"
            added = [threads.submit(client.ask, "POST", path, one) for one in items]
            deleted = [threads.submit(client.ask, "DELETE", client.path) for _ in range(2)]
            assert sorted(one.result(60)[0] for one in deleted) == [200, 404]
            assert {one.result(60)[0] for one in added} <= {200, 404}
        assert client.ask("GET", client.path)[0] == 404
        assert {text: found for text in texts if (found := holds(served, text))} == {}
