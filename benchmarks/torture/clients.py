"""Honest clients, which remember what they were told, and hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from benchmarks.overspend import MODELS
from benchmarks.torture.fleet import Key, Member
from benchmarks.torture.provider import HONEST

_EXCHANGE = re.compile(r"x-remit-exchange=(LED-[0-9a-f]+)")
_DISPATCH = re.compile(r"x-remit-dispatch=(LED-[0-9a-f]+)")
_PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
EXPECTED = {0, 200, 400, 402, 429, 500, 502, 503, 504}


@dataclass(slots=True)
class Order:
    """One call, and what its provider is told to do.

    Attributes:
        stays: whether its client hears it out: else nobody can say what the provider bills.
    """

    tag: str
    key: Key
    dialect: str
    words: int
    max_tokens: int
    stream: bool
    do: str
    big: int = 0
    stays: bool = True

    @property
    def text(self) -> str:
        """What the user says."""
        order = f"tag={self.tag} words={self.words} do={self.do} big={self.big}"
        return f"[[{order}]] Write so much."

    def body(self) -> dict[str, Any]:
        """Of the request."""
        return {
            "model": MODELS[self.dialect],
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": self.text}],
            "stream": self.stream,
        }


@dataclass(slots=True)
class Answer:
    """What a client got: 0 when the connection broke before a status; ``whole`` to its end.

    Attributes:
        ended: whether the connection did not break, whatever was said.
        killed: whether the server was killed meanwhile.
    """

    order: Order
    status: int = 0
    exchange_id: str = ""
    dispatch_id: str = ""
    whole: bool = False
    ended: bool = False
    killed: bool = False
    said: str = ""


@dataclass
class Clients:
    """Clients that call for as long as ``over`` is not set."""

    members: list[Member]
    keys: list[Key]
    seed: int
    number: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    orders: dict[str, Order] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    kinds: list[str] = field(default_factory=lambda: list(HONEST))

    async def run(self) -> None:
        """All of them."""
        timeout = aiohttp.ClientTimeout(total=90)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self.number):
                group.create_task(self._client(session, number))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        source, count = random.Random(f"{self.seed} client {number}"), 0
        while not self.over.is_set():
            count += 1
            order = self.draw(source, f"c{number}x{count}")
            member = source.choice(self.members)
            answer = await ask(session, member, order)
            self.answers.append(answer)
            # Refusals cost nothing: whoever only gets them leaves the others some time.
            await asyncio.sleep(0.2 if answer.status in (0, 402, 503) else 0.02)

    def draw(self, source: random.Random, tag: str, kinds: list[str] | None = None) -> Order:
        """Any call."""
        words = source.randint(5, 200)
        order = Order(
            tag, source.choice(self.keys), source.choice(["openai", "anthropic"]), words,
            words * source.choice([1, 1, 2]), source.random() < 0.5,
            source.choice(kinds or self.kinds),
        )  # fmt: skip
        self.orders[tag] = order
        return order

    async def hostile_calls(self, source: random.Random, kind: str, number: int, big: int) -> None:
        """Calls whose answers are what no provider should send."""
        timeout = aiohttp.ClientTimeout(total=90)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def one(at: int) -> None:
                tag = f"h{source.randrange(10**12)}y{at}"
                order = self.draw(source, tag, [kind])
                order.big = big
                self.answers.append(await ask(session, source.choice(self.members), order))

            await asyncio.gather(*map(one, range(number)))


async def ask(session: aiohttp.ClientSession, member: Member, order: Order) -> Answer:
    """Make one call, as a client without an SDK does."""
    answer, kills = Answer(order), member.kills
    headers = {"authorization": f"Bearer {order.key.key}"}
    text = ""
    try:
        url = member.url + _PATHS[order.dialect]
        async with session.post(url, json=order.body(), headers=headers) as response:
            answer.status = response.status
            answer.exchange_id = response.headers.get("x-remit-exchange", "")
            answer.dispatch_id = response.headers.get("x-remit-dispatch", "")
            text = (await response.read()).decode("utf-8", "replace")
            answer.ended = True
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        text = type(error).__name__
    answer.killed = member.kills != kills
    if order.stream:
        found = _EXCHANGE.search(text), _DISPATCH.search(text)
        answer.exchange_id = found[0][1] if found[0] else answer.exchange_id
        answer.dispatch_id = found[1][1] if found[1] else answer.dispatch_id
    ended = '"message_stop"' in text or "[DONE]" in text if order.stream else True
    # A stream that ends with an error says that it is none.
    ended = ended and '"error":' not in text
    answer.whole = answer.ended and answer.status == 200 and ended
    answer.said = text[:300]
    return answer


# -- hostile clients -----------------------------------------------------------------------------


async def _connected(
    member: Member, work: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
) -> None:
    address = urlsplit(member.url)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            await asyncio.wait_for(work(reader, writer), 10)
        except TimeoutError:
            pass
        finally:
            writer.transport.abort()


def _request(order: Order) -> bytes:
    body = json.dumps(order.body()).encode()
    head = (
        f"POST {_PATHS[order.dialect]} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {order.key.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def hostile_client(kind: str, member: Member, order: Order, source: random.Random) -> None:
    """One connection that means no good, for a few seconds."""
    whole = _request(order)

    async def half_open(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole[: source.randrange(1, len(whole) - 1)])
        await asyncio.sleep(3)

    async def slow_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in range(0, 60):
            writer.write(whole[at : at + 1])
            await asyncio.sleep(0.05)

    async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(whole * 20)
        await asyncio.sleep(4)

    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)
        await reader.read(200)

    async def unknown_keys(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(30):
            key = f"sk-remit-{source.randrange(10**12)}".encode()
            writer.write(whole.replace(order.key.key.encode(), key))
            await reader.read(4096)

    async def random_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(source.randbytes(source.randrange(1, 9000)))
        await reader.read(4096)

    async def trailers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = whole.split(b"content-length")[0]
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 50_000)
        await reader.read(4096)

    async def lies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = struct.unpack("I", source.randbytes(4))[0]
        writer.write(re.sub(rb"content-length: \d+", b"content-length: %d" % size, whole))
        await reader.read(4096)

    works = {
        "half-open": half_open, "slow body": slow_body, "never reads": never_reads,
        "hangs up": hangs_up, "unknown keys": unknown_keys, "random bytes": random_bytes,
        "trailers": trailers, "wrong length": lies,
    }  # fmt: skip
    await _connected(member, works[kind])


HOSTILE_CLIENTS = (
    "half-open", "slow body", "never reads", "hangs up", "unknown keys", "random bytes",
    "trailers", "wrong length",
)  # fmt: skip
