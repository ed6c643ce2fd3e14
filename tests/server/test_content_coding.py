"""Request bodies in a content coding are decoded, bounded while they expand, or refused."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection

import brotli
import pytest

from tests.server.conftest import QUICK
from tests.server.running import FORM, Served, form, new_session, prompt
from tests.support import wire

zstd = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)

_MOST = 8_388_608
BEFORE = "behind"
TOML = QUICK + f"\n[server]\nmax_body_bytes = {_MOST}\n"


def _raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


_ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip in capitals": ("GZip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "two members of gzip": ("gzip", lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its head": ("deflate", _raw_deflate),
    "br": ("br", lambda body: brotli.compress(body, quality=5)),
    "zstd": ("zstd", zstd.compress),
    "zstd in two frames": ("zstd", lambda body: zstd.compress(body[:9]) + zstd.compress(body[9:])),
    "identity": ("identity", bytes),
    "gzip, after which nothing": ("gzip, Identity", gzip.compress),
}
encoders = pytest.mark.parametrize("encoder", _ENCODERS)


@pytest.fixture(autouse=True)
def _answers(behind: wire.WireServer) -> None:
    behind.script = [{**wire.completion("ok"), "id": "file-1"}]


def _ask(served: Served, path: str, coding: str, body: bytes) -> tuple[int, bytes]:
    status, raw, _ = served.ask(
        "POST", path, body,
        headers={"content-encoding": coding, "x-remit-session": new_session()},
    )  # fmt: skip
    return status, raw


def _request(text: str = "hi") -> bytes:
    return json.dumps(prompt(text)).encode()


@encoders
@pytest.mark.parametrize("text", ["hi", "word " * 400_000], ids=["small", "large"])
def test_a_decoded_body_reaches_the_provider(
    served: Served, behind: wire.WireServer, encoder: str, text: str
) -> None:
    coding, encode = _ENCODERS[encoder]
    status, raw = _ask(served, "/v1/chat/completions", coding, encode(_request(text)))
    assert status == 200, raw
    received = behind.calls[-1]
    assert "content-encoding" not in {name.lower() for name in received.headers}
    assert received.body["messages"][0]["content"] == text


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_broken_body_is_refused(served: Served, behind: wire.WireServer, coding: str) -> None:
    encoded = _ENCODERS[coding][1](_request("a text that is long enough to cut " * 9))
    before = len(behind.calls)
    for body in (encoded[:-5], _request(), encoded + b"{{{{", b""):
        status, raw = _ask(served, "/v1/chat/completions", coding, body)
        assert status == 400, raw
        assert json.loads(raw)["error"]["code"] in ("invalid_request", "invalid_json")
    assert len(behind.calls) == before


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_is_refused_and_takes_no_memory(served: Served, coding: str) -> None:
    _ask(served, "/v1/chat/completions", "gzip", gzip.compress(_request("x" * 6_000_000)))
    before = served.rss_bytes()
    bomb = _ENCODERS[coding][1](b" " * 200_000_000)
    assert len(bomb) < _MOST
    status, raw = _ask(served, "/v1/chat/completions", coding, bomb)
    assert status == 413, raw
    assert served.rss_bytes() - before < 4 * _MOST


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/files"])
def test_other_paths_decode_too(served: Served, path: str) -> None:
    if path == "/v1/conversations":
        body, kind = b'{"metadata": {"a": "b"}}', "application/json"
    else:
        body, kind = form(purpose="batch", file=b"{}"), FORM["content-type"]
    with closing(HTTPConnection(*served.address, timeout=60)) as connection:
        connection.request("POST", path, zstd.compress(body), {
            "authorization": f"Bearer {served.token}", "content-encoding": "zstd",
            "content-type": kind,
        })  # fmt: skip
        answer = connection.getresponse()
        raw = answer.read()
    assert answer.status == 200, raw


def test_an_unknown_coding_or_a_wide_window_is_refused(served: Served) -> None:
    for coding in ("lzw", "gzip, zstd", "gzip, gzip", "br;q=1", "\xe9"):
        status, raw = _ask(served, "/v1/messages", coding, gzip.compress(_request()))
        assert (status, json.loads(raw)["error"]["code"]) == (415, "unsupported_encoding"), coding
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    body = packer.compress(_request()) + packer.flush()
    assert _ask(served, "/v1/chat/completions", "zstd", body)[0] == 400
