"""Calls over HTTP, whatever a client sends, and wherever it hangs up."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.kernel.json_text import load, load_exact
from tests.server.cases import FIELDS, MODELS, PATHS, Case, run, without_remits
from tests.server.running import Served, new_session, prompt, serving
from tests.support.raw_provider import CASE_HEADER, RawProvider, says, whole
from tests.support.soak import is_soak, sample
from tests.support.waiting import until
from tests.support.wire_corpus import CORPUS, WireExchange
from tests.support.wire_mutations import ODD, mutated, paths


@pytest.mark.soak
def test_any_field_of_a_body_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in sample(range(600), 80):
        exchange = CORPUS[seed % len(CORPUS)]
        # Another model may have another provider, which knows nothing of cases.
        places = [path for path in paths(load(exchange.request)) if path[0] != "model"]
        at, body = mutated(exchange.request, seed, places[seed // len(CORPUS) * 7 % len(places)])
        cases.append(Case(exchange.endpoint, body, f"{exchange.name} {at} {seed}"))
    came = run(served, provider, cases)
    assert sum(each.status == 200 for each in came) > len(came) / 2


def test_every_limit_of_a_body_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for endpoint, model in MODELS.items():
        asked = {"model": model, FIELDS[endpoint]: [{"role": "user", "content": "hi"}]}
        if endpoint == "anthropic.messages":
            asked["max_tokens"] = 50
        for name in ("stream", "stream_options", "n", "max_tokens", "max_completion_tokens",
                     "max_output_tokens", "best_of", "tools", "max_tool_calls", "service_tier",
                     "prediction", "modalities", "thinking", "temperature", "store", "metadata",
                     "previous_response_id", "instructions", "system"):  # fmt: skip
            body = {name_: value for name_, value in asked.items() if name_ != name}
            text = json.dumps(body).encode()[:-1]
            cases += [
                Case(
                    endpoint, text + b', "' + name.encode() + b'": ' + odd + b"}", f"{name} {odd!r}"
                )
                for odd in ODD
            ]
    limited = served.key(tokens=10**12, usd_nano=10**15).key
    for token, some in (("", cases[::5]), (limited, cases[1::5])):
        came = run(served, provider, some, token)
        assert sum(each.status == 200 for each in came) > len(came) / 2


def test_texts_at_the_limits_of_json(served: Served, provider: RawProvider) -> None:
    cases = []
    for endpoint, model in MODELS.items():
        head = b'{"model":"' + model.encode() + b'","max_tokens":50,"' + FIELDS[endpoint].encode()
        hello = b'[{"role":"user","content":"hi"}]}'
        odd = {
            "empty": b"", "white space": b" \n", "a BOM": b"\xef\xbb\xbf" + head + b'":' + hello,
            "cut": head, "a list": b"[]", "a text": b'"x"', "null": b"null", "NaN": b"NaN",
            "NaN within": head + b'":[NaN]}', "two": head + b'":' + hello + b"{}",
            "UTF-16": (head + b'":' + hello).decode().encode("utf-16"),
            "not UTF-8": head + b'":"\xff\xfe"}', "a control": head + b'":"\x01"}',
            "CESU": head + b'":[{"role":"user","content":"\xed\xa0\x80"}]}',
            "space": b"\r\n\t " * 50 + head + b'"\n:\t' + hello.replace(b",", b" \r, \n") + b"\t\r",
            "names given twice": b'{"model":"nobody","messages":[],' + head[1:] + b'":' + hello,
            "5000 digits": head + b'":' + b"1" * 5000 + b"}",
        }  # fmt: skip
        for depth in (90, 127, 128, 500, 1000, 1023, 1024, 1025, 5000, 200_000):
            odd[f"{depth} deep"] = head + b'":' + b"[" * depth + b"]" * depth + b"}"
            odd[f"{depth} deep beside"] = (
                head
                + b'":'
                + hello[:-1]
                + b',"metadata":'
                + b'{"a":' * depth
                + b"1"
                + b"}" * (depth + 1)
            )
        cases += [Case(endpoint, body, f"{endpoint} {about}") for about, body in odd.items()]
    run(served, provider, cases)


def test_long_bodies(served: Served, provider: RawProvider) -> None:
    before = served.rss_bytes()
    cases = []
    for at, (endpoint, model) in enumerate(MODELS.items()):
        head = b'{"model":"' + model.encode() + b'","max_tokens":50,"'
        field = FIELDS[endpoint].encode()
        message = b'{"role":"user","content":"%d"}'
        many = b",".join(message % number for number in range(20_000))
        tool = b'{"type":"function","name":"f%d","function":{"name":"f%d"}}'
        tools = b",".join(tool % (number, number) for number in range(5_000))
        long = b'{"role":"user","content":"' + b"x" * 25_000_000 + b'"}'
        spread = b'{"role":"user","content":[' + b'{"type":"text","text":"y"},' * 30_000 + b"{}]}"
        members = b"".join(b',"m%d":%d' % (number, number) for number in range(50_000 - 3))
        kinds = (
            ("20,000 messages", many, b""),
            ("5,000 tools", message % 1, b',"tools":[' + tools + b"]"),
            ("25 MB", long, b""),
            ("30,000 blocks", spread, b""),
            ("50,000 members", message % 1, members),
            ("one member too many", message % 1, members + b',"m":1'),
        )
        for about, messages, more in kinds if is_soak() else kinds[at :: len(MODELS)]:
            body = head + field + b'":[' + messages + b"]" + more + b"}"
            cases.append(Case(endpoint, body, f"{endpoint} {about}"))
    for case in cases:
        [came] = run(served, provider, [case])
        assert came.status == (400 if "too many" in case.about else 200), str(came)
    assert served.rss_bytes() < before + 700_000_000


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN = next(exchange for exchange in CORPUS if exchange.name == "chat: plain")
_EVENTS = 30
_WHOLE = 1_000_000
"""Bytes to read: more than an answer has."""


def _event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "gpt-4o-mini", "choices": [choice]}).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _slowly(connection: socket.socket, path: str, body: bytes) -> bool:
    """A stream of :data:`_EVENTS` pieces, 2 ms apart; or a whole answer after as long."""
    if b'"stream": true' not in body:
        time.sleep(0.002 * _EVENTS)
        connection.sendall(whole(PLAIN.answer))
        return True
    connection.sendall(STREAM)
    for _ in range(_EVENTS):
        connection.sendall(_chunk(_event("x")))
        time.sleep(0.002)
    connection.sendall(_chunk(_event("", "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def _request(served: Served, session: str, *, stream: bool) -> bytes:
    named = (f"x-remit-session: {session}", f"{CASE_HEADER}: {session}", "connection: close")
    return served.request(prompt(stream=stream), *named)


def _hang_up(served: Served, request: bytes, sent: int, read: int, *, reset: bool) -> None:
    """Send so much of a request, read so much of its answer, and go."""
    with served.connected(request[:sent]) as connection:
        # An answer may be shorter than what is wanted of it.
        connection.settimeout(60 if read == _WHOLE else 0.5)
        with contextlib.suppress(TimeoutError):
            while read > 0 and (part := connection.recv(min(read, 4096))):
                read -= len(part)
        if reset:
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_who_hangs_up_leaves_a_pair(served: Served, provider: RawProvider) -> None:
    left: list[tuple[str, bytes, int, int, bool]] = []
    for number in range(160):
        session = new_session()
        provider.answers[session] = _slowly
        request = _request(served, session, stream=number % 4 != 0)
        at = number // 4
        sent = len(request) if at > 8 else len(request) * at // 9
        read = _WHOLE if at == 39 else max(0, at - 10) * 160
        left.append((session, request, sent, read, number % 3 == 0))
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(_hang_up, served, r, sent, read, reset=reset)
                     for _, r, sent, read, reset in left]:  # fmt: skip
            done.result()
    until(lambda: not served.ledger.orphans())
    ends = set()
    for session, *_ in left:
        exchanges = served.entries("EXCHANGE", session)
        assert len(exchanges) == len(served.entries("DISPATCH", session)) <= 1
        for exchange in exchanges:
            ends.add(exchange.metadata.get("error_code", "success"))
            # Some are cancelled before they are sent: those cost nothing.
            if exchange.metadata["outcome"] != "success" and provider.got.get(session):
                assert exchange.metadata["input_tokens"] > 0
    assert ends == {"CANCELLED", "success"}


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_before_a_connection_pays_nothing(tmp_path: Path, stream: bool) -> None:
    """The provider's machine answers no more, so no request can have arrived."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        contextlib.ExitStack() as waiting,
    ):
        for _ in range(4):
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        with serving(tmp_path / "root", url) as served:
            session = new_session()
            with served.connected(_request(served, session, stream=stream)):
                until(lambda: served.entries("DISPATCH", session))
                time.sleep(0.2)
            until(lambda: served.entries("EXCHANGE", session))
            metadata = served.exchange(session).metadata
            assert (metadata["error_code"], metadata["output_tokens"]) == ("CANCELLED", 0), metadata


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
    assert metadata["wire"] == exchange.endpoint
    assert [path for path, _ in came.got] == [PATHS[exchange.endpoint]]
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
