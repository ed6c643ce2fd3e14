"""The corpus is legal, says what it claims to say, and covers what it must."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from remit.providers.sse import SseParser
from tests.support.wire_corpus import CORPUS, WireExchange


def _strict(text: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_name_is_its_own_and_every_dialect_is_covered() -> None:
    assert len({exchange.name for exchange in CORPUS}) == len(CORPUS) >= 60
    # A server may find the answer by the request.
    assert len({exchange.request for exchange in CORPUS}) == len(CORPUS)
    counts = Counter((exchange.endpoint, exchange.streamed) for exchange in CORPUS)
    for endpoint, least in (
        ("openai.chat", 25), ("openai.responses", 15), ("anthropic.messages", 20),
    ):  # fmt: skip
        assert counts[endpoint, False] + counts[endpoint, True] >= least
        assert counts[endpoint, True] >= 5


@pytest.mark.parametrize("exchange", CORPUS, ids=lambda exchange: exchange.name)
def test_an_exchange(exchange: WireExchange) -> None:
    request = _strict(exchange.request)
    assert (request.get("stream") is True) == exchange.streamed
    if not exchange.streamed:
        assert "usage" in _strict(exchange.answer) or not exchange.asks_usage
        return
    parser = SseParser()
    events = parser.feed(exchange.answer)
    assert parser.end() is None
    assert b"".join(event.raw for event in events) == exchange.answer
    values = [_strict(event.data) for event in events if event.data not in (b"", b"[DONE]")]
    usage = [
        value for value in values
        if value.get("usage") or (value.get("response") or {}).get("usage")
    ]  # fmt: skip
    assert bool(usage) == exchange.asks_usage
    if exchange.endpoint == "openai.chat":
        assert events[-1].data == b"[DONE]"
        asked = (request.get("stream_options") or {}).get("include_usage", False)
        assert asked == exchange.asks_usage
    else:
        named = [event for event in events if event.data]
        assert [event.name for event in named] == [value["type"] for value in values]
