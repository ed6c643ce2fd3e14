"""Chains through routes: which model answers is another's choice each time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from tests.server.running import Served, new_session, serving
from tests.server.strict import client_of
from tests.server.test_routes import TOML
from tests.support.upstream import Upstream
from tests.support.waiting import until


@pytest.fixture(scope="module")
def routed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("routed") / "root"
    with serving(root, upstream.url, toml=TOML) as running:
        yield running


def test_a_chain_goes_on_through_a_route(routed: Served) -> None:
    session = new_session()
    named = {"x-remit-session": session}
    with client_of(routed) as client:
        first = client.responses.create(model="auto", input="a heron", extra_headers=named)
        assert client.responses.retrieve(first.id) == first
        second = client.responses.create(
            model="auto", input="which?", previous_response_id=first.id, extra_headers=named
        )
        with client.responses.stream(
            model="auto", input="and?", previous_response_id=second.id, extra_headers=named
        ) as stream:
            third = stream.get_final_response()
        assert client.responses.retrieve(third.id).output_text == third.output_text
        begun = client.responses.create(
            model="auto", input="x", previous_response_id=third.id, background=True
        )
        until(lambda: client.responses.retrieve(begun.id).status == "completed")
    sent = routed.entries("EXCHANGE", session)[-1].metadata
    assert sent["outcome"] == "success"
    assert "a heron" in json.dumps(sent["prompt"])


@pytest.mark.parametrize("route", ["many", "staged"])
def test_an_answer_of_several_models_has_no_id_of_its_own(routed: Served, route: str) -> None:
    with client_of(routed) as client:
        first = client.responses.create(model="up", input="a heron")
        answer = client.responses.create(model=route, input="x", previous_response_id=first.id)
        assert answer.output_text
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(answer.id)
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model=route, input="x", background=True)


def test_what_has_been_erased_is_told(routed: Served) -> None:
    with client_of(routed) as client:
        first = client.responses.create(model="up", input="a heron is a bird")
        second = client.responses.create(model="up", input="x", previous_response_id=first.id)
        client.responses.delete(first.id)
        for model in ("auto", "many", "up"):
            with pytest.raises(openai.BadRequestError) as refused:
                client.responses.create(model=model, input="y", previous_response_id=second.id)
            assert refused.value.code == "previous_response_not_found"
