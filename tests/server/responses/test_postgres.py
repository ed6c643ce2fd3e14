"""The same on PostgreSQL: chains, conversations, the background, erasure."""

from __future__ import annotations

import openai
import pytest

from tests.server.running import Served
from tests.server.strict import CLAUDE, GPT, client_of
from tests.support.waiting import until


def test_all_of_it(on_postgres: Served) -> None:
    with client_of(on_postgres) as client:
        one = client.responses.create(model=GPT, input="[[say a tern]]")
        two = client.responses.create(model=CLAUDE, input="x", previous_response_id=one.id)
        begun = client.responses.create(
            model=GPT, input="[[say y]]", previous_response_id=two.id, background=True
        )
        until(lambda: client.responses.retrieve(begun.id).status == "completed")
        assert client.responses.cancel(begun.id).output_text == "y"
        made = client.conversations.create(items=[{"role": "user", "content": "hello"}])
        client.responses.create(model=CLAUDE, input="z", conversation=made.id)
        assert len(client.conversations.items.list(made.id).data) == 3
        client.responses.delete(two.id)
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model=CLAUDE, input="x", previous_response_id=begun.id)
        assert refused.value.code == "previous_response_not_found"
        for odd in ("resp_%00", "resp_" + "x" * 300):
            assert on_postgres.ask("GET", f"/v1/responses/{odd}")[0] == 404
        body = {"model": GPT, "input": "x", "previous_response_id": "resp_\x00"}
        assert on_postgres.ask("POST", "/v1/responses", body)[0] == 400
