"""Calls over HTTP, whatever a client sends and a provider answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from remit.gateway.budget import audit_budgets
from remit.kernel.json_text import load
from tests.server.cases import PATHS, Case, run
from tests.server.running import Served, serving
from tests.support.raw_provider import RawProvider, raw_provider, says, whole
from tests.support.wire_corpus import CORPUS, WireExchange
from tests.support.wire_mutations import ODD, mutated

TOML = """
[gateway]
max_retries = 0
"""
MODELS = {
    "openai.chat": "gpt-4o-mini",
    "openai.responses": "gpt-4o-mini",
    "anthropic.messages": "claude-sonnet-4-5",
}
FIELDS = {"openai.chat": "messages", "openai.responses": "input", "anthropic.messages": "messages"}
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_ENDPOINT = {path: name for name, path in PATHS.items()}
_USUAL: dict[tuple[str, bool], WireExchange] = {}
for _exchange in CORPUS:
    _USUAL.setdefault((_exchange.endpoint, _exchange.streamed), _exchange)


def _usual(connection: socket.socket, path: str, body: bytes) -> bool:
    """A plain answer in the dialect that was spoken."""
    streamed = load(body).get("stream") is True
    exchange = _USUAL[_ENDPOINT[path], streamed]
    connection.sendall(whole(exchange.answer, exchange.content_type))
    return True


@pytest.fixture(scope="module")
def provider() -> Iterator[RawProvider]:
    with raw_provider() as running:
        running.answer = _usual
        yield running


@pytest.fixture(scope="module")
def served(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("fuzzed") / "root"
    with serving(root, provider.url, toml=TOML) as running:
        yield running
        audit = audit_budgets(running.ledger)
        assert not audit.differences, audit


@pytest.fixture(autouse=True)
def others(served: Served) -> Iterator[None]:
    """Whatever one key's calls were like, another's plain call passes right after."""
    yield
    key = served.key()
    for dialect, model in (("openai", "gpt-4o-mini"), ("anthropic", "claude-sonnet-4-5")):
        status, said, _ = served.call(dialect, "hello", model=model, token=key.key)
        assert status == 200, said


def test_any_field_of_a_body_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in range(600):
        exchange = CORPUS[seed % len(CORPUS)]
        at, body = mutated(exchange.request, seed)
        cases.append(Case(exchange.endpoint, body, f"{exchange.name} {at} {seed}"))
    came = run(served, provider, cases)
    assert sum(each.status == 200 for each in came) > 300


def test_any_field_of_an_answer_may_hold_anything(served: Served, provider: RawProvider) -> None:
    wholes = [exchange for exchange in CORPUS if not exchange.streamed]
    cases = []
    for seed in range(600):
        exchange = wholes[seed % len(wholes)]
        at, body = mutated(exchange.answer, seed)
        cases.append(
            Case(exchange.endpoint, exchange.request, f"{exchange.name} {at} {seed} {body!r}",
                 says(whole(body)), body)
        )  # fmt: skip
    for each in run(served, provider, cases):
        assert each.status == 200, str(each)
        assert each.body == each.case.expected, str(each)
        assert each.texts["answer"] == each.body, str(each)


def test_every_limit_and_count_of_a_body_may_hold_anything(
    served: Served, provider: RawProvider
) -> None:
    cases = []
    for endpoint, model in MODELS.items():
        asked = {"model": model, FIELDS[endpoint]: [{"role": "user", "content": "hi"}]}
        if endpoint == "anthropic.messages":
            asked["max_tokens"] = 50
        for name in ("stream", "stream_options", "n", "max_tokens", "max_completion_tokens",
                     "max_output_tokens", "best_of", "tools", "max_tool_calls", "service_tier",
                     "prediction", "modalities", "thinking", "temperature", "store", "metadata",
                     "previous_response_id", "instructions", "system", "background"):  # fmt: skip
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
    for endpoint, model in MODELS.items():
        head = b'{"model":"' + model.encode() + b'","max_tokens":50,"'
        field = FIELDS[endpoint].encode()
        message = b'{"role":"user","content":"%d"}'
        many = b",".join(message % number for number in range(20_000))
        tool = b'{"type":"function","name":"f%d","function":{"name":"f%d"}}'
        tools = b",".join(tool % (number, number) for number in range(5_000))
        long = b'{"role":"user","content":"' + b"x" * 25_000_000 + b'"}'
        spread = b'{"role":"user","content":[' + b'{"type":"text","text":"y"},' * 30_000 + b"{}]}"
        members = b"".join(b',"m%d":%d' % (number, number) for number in range(50_000))
        for about, messages, more in (
            ("20,000 messages", many, b""),
            ("5,000 tools", message % 1, b',"tools":[' + tools + b"]"),
            ("25 MB", long, b""),
            ("30,000 blocks", spread, b""),
            ("50,000 members", message % 1, members),
        ):
            body = head + field + b'":[' + messages + b"]" + more + b"}"
            cases.append(Case(endpoint, body, f"{endpoint} {about}"))
    for case in cases:
        [came] = run(served, provider, [case])
        assert came.status == 200, str(came)
    assert served.rss_bytes() < before + 700_000_000
