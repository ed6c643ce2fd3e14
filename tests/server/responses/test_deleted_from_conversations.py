"""Deletions of items, responses and whole conversations, alone and while others change them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import QUICK
from tests.server.erasing import CLAUDE, GPT, holds
from tests.server.responses.conftest import Strict
from tests.server.running import Served, serving
from tests.support.keeping import Asked, Keeper, keeping


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
def client(served: Served) -> _Client:
    """A client with a conversation."""
    return _Client(served)


def _mark() -> str:
    return f"mark-{uuid.uuid4().hex}"


def test_one_of_two_equal_items(client: _Client) -> None:
    text = _mark()
    first, second = client.put(text, text)
    client.take(first)
    assert client.texts() == [text]
    client.take(second)
    assert client.texts() == []
    assert holds(client.served, text) == []


def test_equal_items_put_in_one_after_the_other(client: _Client) -> None:
    text = _mark()
    ids = [*client.put(text), *client.put(text), *client.put(text)]
    for number, item_id in enumerate(ids):
        assert client.texts() == [text] * (3 - number)
        client.take(item_id)
    assert holds(client.served, text) == []


def test_items_with_one_id_are_deleted_together(client: _Client) -> None:
    text, other = _mark(), _mark()
    client.put(text, id="msg_mine")
    client.put(other, id="msg_mine")
    client.take("msg_mine")
    assert client.texts() == []
    assert (holds(client.served, text), holds(client.served, other)) == ([], [])


@pytest.mark.parametrize("model", [GPT, CLAUDE])
@pytest.mark.parametrize("first", ["item", "response"])
def test_an_item_and_the_call_that_showed_it(client: _Client, model: str, first: str) -> None:
    text = _mark()
    (item,) = client.put(text)
    response = client.call(model, "[[say yes]]")
    deletes = [lambda: client.take(item), lambda: client.ask("DELETE", f"/v1/responses/{response}")]
    for delete in deletes if first == "item" else reversed(deletes):
        delete()
    assert holds(client.served, text) == []
    assert client.texts() == []


@pytest.mark.parametrize("model", [GPT, CLAUDE])
@pytest.mark.parametrize("which", range(3))
def test_a_conversation_goes_on_without_a_deleted_response(
    client: _Client, strict: Strict, model: str, which: int
) -> None:
    ids = [client.call(model, f"[[say answer {number}]]") for number in range(3)]
    assert client.ask("DELETE", f"/v1/responses/{ids[which]}")[0] == 200
    left = [number for number in range(3) if number != which]
    assert client.texts() == [
        text for number in left for text in (f"[[say answer {number}]]", f"answer {number}")
    ]
    client.call(CLAUDE, "[[say more]]")
    sent = json.dumps(strict.seen("/messages")[-1])
    assert [number for number in range(3) if f"[[say answer {number}]]" in sent] == left


class _Gate:
    """A provider whose answer waits until it is let go."""

    def __init__(self) -> None:
        self.came, self.go = threading.Event(), threading.Event()

    def refuse(self, _: Any) -> None:
        """Let every request pass; part of the provider's interface."""


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    """A provider."""
    with keeping() as running:
        yield running
