"""No JSON in any place of a request or an answer makes another exception than the dialects' own."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from remit.providers import ProviderError
from remit.providers.dialects import (
    DialectError,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from remit.providers.wire import BodyError
from tests.providers.dialects import fields
from tests.providers.dialects.bodies import (
    ALL_ENDPOINTS,
    ANSWERS,
    ENDPOINTS,
    ODD,
    REQUESTS,
    places,
    with_at,
    without,
)
from tests.support.soak import sample


def _variants(value: Any) -> list[Any]:
    variants = []
    for path in places(value):
        variants.append(without(value, path))
        variants += [with_at(value, path, odd) for odd in ODD]
    return variants


@pytest.mark.soak
@pytest.mark.parametrize("source", ALL_ENDPOINTS)
def test_a_request_of_any_shape_is_translated_or_refused(source: str) -> None:
    outcomes = {"translated": 0, "refused": 0}
    for body in [*sample(_variants(REQUESTS[source]), 350), *ODD]:
        try:
            call = read_request(source, body)
        except DialectError as error:
            outcomes["refused"] += 1
            assert error.message
            continue
        for target in ALL_ENDPOINTS:
            with contextlib.suppress(DialectError):
                written = write_request(target, call, model="claude-x", max_output_tokens=64)
                assert written["model"] == "claude-x"
                outcomes["translated"] += 1
    assert min(outcomes.values()) > 100


@pytest.mark.soak
@pytest.mark.parametrize("source", ALL_ENDPOINTS)
def test_an_answer_of_any_shape_is_translated_or_refused(source: str) -> None:
    translated = 0
    calls = [read_request(client, REQUESTS[client]) for client in ALL_ENDPOINTS]
    for body in [*sample(_variants(ANSWERS[source]), 200), *ODD]:
        try:
            answer = read_answer(source, body)
        except (DialectError, ProviderError):
            continue
        for call in calls:
            written = write_answer(
                call.endpoint, answer, call, answer_id="resp_1", created=1, model="m"
            )
            if call.endpoint != "bedrock.converse":  # Converse has no id.
                assert written.get("id", written.get("responseId")) == "resp_1"
            translated += 1
    assert translated > 100


_TARGETS = [("claude-x", ""), ("gemini-3", "gemini"), ("mistral-large", "mistral"),
            ("gpt-5.6", "openai"), ("m", "")]  # fmt: skip
_BODIES = [
    (source, model, name, path, odd)
    for source in ENDPOINTS
    for model, name in _TARGETS
    for path in places(REQUESTS[source])
    for odd in ODD
]


@pytest.mark.soak
def test_a_body_of_any_shape_is_fitted_to_its_provider_or_passed_on() -> None:
    endpoints = {endpoint.name: endpoint for endpoint in fields.ENDPOINTS.values()}
    for source, model, name, path, odd in sample(_BODIES, 400):
        body = with_at(REQUESTS[source], path, odd)
        endpoint = endpoints[source]
        with contextlib.suppress(ProviderError, BodyError):
            if isinstance(body, dict):
                headers = {"anthropic-version": "2026-10-21"}
                assert fields.sent(endpoint, endpoint, body, model, name, headers=headers)


@pytest.mark.parametrize("name", ["gemini", "openai"])
def test_a_schema_as_deep_as_a_body_may_be_is_passed_on(name: str) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(120):
        deep = {"properties": {"a": deep}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}]
    sent = fields.sent(fields.CHAT, fields.CHAT, {"tools": tools}, "m", name).body.value
    assert sent["tools"] == tools
