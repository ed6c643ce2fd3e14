"""A witness on a port, asked by a log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from remit.ledger.tlog import COSIGNATURE, SignedCheckpoint, Signer
from remit.ledger.witness import (
    Witness,
    WitnessError,
    WitnessState,
    request_cosignature,
    serve,
)
from tests.ledger.witness.logs import Log


@contextlib.asynccontextmanager
async def _running(witness: Witness, host: str = "127.0.0.1") -> AsyncIterator[str]:
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(witness, stop=stop, host=host, on_listening=listening.set_result)
    )
    await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
    try:
        if task.done():
            task.result()
        yield listening.result()
    finally:
        stop.set()
        if not task.done():
            await task


Handler = Callable[[web.Request], Awaitable[web.Response]]


@contextlib.asynccontextmanager
async def _answering(handler: Handler) -> AsyncIterator[str]:
    """A server that speaks as ``handler`` does, to see what a log makes of a bad witness."""
    app = web.Application()
    app.router.add_post("/add-checkpoint", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_pages(witness: Witness, log: Log) -> None:
    async with _running(witness) as url, aiohttp.ClientSession(url) as session:
        async with session.post("/add-checkpoint", data=log.request(0, 7)) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/plain"
            assert (await answer.text()).startswith("— witness.example/w1 ")
        async with session.post("/add-checkpoint", data=log.request(0, 9)) as answer:
            assert answer.status == 409
            assert answer.headers["Content-Type"] == "text/x.tlog.size"
            assert await answer.read() == b"7\n"
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get("/") as answer:
            text = await answer.text()
            assert str(witness.verifier_key) in text
            assert f"log {log.signer.verifier_key}\nsize 7\n" in text
        async with session.get("/add-checkpoint") as answer:
            assert answer.status == 405
        async with session.get("/other") as answer:
            assert answer.status == 404
        async with session.post("/add-checkpoint", data=b"x" * 1_000_100) as answer:
            assert answer.status == 413


async def test_a_log_that_grows(witness: Witness, log: Log, state: WitnessState) -> None:
    asked: list[tuple[int, int]] = []

    def prove(old: int, new: int) -> list[bytes]:
        asked.append((old, new))
        return log.prove(old, new)

    key = witness.verifier_key
    async with _running(witness) as url:
        for size in (0, 5, 5, 20, 40):
            signed = await request_cosignature(url, log.checkpoint(size), key, prove)
            assert signed.verify(log.signer.verifier_key).size == size
            assert len(signed.cosignatures([key])) == 1
            assert SignedCheckpoint.parse(str(signed)) == signed
        assert asked == [(5, 20), (20, 40)]
        assert state.seen(log.signer.name).size == 40


async def test_a_cut_or_rewritten_log(witness: Witness, log: Log, state: WitnessState) -> None:
    key, fork = witness.verifier_key, log.changed(3)
    async with _running(witness) as url:
        await request_cosignature(url, log.checkpoint(20), key, log.prove)
        with pytest.raises(WitnessError, match=r"has seen 20 entries.*has 12") as cut:
            await request_cosignature(url, log.checkpoint(12), key, log.prove)
        assert (cut.value.witness_size, cut.value.size) == (20, 12)
        assert cut.value.next_step
        with pytest.raises(WitnessError, match="a fork"):
            await request_cosignature(url, fork.checkpoint(20), key, fork.prove)
        with pytest.raises(WitnessError, match="not the first 20"):
            await request_cosignature(url, fork.checkpoint(30), key, fork.prove)
        with pytest.raises(WitnessError, match="not the first 20"):
            await request_cosignature(url, fork.checkpoint(31), key, fork.prove)
    assert state.seen(log.signer.name).root == log.root(20)


async def test_refusals(witness: Witness, log: Log) -> None:
    key = witness.verifier_key
    async with _running(witness) as url:
        other = Log.of(5, Signer.generate("log.example/other"))
        with pytest.raises(WitnessError, match="404"):
            await request_cosignature(url, other.checkpoint(5), key, other.prove)
        same_name = Log.of(5, Signer.generate(log.signer.name))
        with pytest.raises(WitnessError, match="403"):
            await request_cosignature(url, same_name.checkpoint(5), key, same_name.prove)
        another = Signer.generate(key.name, COSIGNATURE).verifier_key
        with pytest.raises(WitnessError, match="cosignature") as wrong:
            await request_cosignature(url, log.checkpoint(5), another, log.prove)
        assert "key" in wrong.value.next_step


def _size(text: str) -> web.Response:
    return web.Response(
        status=409, body=text.encode(), headers={"Content-Type": "text/x.tlog.size"}
    )


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda: web.Response(status=302, headers={"Location": "/add-checkpoint"}), "redirect"),
        (lambda: web.Response(body=b"x" * 70_000), "more than 65,536"),
        (lambda: web.Response(body=b""), "an invalid cosignature"),
        (lambda: _size("0\n"), "refuses the size that it named"),
        (lambda: _size("three\n"), "not a number"),
        (lambda: web.Response(status=422, text="no"), "status 422"),
        (lambda: web.Response(status=500, text="\x1b[31mred"), "status 500:  ?.31mred"),
    ],
)
async def test_answers_that_are_none(
    log: Log, witness: Witness, answer: Callable[[], web.Response], what: str
) -> None:
    async def speak(request: web.Request) -> web.Response:
        return answer()

    async with _answering(speak) as url:
        with pytest.raises(WitnessError, match=what) as failed:
            await request_cosignature(url, log.checkpoint(5), witness.verifier_key, log.prove)
        assert failed.value.witness_size is None
        assert "\x1b" not in str(failed.value)
