"""What a client may do with an answer by its id, also of one that runs in the background."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.server.conftest import QUICK
from tests.server.running import Served, serving
from tests.server.strict import CLAUDE, GPT, Strict, client_of
from tests.support import wire
from tests.support.upstream import Upstream
from tests.support.waiting import until

both = pytest.mark.parametrize("model", [GPT, CLAUDE])


def _get(served: Served, path: str, **more: Any) -> tuple[int, bytes]:
    status, body, _ = served.ask("GET", path, **more)
    return status, body


@both
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_given_back_by_its_keys(served: Served, model: str, stream: bool) -> None:
    body = {"model": model, "input": "[[say Grüße 🙂]]", "metadata": {"a": "b"}, "stream": stream}
    key = {"idempotency-key": f"again-{model}-{stream}"}
    status, answered, headers = served.ask("POST", "/v1/responses", body, headers=key)
    assert status == 200, answered
    _, again, replayed = served.ask("POST", "/v1/responses", body, headers=key)
    if stream:
        assert replayed["x-remit-dispatch"]
        first, second = (json.loads(raw.rpartition(b"data: ")[2]) for raw in (answered, again))
        assert first["response"] == second["response"]
        return
    assert (replayed["x-remit-replayed"], again) == ("true", answered)
    name = json.loads(answered)["id"]
    assert name.startswith("resp_")
    assert _get(served, f"/v1/responses/{name}") == (200, answered)
    exchange = served.ledger.read(headers["x-remit-exchange"])
    assert exchange.metadata["response_id"] == name
    assert ("replied" in exchange.metadata) == (model == CLAUDE)


@both
def test_a_stream_ends_with_what_get_gives(client: openai.OpenAI, model: str) -> None:
    came = list(client.responses.create(model=model, input="[[say one two]]", stream=True))
    assert came[-1].response.output_text == "one two"  # type: ignore[union-attr]
    asked: Any = [{"role": "user", "content": '[[say hi]] [[call get_weather {"city": "Ulm"}]]'}]
    tool: Any = {"type": "function", "name": "get_weather", "parameters": {}, "strict": False}
    answer = client.responses.create(model=model, input=asked, tools=[tool])
    given = list(client.responses.retrieve(answer.id, stream=True))
    for events in (came, given):
        assert [event.sequence_number for event in events] == list(range(len(events)))
        last = events[-1]
        assert (events[0].type, last.type) == ("response.created", "response.completed")
        assert client.responses.retrieve(last.response.id).to_dict() == last.response.to_dict()
        said = "".join(each.delta for each in events if each.type == "response.output_text.delta")
        assert said == last.response.output_text
    assert given[-1].response.to_dict() == answer.to_dict()
    assert list(client.responses.retrieve(answer.id, stream=True, starting_after=2)) == given[3:]


@both
def test_input_items_are_listed_in_pages(client: openai.OpenAI, model: str) -> None:
    given: Any = [{"role": "user", "content": f"part {n}"} for n in range(5)]
    answer = client.responses.create(model=model, input=given)
    newest = client.responses.input_items.list(answer.id, limit=2)
    assert [_text(item) for item in newest.data] == ["part 4", "part 3"]
    assert newest.has_more
    every = list(client.responses.input_items.list(answer.id, limit=2, order="asc"))
    assert [_text(item) for item in every] == [f"part {n}" for n in range(5)]
    assert len({item.id for item in every}) == 5
    with pytest.raises(openai.BadRequestError):
        client.responses.input_items.list(answer.id, limit=1000)


def _text(item: Any) -> str:
    return str(item.content[0].text)


@both
def test_delete_erases_it(
    served: Served, client: openai.OpenAI, strict: Strict, model: str
) -> None:
    session = {"x-remit-session": f"SES-DEL-{model}".upper()}
    first = client.responses.create(
        model=model, input="[[say the secret word]]", extra_headers=session
    )
    after = client.responses.create(
        model=model, input="more", previous_response_id=first.id, extra_headers=session
    )
    client.responses.delete(first.id)
    if model == GPT:  # the provider's copy is gone as well
        assert strict.has("DELETE", f"/v1/responses/{first.id}")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, input="x", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"
    # What was said after it stays, but no other provider can be told the whole.
    assert client.responses.retrieve(after.id).id == after.id
    with pytest.raises(openai.BadRequestError) as broken:
        client.responses.create(
            model=CLAUDE if model == GPT else GPT, input="x", previous_response_id=after.id
        )
    assert broken.value.code == "previous_response_not_found"
    (erasure,) = served.ledger.query(event_type="ERASURE", text=None, limit=1, order="desc")
    assert first.id in erasure.reason


@both
def test_only_its_owner_has_what_is_stored(
    served: Served, client: openai.OpenAI, model: str
) -> None:
    session = f"SES-NOT-{model}".upper()
    unstored = client.responses.create(
        model=model, input="hello", store=False, extra_headers={"x-remit-session": session}
    )
    assert served.exchange(session).metadata["stored"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)
    answer = client.responses.create(model=model, input="mine")
    with client_of(served, served.key().key) as other:
        for call in (
            other.responses.retrieve, other.responses.delete, other.responses.cancel,
            other.responses.input_items.list,
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError) as theirs:
                call(answer.id)
            with pytest.raises(openai.NotFoundError) as nobodys:
                call("resp_0123456789")
            assert theirs.value.body == nobodys.value.body
        for one, name in ((other, answer.id), (client, unstored.id)):
            with pytest.raises(openai.BadRequestError) as refused:
                one.responses.create(model=model, input="x", previous_response_id=name)
            assert refused.value.code == "previous_response_not_found"
    assert client.responses.retrieve(answer.id).id == answer.id


def test_what_cannot_be_done_is_refused(served: Served, client: openai.OpenAI) -> None:
    answer = client.responses.create(model=GPT, input="x")
    with pytest.raises(openai.BadRequestError):  # only background is cancelled
        client.responses.cancel(answer.id)
    seven: Any = 7
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=GPT, input="x", previous_response_id=seven)
    assert served.ask("PUT", "/v1/responses/resp_1")[0] == 405
    assert served.ask("GET", "/v1/responses/resp_1/nothing")[0] == 404
    assert served.ask("GET", "/v1/responses/resp_1", token="sk-remit-none")[0] == 401
    assert served.ask("GET", "/responses/resp_1")[0] == 404


def test_items_are_found_by_their_ids(
    served: Served, client: openai.OpenAI, strict: Strict
) -> None:
    """As AI SDKs do: they send references to items of stored responses."""
    for asked, then in ((GPT, CLAUDE), (CLAUDE, GPT), (CLAUDE, CLAUDE)):
        answer = client.responses.create(model=asked, input="[[say a sparrow]]")
        given: Any = [
            {"role": "user", "content": "which bird?"},
            {"type": "item_reference", "id": answer.output[0].id},
            {"role": "user", "content": "and now?"},
        ]
        after = client.responses.create(model=then, input=given)
        assert "a sparrow" in json.dumps(strict.seen()[-1])
        last = client.responses.create(model=asked, input="x", previous_response_id=after.id)
        assert "a sparrow" in json.dumps(strict.seen()[-1])
        assert last.id
    given[1]["id"] = "msg_00000000000000000000"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=GPT, input=given)
    assert refused.value.param == "input[1].id"


@both
def test_a_stream_whose_client_went_away_has_failed(tmp_path: Path, model: str) -> None:
    def answer(body: dict[str, Any]) -> wire.Raw:
        if model == GPT:
            begun = {"id": "resp_up", "object": "response", "status": "in_progress", "output": []}
            events: list[Any] = [
                {"type": "response.created", "sequence_number": 0, "response": begun},
                {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
                 "item": {"id": "msg_up", "type": "message", "role": "assistant",
                          "status": "in_progress", "content": []}},
                {"type": "response.output_text.delta", "sequence_number": 2, "output_index": 0,
                 "item_id": "msg_up", "content_index": 0, "delta": "half"},
            ]  # fmt: skip
            chunks = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
            return wire.Raw(content_type="text/event-stream", chunks=chunks, cut=True)
        return wire.message_stream(wire.message("half and half"), cut_after=4)

    with (
        wire.serve(answer) as behind,
        serving(tmp_path / "root", behind.url, toml=QUICK) as served,
        client_of(served) as client,
    ):
        stream = client.responses.create(model=model, input="x", stream=True)
        first = next(iter(stream))
        assert first.type == "response.created"
        try:
            assert list(stream)[-1].type == "response.failed"
        except openai.APIError:
            assert model == GPT  # the provider had no last word
        until(lambda: list(served.ledger.query(event_type="EXCHANGE")))
        left = client.responses.retrieve(first.response.id)
        assert (left.id, left.status) == (first.response.id, "failed")
        if model == GPT:  # The provider had no words of its own for its failure.
            assert left.error is not None
            assert left.error.message == "The answer was interrupted."
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model=model, input="x", previous_response_id=left.id)


_OPEN = ("queued", "in_progress")


def _ended(client: openai.OpenAI, response_id: str) -> Any:
    until(lambda: client.responses.retrieve(response_id).status not in _OPEN)
    return client.responses.retrieve(response_id)


@both
def test_it_is_begun_and_polled(
    served: Served, client: openai.OpenAI, strict: Strict, model: str
) -> None:
    session, text = f"SES-BACK-{model}".upper(), "[[say done]] in the background"
    begun = client.responses.create(
        model=model, input=text, background=True, extra_headers={"x-remit-session": session}
    )
    assert begun.status in _OPEN
    assert begun.background
    ended = _ended(client, begun.id)
    assert (ended.status, ended.output_text, ended.background) == ("completed", "done", True)
    assert served.exchange(session).metadata["response_id"] == begun.id
    if model == GPT:  # The provider is not asked to run it in the background.
        (sent,) = (body for body in strict.seen("/responses") if body.get("input") == text)
        assert sent == {"model": GPT, "input": text, "stream": True}
    for other in (GPT, CLAUDE):
        after = client.responses.create(model=other, input="x", previous_response_id=begun.id)
        assert after.output_text
        if other == GPT:
            assert strict.seen("/responses")[-1].get("previous_response_id") != begun.id
    assert client.responses.cancel(begun.id).status == "completed"
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


@both
def test_a_stream_outlives_its_client(served: Served, client: openai.OpenAI, model: str) -> None:
    session = f"SES-GONE-{model}".upper()
    stream = client.responses.create(
        model=model, input="[[long]]", background=True, stream=True,
        extra_headers={"x-remit-session": session},
    )  # fmt: skip
    first = next(iter(stream))
    stream.close()
    assert first.type == "response.created"
    until(lambda: served.entries("EXCHANGE", session))
    assert served.exchange(session).metadata["outcome"] == "success"
    assert "word399" in client.responses.retrieve(first.response.id).output_text


def _hanging(tmp_path: Path, upstream: Upstream, *, checked: bool = True) -> Any:
    return serving(tmp_path / "root", upstream.url, toml=QUICK, checked=checked)


def test_it_is_cancelled_also_from_another_process(tmp_path: Path, upstream: Upstream) -> None:
    with (
        _hanging(tmp_path, upstream) as one, client_of(one) as first,
        _hanging(tmp_path, upstream) as two, client_of(two, one.token) as second,
    ):  # fmt: skip
        for canceller in (first, second):
            begun = first.responses.create(
                model=CLAUDE, input="x [[hang]]", background=True, max_output_tokens=20
            )
            for client in (first, second):
                assert client.responses.retrieve(begun.id).status == "in_progress"
                with pytest.raises(openai.BadRequestError) as early:
                    client.responses.create(model=CLAUDE, input="x", previous_response_id=begun.id)
                assert early.value.code == "previous_response_in_progress"
                with pytest.raises(openai.ConflictError):
                    client.responses.delete(begun.id)
            assert canceller.responses.cancel(begun.id).status == "cancelled"
            for client in (first, second):
                assert client.responses.retrieve(begun.id).status == "cancelled"
        ends = [
            (e.metadata["error_code"], e.metadata["error_message"])
            for e in one.ledger.query(event_type="EXCHANGE")
        ]
        assert ends == [("CANCELLED", "the owner cancelled the response")] * 2


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_end_leaves_a_failed_response(
    tmp_path: Path, upstream: Upstream, is_killed: bool
) -> None:
    with _hanging(tmp_path, upstream, checked=not is_killed) as one, client_of(one) as client:
        begun = client.responses.create(
            model=CLAUDE, input="x [[hang]]", background=True, max_output_tokens=20
        )
        if is_killed:
            one.kill()
    with _hanging(tmp_path, upstream) as two, client_of(two, one.token) as client:
        ended = _ended(client, begun.id)
        assert ended.status == "failed"
        assert ended.error.code == ("server_error" if is_killed else "cancelled")
        said = "died" if is_killed else "the server shut down before the answer ended"
        assert said in ended.error.message
        orphans = list(two.ledger.query(event_type="EXCHANGE_ORPHANED"))
        assert bool(orphans) is is_killed
