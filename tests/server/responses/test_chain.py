"""Chains of responses that go on from the ledger: over providers, kills and processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from remit.gateway.budget import Amount, BudgetScope, TokenBudgeter
from remit.kernel.settings import default_settings
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.strict import CLAUDE, GPT, Strict, client_of
from tests.server.test_routes import TOML
from tests.support.local_model import local_weights
from tests.support.upstream import Upstream
from tests.support.waiting import until


def _exchange(served: Served, session: str) -> dict[str, Any]:
    return served.entries("EXCHANGE", session)[-1].metadata


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
@pytest.mark.parametrize("limited", [False, True])
def test_a_tool_that_an_earlier_item_brought_is_bounded_in_every_later_call(
    served: Served, strict: Strict, kind: str, limited: bool
) -> None:
    tool = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "64g"}}
    item: dict[str, Any] = {"type": kind, "tools": [tool]}
    if kind == "additional_tools":
        item["role"] = "developer"
    asked: dict[str, Any] = {"model": GPT, "input": [item, {"role": "user", "content": "one"}]}
    user = new_session().lower()
    rich, poor = served.key(user=user), served.key(user=user, usd_nano=500_000_000)
    for words in ("two", "three"):
        status, raw, _ = served.ask("POST", "/v1/responses", asked, token=rich.key)
        assert status == 200, raw
        before = len(strict.seen("/responses"))
        answer = json.loads(raw)
        asked = {"model": GPT, "input": words, "previous_response_id": answer["id"]}
        if limited:
            status, raw, _ = served.ask("POST", "/v1/responses", asked, token=poor.key)
            assert (status, json.loads(raw)["error"]["code"]) == (402, "budget_exhausted")
            assert len(strict.seen("/responses")) == before
    status, raw, _ = served.ask("POST", "/v1/responses", asked, token=rich.key)
    assert status == 200, raw
    sent = strict.seen("/responses")[-1]
    assert "previous_response_id" not in sent
    assert [each.get("tools") for each in sent["input"]].count([tool]) == 1


def test_a_chain_is_continued_by_the_provider_that_keeps_it(served: Served, strict: Strict) -> None:
    """It is told the id, also after an item that brought tools of the client."""
    session = new_session()
    tool = {"type": "namespace", "name": "n", "description": "",
            "tools": [{"type": "custom", "name": "exec"}]}  # fmt: skip
    item = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    asked = {"model": GPT, "input": [item, {"role": "user", "content": "one"}]}
    status, raw, _ = served.ask("POST", "/v1/responses", asked)
    assert status == 200, raw
    asked = {"model": GPT, "input": "two", "previous_response_id": json.loads(raw)["id"]}
    named = {"x-remit-session": session}
    status, raw, _ = served.ask("POST", "/v1/responses", asked, headers=named)
    assert status == 200, raw
    assert strict.seen("/responses")[-1] == asked
    assert "changed" not in _exchange(served, session)
    assert json.loads(raw)["previous_response_id"] == asked["previous_response_id"]


def test_all_but_instructions_goes_on(
    served: Served, client: openai.OpenAI, strict: Strict
) -> None:
    session = new_session()
    named = {"x-remit-session": session}
    first = client.responses.create(
        model=CLAUDE, input="[[say a wren]]", instructions="Be brief.", extra_headers=named
    )
    second = client.responses.create(
        model=CLAUDE, input="[[say an owl]]", previous_response_id=first.id, extra_headers=named
    )
    third = client.responses.create(
        model=GPT, input="which?", previous_response_id=second.id, extra_headers=named
    )
    sent = strict.seen("/responses")[-1]
    assert "Be brief" not in json.dumps(sent)
    assert "previous_response_id" not in sent
    said = [json.dumps(item) for item in sent["input"]]
    assert len(said) == 5
    for item, words in zip(said, ("a wren", "a wren", "an owl", "an owl", "which?"), strict=True):
        assert words in item
    changed = {each["path"]: each for each in _exchange(served, session)["changed"]}
    assert changed["/previous_response_id"]["was"] == json.dumps(second.id)
    assert changed["/input"]["was"] == '"which?"'
    assert third.previous_response_id is None  # as the provider said it
    (item,) = client.responses.input_items.list(third.id).to_dict()["data"]  # type: ignore[misc]
    assert item["content"] == [{"type": "input_text", "text": "which?"}]


def test_what_a_provider_sealed_goes_to_it_alone(client: openai.OpenAI, strict: Strict) -> None:
    more: Any = {"reasoning": {"effort": "low", "summary": "auto"}}
    thought = client.responses.create(
        model="o4-mini", input="[[think]] a", include=["reasoning.encrypted_content"], **more
    )
    assert thought.output[0].type == "reasoning"
    sealed = thought.output[0].encrypted_content
    assert sealed
    other = client.responses.create(model=CLAUDE, input="b", previous_response_id=thought.id)
    assert sealed not in json.dumps(strict.seen()[-1])
    back = client.responses.create(model="o4-mini", input="c", previous_response_id=other.id)
    assert sealed in json.dumps(strict.seen()[-1])
    assert back.output_text
    claude = client.responses.create(
        model=CLAUDE, input="[[think]] d", max_output_tokens=8000, **more
    )
    signatures = [item.encrypted_content for item in claude.output if item.type == "reasoning"]
    assert signatures
    assert signatures[0]
    client.responses.create(
        model=CLAUDE, input="e", previous_response_id=claude.id, max_output_tokens=8000, **more
    )
    blocks = [
        block
        for message in strict.seen("/messages")[-1]["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    assert any(block["type"] == "thinking" and block["signature"] for block in blocks)
    client.responses.create(model="o4-mini", input="f", previous_response_id=claude.id)
    assert "signature" not in json.dumps(strict.seen("/responses")[-1])


def test_a_chain_over_providers_and_a_killed_server(strict: Strict, tmp_path: Path) -> None:
    """Begun on OpenAI's, gone on with on Anthropic's after ``kill -9``, ended on a model in here,
    each time by the id of the response before, in a process that was not there before."""
    root = tmp_path / "root"
    with serving(root, strict.url, toml=QUICK) as first, client_of(first) as client:
        token = first.token
        one = client.responses.create(model=GPT, input="[[say The password is heron.]]")
        first.kill()
    with serving(root, strict.url) as second, client_of(second, token) as client:
        two = client.responses.create(
            model=CLAUDE, input="[[say The colour is blue.]]", previous_response_id=one.id
        )
        assert [message["role"] for message in strict.seen("/messages")[-1]["messages"]] == [
            "user", "assistant", "user",
        ]  # fmt: skip
        assert "heron" in json.dumps(strict.seen("/messages")[-1])
        assert two.output_text == "The colour is blue."
        second.kill()
    local_weights()
    with serving(root, strict.url) as third, client_of(third, token) as client:
        local = f"local/{default_settings().local.model}"
        ended = client.responses.create(
            model=local, input="Say hello.", previous_response_id=two.id, max_output_tokens=24
        )
        assert ended.output_text
        exchange = third.ledger.read(str(_last_exchange(third)))
        said = json.dumps(exchange.metadata["prompt"])
        assert "heron" in said
        assert "blue" in said
        stream = client.responses.create(
            model=local, input="Again.", previous_response_id=ended.id, max_output_tokens=24,
            stream=True,
        )  # fmt: skip
        event = list(stream)[-1]  # the model may well have more to say
        assert event.type in ("response.completed", "response.incomplete")
        last = event.response
        assert client.responses.retrieve(last.id).output_text == last.output_text
        back = client.responses.create(model=GPT, input="bye", previous_response_id=last.id)
        assert back.output_text
        assert len(strict.seen("/responses")[-1]["input"]) == 9


def _last_exchange(served: Served) -> str:
    (found,) = served.ledger.query(event_type="EXCHANGE", order="desc", limit=1)
    return found.id


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


@pytest.fixture(scope="module")
def routed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("routed") / "root"
    with serving(root, upstream.url, toml=TOML) as running:
        yield running


def test_what_has_been_erased_is_told(routed: Served) -> None:
    with client_of(routed) as client:
        first = client.responses.create(model="up", input="a heron is a bird")
        second = client.responses.create(model="up", input="x", previous_response_id=first.id)
        client.responses.delete(first.id)
        for model in ("auto", "many", "up"):
            with pytest.raises(openai.BadRequestError) as refused:
                client.responses.create(model=model, input="y", previous_response_id=second.id)
            assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_an_erased_history_is_not_recorded_again(
    request: pytest.FixtureRequest, store: str
) -> None:
    served = request.getfixturevalue("served" if store == "sqlite" else "on_postgres")
    key, ledger = served.key(tokens=6_000), served.ledger
    of_history, of_call = new_session(), new_session()

    def ask(session: str, **body: Any) -> tuple[int, Any]:
        status, raw, _ = served.ask(
            "POST", "/v1/responses", {"model": CLAUDE, **body}, token=key.key,
            headers={"x-remit-session": session},
        )  # fmt: skip
        return status, json.loads(raw)

    status, first = ask(of_history, input="Bartleby lives here", max_output_tokens=50)
    assert status == 200
    TokenBudgeter(ledger).reserve(
        BudgetScope(key_id=key.key_id), "held", amount=Amount(5_000), turns=0
    )
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(
            ask, of_call, input="and?", previous_response_id=first["id"], max_output_tokens=3_500
        )
        time.sleep(1)
        assert not waits.done()
        ledger.erase(session_id=of_history, reason="a request")
        TokenBudgeter(ledger).release("held")
        status, refused = waits.result()
    assert (status, refused["error"]["code"]) == (400, "previous_response_not_found")
    assert not served.entries("DISPATCH", of_call)
    assert not list(ledger.query(text="Bartleby"))
