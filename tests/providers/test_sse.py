"""Event streams by the rules of WHATWG HTML, without losing a byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from remit.providers import ProviderError
from remit.providers.sse import MAX_EVENT_BYTES, SseEvent, SseParser

_PARTS = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"data:", b"data: ", b"data", b"event:", b"event: ping", b"id: 7",
     b": keep", b":", b"retry: 3", b"x", b" ", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80",
     b'{"a":1}', b"\n\n", b"\r\n\r\n", b"\x00", b"unknown: y"]
)  # fmt: skip
_STREAMS = st.lists(_PARTS, max_size=40).map(b"".join) | st.binary(max_size=60)


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    last = parser.end()
    return events if last is None else [*events, last]


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def dispatched(body: bytes) -> list[tuple[str, bytes]]:
    """What a browser would give for ``body``: the standard's algorithm, line by line."""
    given_events: list[tuple[str, bytes]] = []
    name, data = "", b""
    lines = re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))[:-1]
    for line in lines:
        if not line:
            if data:
                given_events.append((name, data.removesuffix(b"\n")))
            name, data = "", b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data += value + b"\n"
    return given_events


@given(_STREAMS, st.lists(st.integers(0, 200), max_size=12))
@example(b"data: x\r\n\r\n", [10])
@example(b"\xef\xbb\xbf\r\r", [3, 4])
@example(b"\r\n\ndata\n\n", [1])
def test_no_byte_is_lost_however_a_stream_is_cut(body: bytes, places: list[int]) -> None:
    events = parse(*cut(body, places))
    assert b"".join(event.raw for event in events) == body
    assert events == parse(body)
    assert all(event.complete for event in events[:-1])


@given(_STREAMS)
@example(b"data: a\rdata: b\r\r")
def test_what_is_read_is_what_the_standard_says(body: bytes) -> None:
    ours = [(event.name, event.data) for event in parse(body) if event.complete]
    # An event whose data is empty is given by us alone, as one whose bytes pass through.
    theirs = [(name, data) for name, data in dispatched(body) if data]
    assert [(name, data) for name, data in ours if data] == theirs


@given(_STREAMS, st.integers(4080, 4110), st.lists(st.integers(0, 10_000), max_size=12))
def test_long_events_are_found_the_same(body: bytes, length: int, places: list[int]) -> None:
    body = b"data: " + b"x" * length + body
    events = parse(*cut(body, places))
    assert b"".join(event.raw for event in events) == body
    assert events == parse(body)
    single = parse(*(body[at : at + 1] for at in range(len(body))))
    assert single == events


@pytest.mark.parametrize("size", [1 << 20, MAX_EVENT_BYTES + 1])
def test_an_event_above_the_bound_is_an_error(size: int) -> None:
    parser = SseParser()
    with pytest.raises(ProviderError, match="longer than 64 MiB") as caught:
        for _ in range(MAX_EVENT_BYTES // size + 1):
            parser.feed(b"x" * size)
    assert (caught.value.code, caught.value.maybe_billed) == ("SERVER_ERROR", True)
    with pytest.raises(ProviderError):
        SseParser().feed(b"x" * MAX_EVENT_BYTES + b"\n\n")
