"""Calls over HTTP, whatever a client sends."""

from __future__ import annotations

import json

from remit.kernel.json_text import load
from tests.server.cases import FIELDS, MODELS, Case, run
from tests.server.running import Served
from tests.support.raw_provider import RawProvider
from tests.support.wire_corpus import CORPUS
from tests.support.wire_mutations import ODD, mutated, paths


def test_any_field_of_a_body_may_hold_anything(served: Served, provider: RawProvider) -> None:
    cases = []
    for seed in range(600):
        exchange = CORPUS[seed % len(CORPUS)]
        # Another model may have another provider, which knows nothing of cases.
        places = [path for path in paths(load(exchange.request)) if path[0] != "model"]
        at, body = mutated(exchange.request, seed, places[seed // len(CORPUS) * 7 % len(places)])
        cases.append(Case(exchange.endpoint, body, f"{exchange.name} {at} {seed}"))
    came = run(served, provider, cases)
    assert sum(each.status == 200 for each in came) > 300


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
    for endpoint, model in MODELS.items():
        head = b'{"model":"' + model.encode() + b'","max_tokens":50,"'
        field = FIELDS[endpoint].encode()
        message = b'{"role":"user","content":"%d"}'
        many = b",".join(message % number for number in range(20_000))
        tool = b'{"type":"function","name":"f%d","function":{"name":"f%d"}}'
        tools = b",".join(tool % (number, number) for number in range(5_000))
        long = b'{"role":"user","content":"' + b"x" * 25_000_000 + b'"}'
        spread = b'{"role":"user","content":[' + b'{"type":"text","text":"y"},' * 30_000 + b"{}]}"
        members = b"".join(b',"m%d":%d' % (number, number) for number in range(50_000 - 3))
        for about, messages, more in (
            ("20,000 messages", many, b""),
            ("5,000 tools", message % 1, b',"tools":[' + tools + b"]"),
            ("25 MB", long, b""),
            ("30,000 blocks", spread, b""),
            ("50,000 members", message % 1, members),
            ("one member too many", message % 1, members + b',"m":1'),
        ):
            body = head + field + b'":[' + messages + b"]" + more + b"}"
            cases.append(Case(endpoint, body, f"{endpoint} {about}"))
    for case in cases:
        [came] = run(served, provider, [case])
        assert came.status == (400 if "too many" in case.about else 200), str(came)
    assert served.rss_bytes() < before + 700_000_000
