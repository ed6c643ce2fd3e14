"""A provider that counts what reached it and answers as it is told, however wrong.

The user's text says how: ``[[tag=c7 words=40 do=plain]]``. Each line of the log is one call: its
tag, and what the provider bills for it, in tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HONEST = ("plain", "plain", "plain", "plain", "slow", "late", "refuse", "fail", "limit")
HOSTILE = (
    "cut", "reset", "garbage", "longer", "shorter", "endless", "huge", "drip", "usage", "hang",
    "chunks", "head",
)  # fmt: skip
_UNBILLED = {"refuse", "fail", "limit", "reset", "garbage", "endless", "huge", "hang", "chunks",
             "head"}  # fmt: skip
"""What fails before anything of an answer was made, or is no answer that anyone can bill."""

_ORDER = re.compile(rb"\[\[tag=(\w+) words=(\d+) do=(\w+) big=(\d+)\]\]")
_MALFORMED = (
    '"9"', "[1]", '{"IN":-1,"OUT":1}', '{"IN":1.5,"OUT":1}', '{"IN":1e3,"OUT":1}', "null",
    '{"IN":9007199254740993,"OUT":1}', '{"IN":30000000,"OUT":1}', '{"IN":1,"IN":0,"OUT":1}',
    '{"IN":0,"OUT":0}', '{"IN":true,"OUT":true}', "{}",
)  # fmt: skip


class _Served:
    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(found[1]) if found else 0)
                if not await self._answer(head, body, writer):
                    break
        writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        order = _ORDER.search(body)
        if order is None:
            writer.write(_reply(b'{"error":{"message":"no order"}}', "404 Not Found"))
            return True
        tag, words, do, big = order[1].decode(), int(order[2]), order[3].decode(), int(order[4])
        asked = json.loads(body)
        given = -(-len(asked["messages"][-1]["content"]) // 4)
        stream, claude = asked.get("stream") is True, b"/messages" in head.split(b"\r\n")[0]
        cut = do == "cut"
        made = 0 if do in _UNBILLED else words // 2 if cut and stream else words
        note = {"tag": tag, "in": given if made else 0, "out": made}
        os.write(self._log, json.dumps(note).encode() + b"\n")
        usage = _MALFORMED[words % len(_MALFORMED)] if do == "usage" else '{"IN":%d,"OUT":%d}'
        usage = usage.replace("%d,", f"{given},").replace("%d", str(words))
        usage = usage.replace("IN", "input_tokens" if claude else "prompt_tokens")
        usage = usage.replace("OUT", "output_tokens" if claude else "completion_tokens")
        events = _events(claude, words, usage)
        if do in ("refuse", "fail", "limit"):
            status = {"refuse": "400 Bad Request", "fail": "500 Error", "limit": "429 Slow"}[do]
            kind = {"refuse": "invalid_request_error", "limit": "rate_limit_error"}.get(do, "x")
            error = {"type": "error", "error": {"type": kind, "message": "as ordered"}}
            writer.write(_reply(json.dumps(error).encode(), status))
        elif do in ("plain", "slow", "late", "usage"):
            await asyncio.sleep(0.3 if do == "late" else 0)
            if not stream:
                writer.write(_reply(_whole(claude, words, usage)))
            else:
                writer.write(_STREAM)
                for event in events:
                    writer.write(_chunk(event))
                    if do == "slow":
                        await writer.drain()
                        await asyncio.sleep(0.002)
                writer.write(b"0\r\n\r\n")
        else:
            await self._break(do, writer, _whole(claude, words, usage), events, stream, big)
            return False
        await writer.drain()
        return True

    async def _break(
        self, do: str, writer: asyncio.StreamWriter, whole: bytes, events: list[bytes],
        stream: bool, big: int,
    ) -> None:  # fmt: skip
        """What no provider should do; the connection is not used again."""
        if do == "cut":
            parts = events[: len(events) // 2] if stream else [whole[: len(whole) // 2]]
            head = _STREAM if stream else _STREAM.replace(b"text/event-stream", b"application/json")
            writer.write(head + b"".join(map(_chunk, parts)))
        elif do == "garbage":
            writer.write(b"HTTP/9.9 what\r\n\x00\xff\r\n\r\n")
        elif do == "head":
            writer.write(b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 1_000_000 + b"\r\n\r\n")
        elif do in ("longer", "shorter"):
            size = len(whole) + (99 if do == "longer" else -9)
            writer.write(_reply(whole).replace(b": %d\r" % len(whole), b": %d\r" % size))
        elif do == "chunks":
            writer.write(_STREAM + b"zz\r\nno\r\n")
        elif do in ("endless", "huge"):
            head = _STREAM if stream else _STREAM.replace(b"text/event-stream", b"application/json")
            writer.write(head)
            block = b"x" * 65536 if do == "endless" else (b'data: {"x":"%s"}\n\n' % (b"y" * 65000))
            for _ in range(big >> 16):
                writer.write(_chunk(block))
                await writer.drain()
        elif do == "drip":
            for byte in _reply(whole)[:60]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
            writer.write(_reply(whole)[60:])
        elif do == "hang":
            await asyncio.sleep(8)
        await writer.drain()
        if do == "reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _reply(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(claude: bool, words: int, usage: str) -> bytes:
    text = "word " * words
    answer: Any = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-3-opus",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
    }  # fmt: skip
    if not claude:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "c", "object": "chat.completion", "model": "gpt-4", "choices": [choice]}
    return (json.dumps(answer)[:-1] + f',"usage":{usage}}}').encode()


def _events(claude: bool, words: int, usage: str) -> list[bytes]:
    if claude:
        start = {"id": "m", "type": "message", "role": "assistant", "model": "claude-3-opus",
                 "content": []}  # fmt: skip
        found = [
            json.dumps({"type": "message_start", "message": start})[:-2] + f',"usage":{usage}}}}}',
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
            *['{"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
              '"text":"word "}}'] * words,
            '{"type":"content_block_stop","index":0}',
            f'{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}',
            '{"type":"message_stop"}',
        ]  # fmt: skip
        kinds = [json.loads(each)["type"] for each in found]
        return [f"event: {kind}\ndata: {each}\n\n".encode()
                for kind, each in zip(kinds, found, strict=True)]  # fmt: skip
    head = '{"id":"c","object":"chat.completion.chunk","model":"gpt-4","choices":['
    word = '{"index":0,"delta":{"content":"word "},"finish_reason":null}]}'
    stop = '{"index":0,"delta":{},"finish_reason":"stop"}]}'
    found = [*[head + word] * words, head + stop, f'{head}],"usage":{usage}}}', "[DONE]"]
    return [f"data: {each}\n\n".encode() for each in found]


@dataclass(frozen=True, slots=True)
class Provider:
    """A running provider."""

    url: str
    log: Path

    def calls(self) -> list[dict[str, Any]]:
        """All that reached it."""
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]


@contextmanager
def provider(directory: Path) -> Iterator[Provider]:
    """A process of its own, until the block ends."""
    log = directory / "provider.jsonl"
    command = [sys.executable, "-m", "benchmarks.torture.provider", str(log)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Provider(process.stdout.readline().strip(), log)
        finally:
            process.kill()


async def _main(log: Path) -> None:
    server = await asyncio.start_server(
        _Served(log).serve, "127.0.0.1", 0, limit=1 << 20, backlog=1024
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # gateways are right to hang up on it
    asyncio.run(_main(Path(sys.argv[1])))
