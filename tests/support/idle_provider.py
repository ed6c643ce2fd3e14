"""``python -m tests.support.idle_provider``: a provider whose streams begin and bring nothing more.

Its URL is printed. A request that holds ``drip`` gets a comment each second, one that holds
``hi`` a whole answer at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource

from tests.support.raw_provider import whole
from tests.support.wire import completion

_BEGUN = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
)
_ANSWER = whole(json.dumps(completion("fine")).encode())


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = re.search(rb"content-length: *([0-9]+)", head.lower())
            body = await reader.readexactly(int(size[1]) if size else 0)
            if b'"hi"' in body or not body:
                writer.write(_ANSWER)
                continue
            writer.write(_BEGUN)
            while b"drip" in body and not writer.is_closing():
                await asyncio.sleep(1)
                writer.write(b":\n\n")
            await reader.read()
            break
    writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=10_000)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_main())
