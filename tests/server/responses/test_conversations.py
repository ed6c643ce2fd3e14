"""Conversations that Remit keeps, with every provider."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.server.running import Served
from tests.server.strict import CLAUDE, GPT, Strict, client_of


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


def test_the_answer_names_it(client: openai.OpenAI) -> None:
    made = client.conversations.create()
    answer = client.responses.create(model=CLAUDE, input="x", conversation={"id": made.id})
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    assert client.responses.retrieve(answer.id) == answer


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


def test_its_labels_change_and_it_is_given_up(client: openai.OpenAI) -> None:
    made = client.conversations.create(metadata={"a": "b"})
    assert client.conversations.retrieve(made.id).to_dict() == made.to_dict()
    changed = client.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert changed.created_at == made.created_at
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=GPT, input="x", conversation=made.id)


def test_nobody_has_anothers(served: Served, client: openai.OpenAI) -> None:
    made = client.conversations.create()
    with client_of(served, served.key().key) as other:
        for call in (
            other.conversations.retrieve, other.conversations.delete,
            other.conversations.items.list,
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                call(made.id)
        with pytest.raises(openai.NotFoundError):
            other.responses.create(model=GPT, input="x", conversation=made.id)
    assert client.conversations.retrieve(made.id)


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


def test_a_response_and_a_conversation_do_not_go_together(client: openai.OpenAI) -> None:
    made = client.conversations.create()
    first = client.responses.create(model=GPT, input="x")
    with pytest.raises(openai.BadRequestError):
        client.responses.create(
            model=GPT, input="x", conversation=made.id, previous_response_id=first.id
        )


def test_a_call_that_fails_leaves_it_as_it_was(client: openai.OpenAI) -> None:
    made = client.conversations.create()
    with pytest.raises(openai.APIStatusError):
        client.responses.create(model=GPT, input="[[status 400]]", conversation=made.id)
    assert _texts(client, made.id) == []
    client.responses.create(model=GPT, input="[[say x]]", conversation=made.id)
    assert _texts(client, made.id) == ["[[say x]]", "x"]


def test_lone_surrogates_are_listed(served: Served) -> None:
    item = b'{"items":[{"id":"i\\ud800","role":"user","content":"\\ud800"}]}'
    status, made, _ = served.ask("POST", "/v1/conversations", item)
    assert status == 200, made
    path = f"/v1/conversations/{json.loads(made)['id']}/items"
    assert served.ask("POST", path, item)[0] == 200
    status, listed, _ = served.ask("GET", path)
    assert status == 200, listed
    assert [each["content"][0]["text"] for each in json.loads(listed)["data"]] == ["\ud800"] * 2
