"""Responses that run in the background: polled, cancelled, killed."""

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
_OPEN = ("queued", "in_progress")


def _ended(client: openai.OpenAI, response_id: str) -> Any:
    until(lambda: client.responses.retrieve(response_id).status not in _OPEN)
    return client.responses.retrieve(response_id)


@both
def test_it_is_begun_and_polled(served: Served, client: openai.OpenAI, model: str) -> None:
    session = f"SES-BACK-{model}".upper()
    begun = client.responses.create(
        model=model, input="[[say done]]", background=True,
        extra_headers={"x-remit-session": session},
    )  # fmt: skip
    assert begun.status in _OPEN
    assert begun.background
    ended = _ended(client, begun.id)
    assert (ended.status, ended.output_text, ended.background) == ("completed", "done", True)
    assert served.exchange(session).metadata["response_id"] == begun.id
    after = client.responses.create(model=model, input="x", previous_response_id=begun.id)
    assert after.output_text
    other = CLAUDE if model == GPT else GPT
    assert client.responses.create(model=other, input="x", previous_response_id=begun.id)
    assert client.responses.cancel(begun.id).status == "completed"
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_the_provider_is_not_asked_to_run_it_in_the_background(
    client: openai.OpenAI, strict: Strict
) -> None:
    begun = client.responses.create(model=GPT, input="plain", background=True)
    _ended(client, begun.id)
    (sent,) = (body for body in strict.seen("/responses") if body.get("input") == "plain")
    assert sent == {"model": GPT, "input": "plain", "stream": True}
    after = client.responses.create(model=GPT, input="x", previous_response_id=begun.id)
    assert after.id
    assert strict.seen("/responses")[-1]["previous_response_id"] != begun.id


@both
def test_a_refusal_comes_at_once(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as unstored:
        client.responses.create(model=model, input="x", background=True, store=False)
    assert unstored.value.param == "store"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="nobody/x", input="x", background=True)


@both
def test_a_failure_is_told(client: openai.OpenAI, model: str) -> None:
    begun = client.responses.create(model=model, input="[[status 400]]", background=True)
    ended = _ended(client, begun.id)
    assert ended.status == "failed"
    assert ended.error.code == "invalid_request"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, input="x", previous_response_id=begun.id)
    assert refused.value.code == "previous_response_not_found"


@both
def test_a_failed_attempt_is_not_the_end(client: openai.OpenAI, model: str) -> None:
    begun = client.responses.create(
        model=model, input=f"[[status 500 once]] {model}", background=True
    )
    assert _ended(client, begun.id).status == "completed"


@both
def test_a_stream_goes_on_without_its_client(
    served: Served, client: openai.OpenAI, model: str
) -> None:
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
        codes = [e.metadata["error_code"] for e in one.ledger.query(event_type="EXCHANGE")]
        assert codes == ["CANCELLED", "CANCELLED"]


def test_a_killed_process_leaves_a_failed_response(tmp_path: Path, upstream: Upstream) -> None:
    with _hanging(tmp_path, upstream, checked=False) as one, client_of(one) as client:
        begun = client.responses.create(
            model=CLAUDE, input="x [[hang]]", background=True, max_output_tokens=20
        )
        one.kill()
    with _hanging(tmp_path, upstream) as two, client_of(two, one.token) as client:
        ended = _ended(client, begun.id)
        assert ended.status == "failed"
        assert ended.error.code == "server_error"
        assert [e.metadata["dispatch_entry_id"] for e in two.ledger.query(
            event_type="EXCHANGE_ORPHANED"
        )]  # fmt: skip


def test_a_server_that_ends_says_so(tmp_path: Path, upstream: Upstream) -> None:
    with _hanging(tmp_path, upstream) as one, client_of(one) as client:
        begun = client.responses.create(
            model=CLAUDE, input="x [[hang]]", background=True, max_output_tokens=20
        )
    with _hanging(tmp_path, upstream) as two, client_of(two, one.token) as client:
        ended = client.responses.retrieve(begun.id)
        assert (ended.status, ended.error.code) == ("failed", "cancelled")  # type: ignore[union-attr]


def test_a_slow_answer_of_the_same_dialect_is_in_progress(tmp_path: Path) -> None:
    slow = wire.Raw(json.dumps(wire.response()).encode(), delay_s=1.5)
    with (
        wire.serve(slow) as behind,
        serving(tmp_path / "root", behind.url, toml=QUICK) as one,
        client_of(one) as client,
    ):
        begun = client.responses.create(model="gpt-4o", input="x", background=True)
        assert client.responses.retrieve(begun.id).status == "in_progress"
        events = list(client.responses.retrieve(begun.id, stream=True))
        assert events[-1].type == "response.completed"
        ended = client.responses.retrieve(begun.id)
        assert (ended.id, ended.status) == (begun.id, "completed")
        assert events[-1].response == ended
