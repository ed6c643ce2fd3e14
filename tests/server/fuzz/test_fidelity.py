"""What a client sends goes out, what a provider sends comes back, and both are on record."""

from __future__ import annotations

import json

import pytest

from remit.kernel.json_text import load_exact
from tests.server.cases import Case, run, without_remits
from tests.server.running import Served
from tests.support.raw_provider import RawProvider, says, whole
from tests.support.wire_corpus import CORPUS, WireExchange

_TOLD = {"x-request-id": "req-1", "request-id": "req-2", "x-ratelimit-remaining-tokens": "77"}
_MORE = "".join(f"{name}: {value}\r\n" for name, value in _TOLD.items())


@pytest.fixture(scope="module")
def limited(fuzzed: tuple[Served, RawProvider]) -> str:
    """A key with a limit in US dollars."""
    return fuzzed[0].key(usd_nano=10**15).key


@pytest.mark.parametrize("exchange", CORPUS, ids=lambda exchange: exchange.name)
def test_bytes_go_out_and_come_back(
    fuzzed: tuple[Served, RawProvider], limited: str, exchange: WireExchange
) -> None:
    answer = says(whole(exchange.answer, exchange.content_type, more=_MORE))
    headers = dict(exchange.headers)
    case = Case(exchange.endpoint, exchange.request, answer=answer, headers=headers)
    # Sound has no price and searches have no bound: a limit in US dollars refuses both.
    is_unbounded = any(field in exchange.request for field in (b'"audio"', b'"web_search_options"'))
    (came,) = run(*fuzzed, [case], "" if is_unbounded else limited)
    assert came.status == 200, came
    assert came.entry is not None
    metadata = came.entry.metadata
    if exchange.streamed:
        asked = any("include_usage" in change["path"] for change in metadata.get("changed", []))
        events = exchange.answer.split(b"\n\n")
        theirs = [event for event in events if not (asked and _is_usage(event))]
        assert without_remits(came.body) == b"\n\n".join(theirs)
    else:
        assert came.body == exchange.answer == came.texts["answer"]
        assert came.headers.items() >= _TOLD.items()
        assert metadata["answer"] == load_exact(exchange.answer)


def _is_usage(event: bytes) -> bool:
    """Return True for the event that only Remit asked for."""
    data = event.partition(b"data:")[2].strip()
    if not data.startswith(b"{"):
        return False
    value = json.loads(data)
    return value.get("choices") == [] and value.get("usage") is not None
