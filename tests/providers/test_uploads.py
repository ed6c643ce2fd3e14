"""Bodies that are sent while they arrive: whole, cut off, answered early; through a proxy too."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator

import pytest

from remit.providers import HttpUpstream, ProviderError, Timeouts, Upload
from tests.support.object_store import ObjectStore, object_store
from tests.support.raw_http import PATIENT, Connection, raw_server

_PIECE = bytes(range(256)) * 256


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


async def _pieces(count: int, fault: Exception | None = None) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield _PIECE
        yield b""  # An empty chunk would end the body.
    if fault is not None:
        raise fault


def _client(store: ObjectStore, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> HttpUpstream:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    if proxied:
        monkeypatch.setenv("http_proxy", store.url)
    return HttpUpstream("http://provider.test/v1" if proxied else f"{store.url}/v1", {})


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_an_upload_arrives_whole(
    known: bool, proxied: bool, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, count = _client(store, proxied, monkeypatch), 100
    for _ in range(2):
        upload = Upload(_pieces(count), count * len(_PIECE) if known else None)
        reply = await client.send("POST", "/uploads/u/parts", upload, {}, PATIENT)
        assert (reply.status, await reply.read() != b"") == (200, True)
        asked = store.asked[-1]
        assert (asked.path, asked.size) == ("/v1/uploads/u/parts", count * len(_PIECE))
        assert asked.sha256 == hashlib.sha256(_PIECE * count).hexdigest()
        names = {name.lower() for name in asked.headers}
        assert ("content-length" in names, "transfer-encoding" in names) == (known, not known)
    await client.aclose()


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_an_upload_that_fails_is_never_whole(
    known: bool, proxied: bool, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, before = _client(store, proxied, monkeypatch), len(store.asked)
    fault = ProviderError("INVALID_REQUEST", "the client went away")
    upload = Upload(_pieces(20, fault), 21 * len(_PIECE) if known else None)
    with pytest.raises(ProviderError):
        await client.send("POST", "/uploads/u/parts", upload, {}, PATIENT)
    again = Upload(_pieces(1), None)
    reply = await client.send("POST", "/uploads/u/parts", again, {}, PATIENT)
    assert (reply.status, await reply.read() != b"") == (200, True)
    await reply.aclose()
    assert [one.size for one in store.asked[before:]] == [len(_PIECE)]
    await client.aclose()


async def test_an_early_answer_ends_the_upload(store: ObjectStore) -> None:
    client = HttpUpstream(f"{store.url}/v1", {})
    store.answer_early = True
    try:
        for _ in range(3):  # The connection is not used again.
            upload = Upload(_pieces(2_000), None)
            reply = await client.send("POST", "/uploads/u/parts", upload, {}, PATIENT)
            assert reply.status == 413
            await reply.read()
            await reply.aclose()
    finally:
        store.answer_early = False
    shown = await client.send("GET", "/uploads", b"", {}, PATIENT)
    assert shown.status == 200
    await shown.aclose()
    await client.aclose()


async def test_a_server_that_takes_nothing_is_a_timeout() -> None:
    async def silent(connection: Connection) -> None:
        await asyncio.sleep(60)

    async with raw_server(silent) as server:
        client = HttpUpstream(server.url, {})
        with pytest.raises(ProviderError) as caught:
            await client.send(
                "POST", "/uploads", Upload(_pieces(2_000), None), {}, Timeouts(20, 0.3, 0.3)
            )
        assert caught.value.code == "TIMEOUT"
        await client.aclose()
