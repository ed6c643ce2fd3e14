"""A witness on HTTP (C2SP tlog-witness, "HTTP Interface")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web

from remit.ledger.witness.errors import WitnessError
from remit.ledger.witness.witness import MAX_BODY_BYTES, Witness

_BODY_S = 30.0
_LEAVE_S = 5.0
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = logging.getLogger("remit.witness")


def witness_app(witness: Witness) -> web.Application:
    """``POST /add-checkpoint``, ``GET /healthz``, and ``GET /`` for people.

    The protocol has no authentication but the logs' signatures: whoever reaches the port may ask.

    Args:
        witness: who answers. The record is read and written in threads, never on the loop.
    """

    async def add_checkpoint(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.read()
        except TimeoutError:
            return _text(408, "The request did not come in time.")
        try:
            answer = await asyncio.to_thread(witness.add_checkpoint, body)
        except WitnessError as error:
            return _unusable(error)
        return web.Response(
            status=answer.status,
            body=answer.body,
            headers={**_HEADERS, "Content-Type": answer.content_type},
        )

    async def healthz(request: web.Request) -> web.Response:
        try:
            await asyncio.to_thread(witness.logs)
        except WitnessError as error:
            return _unusable(error)
        return _text(200, "ok")

    async def overview(request: web.Request) -> web.Response:
        try:
            logs = await asyncio.to_thread(witness.logs)
        except WitnessError as error:
            return _unusable(error)
        lines = [f"witness {witness.verifier_key.name}", f"key {witness.verifier_key}", ""]
        for key, seen in logs:
            lines += [f"log {key}", f"size {seen.size}", ""]
        return _text(200, "\n".join(lines).rstrip())

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/add-checkpoint", add_checkpoint)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/", overview)
    return app


async def serve(
    witness: Witness,
    *,
    stop: asyncio.Event,
    host: str = "127.0.0.1",
    port: int = 0,
    on_listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer until ``stop`` is set, then finish what was begun.

    Args:
        witness: who answers.
        stop: ends it.
        host: address to listen on.
        port: 0 for a free one.
        on_listening: called with the URL once requests are taken.

    Raises:
        WitnessError: the address cannot be listened on.
    """
    runner = web.AppRunner(witness_app(witness), access_log=None, shutdown_timeout=_LEAVE_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise WitnessError(
                f"{host} port {port} cannot be listened on: {error.strerror or error}.",
                next_step="Choose another --port, or stop what uses it.",
            ) from error
        bound = runner.addresses[0][1]
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
        await stop.wait()
    finally:
        await runner.cleanup()


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=_HEADERS)


def _unusable(error: WitnessError) -> web.Response:
    _log.error("%s", error)
    return _text(503, "The witness's record cannot be used now.")  # the path is not for everyone
