"""An application on loopback, served by a thread of the test's own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

__all__ = ["listening"]


@contextmanager
def listening(app: web.Application) -> Iterator[str]:
    """Serve an application until the block ends; give its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(app, shutdown_timeout=0.2)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return "http://{}:{}".format(*runner.addresses[0][:2])

    async def stop() -> None:
        await runner.cleanup()
        await loop.shutdown_asyncgens()

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
