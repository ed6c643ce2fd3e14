"""One ``Idempotency-Key``, one call: whatever is sent again is answered from the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from remit.gateway.budget import BudgetScope, TokenBudgeter
from tests.server.running import (
    PATHS,
    Served,
    ended_well,
    failed,
    new_session,
    prompt,
    said,
    streaming,
)
from tests.server.sdks import MODELS
from tests.support.upstream import Upstream

four = pytest.mark.parametrize(("dialect", "model"), [(d, m) for d in PATHS for m in MODELS])
TOOLS: Any = {
    "openai": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}],
    "anthropic": [{"name": "w", "input_schema": {"type": "object"}}],
}
dialects = pytest.mark.parametrize("dialect", PATHS)


def _key(session: str) -> dict[str, str]:
    return {"idempotency-key": f"idem-{session}"}


def _text(dialect: str, body: bytes) -> str:
    value = json.loads(body)
    if dialect == "openai":
        return str(value["choices"][0]["message"]["content"])
    return str(value["content"][0]["text"])


def _spent(served: Served, key_id: str) -> Any:
    (status,) = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key_id))
    return status.spent_nano, status.spent_tokens, status.turns


@four
def test_a_call_sent_twice(
    anywhere: Served, upstream: Upstream, session: str, dialect: str, model: str
) -> None:
    key, before = anywhere.key(), upstream.count()

    def call(text: str = "hello", name: str = session) -> tuple[int, bytes, Mapping[str, str]]:
        tools = {"tools": TOOLS[dialect]} if "tool" in text else {}
        return anywhere.call(
            dialect, text, model=model, session=session, token=key.key, headers=_key(name), **tools
        )

    status, body, headers = call()
    assert status == 200
    assert "x-remit-replayed" not in headers
    spent = _spent(anywhere, key.key_id)
    assert spent[0] > 0
    for _ in range(2):
        again_status, again, again_headers = call()
        assert again_status == 200
        assert again_headers["x-remit-replayed"] == "true"
        assert again_headers["x-remit-exchange"] == headers["x-remit-exchange"]
        assert float(again_headers["x-remit-cost-usd"]) == 0
        assert _text(dialect, again) == "You said: hello"
        assert again == body  # byte for byte, also where it was translated
    assert _spent(anywhere, key.key_id) == spent
    assert upstream.count() == before + 1
    anywhere.exchange(session)
    # Calls of tools are replayed whole.
    text = '[[tool=w:{"city": "Paris"} parallel=2]]'
    (_, body, _), (_, again, _) = (call(text, f"{session}-tool") for _ in range(2))
    assert (again, body.count(b"Paris")) == (body, 2)
    assert upstream.count() == before + 2


@four
def test_a_stream_asked_for_twice(
    anywhere: Served, upstream: Upstream, session: str, dialect: str, model: str
) -> None:
    key, before = anywhere.key(), upstream.count()
    spent = None
    for number in range(3):
        with streaming(
            anywhere, dialect, "hello", model=model, session=session, token=key.key,
            headers=_key(session),
        ) as it:  # fmt: skip
            values = it.values()
        assert ended_well(values)
        assert said(values) == "You said: hello"
        assert ("x-remit-replayed" in it.comments) == (number > 0)
        spent = spent or _spent(anywhere, key.key_id)
    assert it.comments["x-remit-exchange"] == anywhere.exchange(session).id
    assert _spent(anywhere, key.key_id) == spent
    assert upstream.count() == before + 1
    # Whole, it is the same call still.
    _, body, headers = anywhere.call(
        dialect, "hello", model=model, session=session, token=key.key, headers=_key(session)
    )
    assert headers["x-remit-replayed"] == "true"
    assert _text(dialect, body) == "You said: hello"


@dialects
def test_duplicates_at_once(
    anywhere: Served, upstream: Upstream, session: str, dialect: str
) -> None:
    before = upstream.count()

    def call(_: int) -> tuple[int, bytes, Mapping[str, str]]:
        return anywhere.call(dialect, "hi [[delay=0.4]]", session=session, headers=_key(session))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(call, range(8)))
    assert upstream.count() == before + 1
    fresh = [a for a in answers if a[0] == 200 and "x-remit-replayed" not in a[2]]
    assert len(fresh) == 1
    for status, body, headers in answers:
        if status == 409:
            assert json.loads(body)["error"]["code"] == "idempotency_conflict"
            assert int(headers["retry-after"]) >= 1
        else:
            assert status == 200
            assert headers["x-remit-exchange"] == fresh[0][2]["x-remit-exchange"]
    anywhere.exchange(session)


@dialects
@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "user", "content": "something else"}]},
        {"max_tokens": 51},
        {"temperature": 0.3},
        {"top_p": 0.5},
        {"model": "claude-sonnet-4-5"},
        {"tools": TOOLS},
    ],
)
def test_another_body_under_the_same_key(
    anywhere: Served, upstream: Upstream, session: str, dialect: str, change: dict[str, Any]
) -> None:
    assert anywhere.call(dialect, "hello", session=session, headers=_key(session))[0] == 200
    before = upstream.count()
    if "tools" in change:
        change = {"tools": TOOLS[dialect]}
    body = prompt("hello", **{"max_tokens": 50, **change})
    headers = {"x-remit-session": session, **_key(session)}
    status, raw, _ = anywhere.ask("POST", PATHS[dialect], body, headers=headers)
    assert status == 422, raw
    assert json.loads(raw)["error"]["code"] == "idempotency_mismatch"
    assert upstream.count() == before
    assert len(anywhere.entries("PROMPT_REJECTED", session)) == 1


@dialects
def test_a_call_that_failed_frees_its_key(
    anywhere: Served, upstream: Upstream, session: str, dialect: str
) -> None:
    before = upstream.count()
    text = f"hello [[status=400 once tag={session}]]"
    first = anywhere.call(dialect, text, session=session, headers=_key(session))
    second = anywhere.call(dialect, text, session=session, headers=_key(session))
    third = anywhere.call(dialect, text, session=session, headers=_key(session))
    assert (first[0], second[0], third[0]) == (400, 200, 200)
    assert "x-remit-replayed" not in second[2]
    assert third[2]["x-remit-replayed"] == "true"
    assert upstream.count() == before + 2


@dialects
def test_an_answer_that_was_erased(anywhere: Served, upstream: Upstream, dialect: str) -> None:
    session = new_session()
    assert anywhere.call(dialect, "hello", session=session, headers=_key(session))[0] == 200
    anywhere.ledger.erase(session_id=session, reason="asked to", requested_by="test")
    before = upstream.count()
    for stream in (False, True):
        status, body, _ = anywhere.call(
            dialect, "hello", session=session, headers=_key(session), stream=stream
        )
        assert status == 410
        assert json.loads(body)["error"]["code"] == "idempotency_erased"
        assert "erased" in json.loads(body)["error"]["message"]
    assert upstream.count() == before


def test_a_stream_that_was_cut_frees_its_key(
    anywhere: Served, upstream: Upstream, session: str
) -> None:
    before = upstream.count()
    text = f"hello [[cut=1 once tag={session}]]"
    for good in (False, True):
        with streaming(anywhere, "openai", text, session=session, headers=_key(session)) as it:
            values = it.values()
        assert failed(values) is not good
    assert said(values).startswith("You said: hello")
    assert upstream.count() == before + 2


def test_a_refusal_frees_its_key_and_another_virtual_key_has_its_own(
    anywhere: Served, upstream: Upstream, session: str
) -> None:
    narrow, named = anywhere.key(models=("claude-*",)).key, _key(session)
    refused = anywhere.call("openai", "x", session=session, token=narrow, headers=named)
    assert refused[0] == 403
    before = upstream.count()
    for key in (narrow, anywhere.key().key, anywhere.key().key):
        status, _, headers = anywhere.call(
            "openai", "x", session=new_session(), token=key, headers=named,
            model="claude-sonnet-4-5",
        )  # fmt: skip
        assert (status, "x-remit-replayed" in headers) == (200, False)
    assert upstream.count() == before + 3
