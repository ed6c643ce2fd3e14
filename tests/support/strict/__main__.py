"""``python -m tests.support.strict``: its URL is printed; it ends with its standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

from aiohttp import web

from tests.support.strict.server import StrictProvider


async def _main() -> None:
    runner = web.AppRunner(StrictProvider().app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=256).start()
    print(json.dumps({"url": "http://{}:{}".format(*runner.addresses[0][:2])}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    asyncio.run(_main())
