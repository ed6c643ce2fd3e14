"""A witness on a port, asked by a log."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import COSIGNATURE, Note, NoteSignature, SignedCheckpoint, Signer, TlogError
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


async def test_an_unusable_record(witness: Witness, log: Log, state: WitnessState) -> None:
    async with _running(witness) as url, aiohttp.ClientSession(url) as session:
        state.close()
        for path in ("/healthz", "/"):
            async with session.get(path) as answer:
                assert answer.status == 503
                assert "witness.db" not in await answer.text()
        async with session.post("/add-checkpoint", data=log.request(0, 7)) as answer:
            assert answer.status == 503
        with pytest.raises(WitnessError, match="503"):
            await request_cosignature(url, log.checkpoint(7), witness.verifier_key, log.prove)


async def test_a_port_in_use(witness: Witness) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(WitnessError, match="Cannot listen on"):
            await serve(witness, stop=asyncio.Event(), port=taken.getsockname()[1])


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


async def test_two_witnesses_together(witness: Witness, log: Log, state: WitnessState) -> None:
    second = Witness(
        Signer.generate("witness.example/w2", COSIGNATURE), [log.signer.verifier_key], state
    )
    async with _running(witness) as url, _running(second) as other:
        signed = await request_cosignature(url, log.checkpoint(5), witness.verifier_key, log.prove)
        signed = await request_cosignature(other, signed, second.verifier_key, log.prove)
    keys = [witness.verifier_key, second.verifier_key]
    assert [own for own, _ in signed.cosignatures(keys)] == keys


def _damaged(line: NoteSignature) -> NoteSignature:
    """Return a line with the last bit of its signature flipped; the last byte may be any."""
    flipped = bytes([line.signature[-1] ^ 1])
    return NoteSignature(line.name, line.key_id, line.signature[:-1] + flipped)


async def test_a_fresh_cosignature_replaces_the_line_of_its_key(
    witness: Witness, signer: Signer, log: Log, tmp_path: Path
) -> None:
    """A damaged line would else stay for good, in the answer and in the ledger."""
    key = witness.verifier_key
    with LedgerClient(tmp_path / "l.db", signer=log.signer) as ledger:
        ledger.write(LedgerEntry("NOTE", "S", "D", "r"))
        signed = SignedCheckpoint.parse(ledger.checkpoint())
        line = signed.cosign(signer, 5)
        damaged = _damaged(line)
        for old in (damaged, line):
            before = signed.with_signatures([old])
            ledger.transact(
                lambda tx, note=str(before): tx.execute("UPDATE checkpoints SET note = ?", (note,))
            )
            async with _running(witness) as url:
                fresh = await request_cosignature(url, before, key, log.prove)
            ((_, time),) = fresh.cosignatures([key])
            assert time > 5
            ledger.checkpoints.add_cosignature(fresh, key)
            stored = ledger.checkpoints.latest()
            assert stored is not None
            assert stored.cosignatures([key]) == [(key, time)]


def test_only_a_valid_later_line_of_the_witness_is_added(
    witness: Witness, signer: Signer, log: Log, tmp_path: Path
) -> None:
    with LedgerClient(tmp_path / "l.db", signer=log.signer) as ledger:
        ledger.write(LedgerEntry("NOTE", "S", "D", "r"))
        signed = SignedCheckpoint.parse(ledger.checkpoint())
        early, late, far = (signed.cosign(signer, time) for time in (5, 9, 99))
        damaged = _damaged(far)
        forged = log.signer.sign_note("another text\n")

        def add(*lines: NoteSignature) -> None:
            given = SignedCheckpoint(signed.checkpoint, Note(signed.note.text, lines))
            ledger.checkpoints.add_cosignature(given, witness.verifier_key)

        add(late, forged)
        add(early)
        for lines in ((damaged,), (forged,)):
            with pytest.raises(TlogError, match="cosignature of"):
                add(*lines)
        stored = ledger.checkpoints.latest()
        assert stored is not None
        assert stored.note.signatures == (*signed.note.signatures, late)


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
    assert sorted(item.reason for item in state.evidence(log.signer.name)) == [
        "fork", "unproven", "unproven",
    ]  # fmt: skip
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


@pytest.mark.parametrize(
    "url",
    [
        "",
        "witness.example",
        "file:///etc/passwd",
        "ftp://witness.example/",
        "http://",
        "http://[",
        "http://h/?q",
    ],
)
async def test_urls_that_are_none(log: Log, witness: Witness, url: str) -> None:
    with pytest.raises(InvalidInputError):
        await request_cosignature(url, log.checkpoint(5), witness.verifier_key, log.prove)


async def test_a_log_key_is_no_witness_key(log: Log) -> None:
    key = log.signer.verifier_key
    with pytest.raises(InvalidInputError):
        await request_cosignature("http://127.0.0.1/", log.checkpoint(5), key, log.prove)


async def test_nobody_there(log: Log, witness: Witness) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(WitnessError, match="cannot be reached") as failed:
            await request_cosignature(url, log.checkpoint(5), witness.verifier_key, log.prove)
        assert "secret" not in str(failed.value)


async def test_a_witness_that_hangs(log: Log, witness: Witness) -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async with _answering(hang) as url:
        with pytest.raises(WitnessError, match=r"did not answer within 0\.1 s"):
            await request_cosignature(
                url, log.checkpoint(5), witness.verifier_key, log.prove, timeout_s=0.1
            )


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
        (lambda: web.Response(body=b"<html>"), "an invalid cosignature"),
        (lambda: web.Response(body=b"\xff\xff\n"), "an invalid cosignature"),
        (lambda: _size("0\n"), "refuses the size that it named"),
        (lambda: _size("three\n"), "not a number"),
        (lambda: _size("03\n"), "not a number"),
        (lambda: _size("9" * 30), "not a number"),
        (lambda: web.Response(status=409, text="no"), "status 409"),
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


async def test_what_else_a_witness_may_answer(log: Log, signer: Signer) -> None:
    """Unknown keys are ignored, wherever they stand; a line more than lines is refused."""
    signed, key = log.checkpoint(5), signer.verifier_key
    other = Signer.generate("witness.example/other", COSIGNATURE)
    mine, theirs = signed.cosign(signer).line(), signed.cosign(other).line()
    stale = log.checkpoint(4).cosign(signer).line()
    far = signed.cosign(signer, 1 << 63).line()
    bodies = [
        (theirs + mine, True), (mine + theirs, True), (theirs, False), (stale, False),
        (stale + mine, False), (far, False), (f"more\n\n{mine}", False), (mine[:-1], False),
    ]  # fmt: skip
    for body, holds in bodies:

        async def speak(request: web.Request, body: str = body) -> web.Response:
            return web.Response(text=body)

        async with _answering(speak) as url:
            asking = request_cosignature(url, signed, key, log.prove)
            if not holds:
                with pytest.raises(WitnessError):
                    await asking
                continue
            got = await asking
            assert [item.name for item in got.note.signatures] == [log.signer.name, key.name]


async def test_a_fork_answered_with_its_size(log: Log, signer: Signer) -> None:
    """Other witnesses may name the size there too."""

    async def speak(request: web.Request) -> web.Response:
        return _size("5\n")

    async with _answering(speak) as url:
        with pytest.raises(WitnessError, match="a fork"):
            await request_cosignature(url, log.checkpoint(5), signer.verifier_key, log.prove)
        with pytest.raises(WitnessError, match="refuses the size that it named") as failed:
            await request_cosignature(url, log.checkpoint(6), signer.verifier_key, log.prove)
        assert failed.value.witness_size is None
