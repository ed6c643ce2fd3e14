"""Calls over HTTP, whatever a provider answers."""

from __future__ import annotations

import gzip
import zlib

import pytest

from remit.providers.sse import SseParser
from remit.providers.wire import answer_facts
from tests.server.cases import PATHS, Came, Case, run, without_remits
from tests.server.running import Served
from tests.support.raw_provider import RawProvider, pieces, says, whole
from tests.support.soak import sample
from tests.support.wire_corpus import CORPUS
from tests.support.wire_mutations import ODD, mutated, odd_stream

WHOLE = [exchange for exchange in CORPUS if not exchange.streamed]
FIRST = [next(e for e in WHOLE if e.endpoint == name) for name in PATHS]
STREAMED = [exchange for exchange in CORPUS if exchange.streamed]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.soak
def test_any_field_of_an_answer_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in sample(range(800), 80):
        exchange = WHOLE[seed % len(WHOLE)]
        at, body = mutated(exchange.answer, seed)
        cases.append(
            Case(exchange.endpoint, exchange.request, f"{exchange.name} {at} {seed} {body!r}",
                 says(whole(body)), (at, body))
        )  # fmt: skip
    for each in run(served, provider, cases):
        _came_whole(each, each.case.expected[1])


def _came_whole(each: Came, body: bytes) -> None:
    """The client got the provider's bytes; the record holds them; nothing was billed as 0."""
    assert each.status == 200, str(each)
    assert each.body == body, str(each)
    assert each.entry is not None
    assert each.texts["answer"] == body, str(each)
    metadata = each.entry.metadata
    if metadata["outcome"] == "success":
        assert metadata["cost_certainty"] in ("measured", "upper_bound"), str(each)
        assert metadata["input_tokens"] > 0, str(each)
        if metadata["cost_certainty"] == "measured":
            usage = json_usage(each)
            assert usage, str(each)
        else:
            assert metadata["output_tokens"] > 0, str(each)


def json_usage(each: Came) -> object:
    """The usage that the answer states."""
    return ((each.entry and each.entry.metadata["answer"]) or {}).get("usage")


def test_answers_that_are_no_answers(served: Served, provider: RawProvider) -> None:
    exchange = WHOLE[0]
    odd: list[bytes] = [
        *ODD, b"", b" ", b"{", b"<html>no</html>", b"\xff\xfe\x00", b"ok", b"NaN", b'{"a":NaN}',
        b"[" * 5000 + b"]" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"1" * 5000,
        exchange.answer + b"x", b'{"choices":' + b"[" * 900,
        exchange.answer.decode().encode("utf-16"), b'"\xed\xa0\x80"', b"data: {}\n\n", b"\x00" * 99,
        *[exchange.answer[:cut] for cut in range(1, len(exchange.answer), 9)],
        b'{"usage":{"input_tokens":5,"output_tokens":5,"prompt_tokens":5,"completion_tokens":5,'
        b'"server_tool_use":{' + b",".join(b'"x%d_requests":1' % n for n in range(9000))
        + b'}},"choices":[{"message":{"content":"a"}}],"content":[{"type":"text","text":"a"}]}',
        b'{"id":"' + b"i" * 100_000 + b'","model":"' + b"m" * 100_000 + b'","choices":[]}',
    ]  # fmt: skip
    cases = []
    for number, body in enumerate(odd):
        for asked in FIRST:
            kind = ("application/json", "text/html", "", "text/plain; charset=x")[number % 4]
            cases.append(Case(asked.endpoint, asked.request, f"{body[:300]!r}",
                              says(whole(body, kind)), body))  # fmt: skip
    for each in run(served, provider, cases):
        assert each.entry is not None
        said = each.entry.metadata
        if each.status == 502:  # The answer states an error, which a client gets as one.
            assert b"error" in each.case.expected, str(each)
            assert said["outcome"] != "success", str(each)
        else:
            assert (each.status, each.body) == (200, each.case.expected), str(each)
        is_free = b"error" in each.case.expected and said["input_tokens"] == 0
        assert is_free or said["cost_certainty"] == "upper_bound", str(each)


def test_http_at_its_edges(served: Served, provider: RawProvider) -> None:
    """Bytes that a client may not be given are an error of the provider's, in its dialect."""
    cases = []
    for asked in FIRST:
        good = asked.answer
        zipped = gzip.compress(good)
        chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
        bombed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(100)) + bomb.flush()
        coded = "content-encoding: {}\r\n"
        for about, data, status in (
            ("continue first", b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + whole(good), 200),
            ("hints first", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + whole(good), 200),
            ("gzip", whole(zipped, more=coded.format("gzip")), 200),
            ("deflate", whole(zlib.compress(good), more=coded.format("deflate")), 200),
            ("gzip that is none", whole(good, more=coded.format("gzip")), 502),
            ("gzip cut", whole(zipped[:-9], more=coded.format("gzip")), 502),
            ("br", whole(good, more=coded.format("br")), 502),
            ("a bomb", whole(bombed, more=coded.format("gzip")), 502),
            ("no length", b"HTTP/1.1 200 OK\r\n\r\n" + good, 200),
            ("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\n" + good, 200),
            ("no type", b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(good) + good, 200),
            ("cut", head + b"%d\r\n\r\n" % (len(good) + 5) + good, 502),
            ("cut in the head", head[:30], 502),
            ("chunks cut", chunked + b"%x\r\n%s\r\n" % (len(good), good), 502),
            ("chunks wrong", chunked + b"zz\r\n" + good, 502),
            ("a length that is none", head + b"x\r\n\r\n" + good, 502),
            ("two lengths", head + b"3\r\ncontent-length: 5\r\n\r\n" + good, 502),
            ("no HTTP", b"SSH-2.0-OpenSSH_9.0\r\n", 502),
            ("nothing", b"", 502),
            ("a redirect", whole(good, status="302 Found", more="location: http://x/\r\n"), 502),
            ("not modified", whole(b"", status="304 Not Modified"), 502),
            ("a long head", whole(good, more="x-long: " + "y" * 400_000 + "\r\n"), 502),
            ("204", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
            ("202", whole(good, status="202 Accepted"), 202),
            ("418", whole(good, status="418 Teapot"), 418),
            ("400", whole(b"<html>no", "text/html", "400 Bad"), 400),
            ("429", whole(b'{"error":5}', status="429 Slow", more="retry-after: 1e9\r\n"), 429),
            ("500", whole(b'{"error":{"message":[]}}', status="500 x"), 500),
            ("503", whole(b"", status="503 x", more="retry-after: soon\r\n"), 503),
            ("599", whole(b"\xff" * 999, status="599 x"), 599),
            ("999", whole(b"{}", status="999 x"), 502),
            ("66 MB", whole(b" " * (66 << 20)), 502),
            ("odd headers", whole(good, more="x-request-id: \xe9\t\x80\r\nrequest-id:\r\n"), 200),
        ):  # fmt: skip
            stays = status in (200, 202, 204) and about not in ("no length", "HTTP/1.0")
            cases.append(
                Case(asked.endpoint, asked.request, about, says(data, stays_open=stays),
                     (status, good))
            )  # fmt: skip
    # Failures in a row would open the circuit: each is followed by what is none.
    wrong = []
    for case in cases:
        fine = Case(case.endpoint, case.body, "fine")
        each, _ = (run(served, provider, [one], own_errors=False)[0] for one in (case, fine))
        status, good = case.expected
        if each.status != status or each.broke or (status in (200, 202) and each.body != good):
            wrong.append(str(each))
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
def test_any_event_of_a_stream_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in sample(range(700), 70):
        exchange = STREAMED[seed % len(STREAMED)]
        about, stream = odd_stream(exchange, seed)
        parts = [stream]
        if seed % 3 == 0:
            parts = [stream[at : at + 1 + seed % 7] for at in range(0, len(stream), 1 + seed % 7)]
        cases.append(
            Case(exchange.endpoint, exchange.request, f"{exchange.name} {seed} {about} {stream!r}",
                 pieces(STREAM, parts), stream)
        )  # fmt: skip
    came = _kept_apart(served, provider, cases)
    wrong = [f"{problem}: {each}" for each in came for problem in _wrong_in_stream(each)]
    assert not wrong, f"{len(wrong)} of {len(came)}:\n" + "\n".join(wrong[:12])
    assert (
        sum(each.entry.metadata["outcome"] == "success" for each in came if each.entry)
        > len(came) * 4 / 7
    )


def _kept_apart(served: Served, provider: RawProvider, cases: list[Case]) -> list[Came]:
    """Run cases in lots of two, each followed by a plain call: failures do not add up."""
    came = []
    for at in range(0, len(cases), 2):
        some = cases[at : at + 2]
        came += run(served, provider, some, own_errors=False)
        fine = {case.endpoint: Case(case.endpoint, case.body, "fine") for case in some}
        assert all(each.status == 200 for each in run(served, provider, [*fine.values()]))
    return came


def _without_last(stream: bytes) -> bytes:
    """A stream without its last event, and without what came of one that is not whole."""
    events = SseParser().feed(stream)
    return b"".join(event.raw for event in events[:-1])


def _wrong_in_stream(each: Came) -> list[str]:
    """What is wrong with a stream, for what its provider sent."""
    stream, entry = each.case.expected, each.entry
    assert entry is not None
    metadata = entry.metadata
    if each.status != 200 or each.broke:
        return [] if each.status in (400, 429, 502) and each.body else ["not passed on"]
    asked = any("include_usage" in change["path"] for change in metadata.get("changed", []))
    own = without_remits(each.body)
    wrong = []
    if metadata["outcome"] == "success":
        if not asked and not stream.startswith(own):
            wrong.append("other bytes")
        usage = answer_facts(metadata["wire"], metadata["answer"]).usage
        known = None if usage is None else (usage.input_tokens, usage.output_tokens)
        if known is None and metadata["cost_certainty"] != "upper_bound":
            wrong.append("usage was taken for known")
        if known is not None and known != (metadata["input_tokens"], metadata["output_tokens"]):
            wrong.append(f"not billed as {known}")
    elif b"error" not in own[-600:]:
        wrong.append("the client is not told")
    elif not asked and not stream.startswith(_without_last(own)):
        wrong.append("other bytes before the error")
    # An error before any output is a refusal, which is free.
    if metadata["input_tokens"] <= 0 and metadata["cost_certainty"] != "measured":
        wrong.append("no input")
    return wrong
