"""Bodies of many megabytes made to take much memory: a server takes a few times their bytes."""

from __future__ import annotations

import pytest

from tests.server.running import Served, prompt

_SIZE = 8_000_000
_MOST = 100_000_000  # of a process, above what it had before

_CHAT = '{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"hi"}]'
_PATHS = {
    "/v1/chat/completions": (_CHAT, "messages"),
    "/v1/messages": (_CHAT, "messages"),
    "/v1/messages/count_tokens": (_CHAT, "messages"),
    "/v1/responses": ('{"model":"gpt-4o-mini","max_output_tokens":5,"input":"hi"', "input"),
    "/v1/embeddings": ('{"model":"text-embedding-3-small","input":"hi"', "input"),
    "/v1/moderations": ('{"input":"hi"', "input"),
    "/v1/messages/batches": ('{"requests":[]', "requests"),
    "/v1/conversations": ('{"items":[]', "items"),
}
_UNITS = {
    "objects": "{}",
    "lists": "[]",
    "members": '{"":0}',
    "deep": "[" * 900 + "]" * 900,
    "numbers": "1e5",
    "texts": '""',
    "commas in texts": '","',
}


def _body(head: str, name: str, unit: str) -> bytes:
    count = (_SIZE - len(head)) // (len(unit) + 1)
    return f'{head},"{name}":[{",".join([unit] * count)}]}}'.encode()


@pytest.mark.parametrize("path", _PATHS)
def test_what_takes_more_memory_than_bytes_is_refused(served: Served, path: str) -> None:
    served.grown()
    head, asked = _PATHS[path]
    units = list(_UNITS.items()) if path == "/v1/chat/completions" else [*_UNITS.items()][1:2]
    for number, (kind, unit) in enumerate(units):
        name = asked if number % 2 else "x"
        status, answer, _ = served.ask("POST", path, _body(head, name, unit))
        assert status == 400, (kind, name)
        assert b"more than" in answer, answer[:200]
    assert served.grown() < _MOST


def test_deep_and_repeated_members_are_refused(served: Served) -> None:
    for body in (
        _CHAT + ',"x":' + "[" * _SIZE,
        _CHAT + ',"x":' + "[" * 2000 + "]" * 2000 + "}",
        _CHAT + ',"x":0' * 60_000 + "}",
        _CHAT[:-1] + ',{"role":"user","content":"hi"}' * 20_000 + "]}",
    ):
        assert served.ask("POST", "/v1/chat/completions", body.encode())[0] == 400
    assert served.grown() < _MOST


def test_long_texts_are_taken(served: Served, session: str) -> None:
    """Whatever stands in them: what is counted is values, and not what looks like some."""
    head = {"x-remit-session": session}
    for text in ("{},[" * 500_000, '\\"", {[' * 300_000, "\\\\\n," * 300_000):
        answer = served.ask("POST", "/v1/chat/completions", prompt(text), headers=head)
        assert answer[0] == 200, answer[1][:200]
    lone = b'{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"%b"}]}'
    raw = lone % (b"\\ud800" * 1_000_000)
    assert served.ask("POST", "/v1/chat/completions", raw, headers=head)[0] == 200
    assert served.grown() < _MOST
    kept = served.entries("EXCHANGE", session)
    assert len(kept) == 4


def test_a_form_of_many_parts(served: Served) -> None:
    part = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n'
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for path in ("/v1/files", "/v1/images/edits", "/v1/audio/transcriptions"):
        for raw in (
            part * 100_000 + b"--x--\r\n",
            b"--x\r\n" + b"a: b\r\n" * 2_000_000,
            b"\r\n--x" * 2_000_000,
        ):
            assert served.ask("POST", path, raw, headers=kind)[0] == 400, path
    assert served.grown() < _MOST
