"""Clients that try until they are answered, each call under one key; what they were told."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.cluster.clerk import NAME
from benchmarks.overspend import MODELS

TRY_S = 4.0  # without a byte; then another gateway is asked
GIVE_UP_S = 180.0
_EXCHANGE = re.compile(r"x-remit-exchange=(LED-[0-9a-f]+)")
_PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
_NO_MONEY = 402
_WRONG = (400, 401, 403, 404, 410, 422)


@dataclass(slots=True)
class Call:
    """One call, and how it ended: acknowledged where it has an ``exchange_id``.

    Attributes:
        begun, ended: of the monotonic clock.
        heard: the status of each try, 0 for a connection that broke.
    """

    tag: str
    key: str
    dialect: str
    stream: bool
    begun: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    exchange_id: str = ""
    replayed: bool = False
    heard: list[int] = field(default_factory=list)

    @property
    def session(self) -> str:
        """Its own."""
        return f"SES-{self.tag}"


@dataclass
class Clients:
    """Callers, and one who submits orders, until ``over`` is set; each ends what it has begun.

    Args:
        urls: of the gateways that run now.
        keys: of callers.
        operator: a key that may submit orders.
        seed: chooses what is called.

    Attributes:
        calls: those that ended.
        orders: ids by the key under which they were submitted.
        problems: what no client should be told.
    """

    urls: Callable[[], Sequence[str]]
    keys: Sequence[str]
    operator: str
    seed: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[Call] = field(default_factory=list)
    orders: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def run(self, callers: int, orders_per_s: float) -> None:
        """So many callers at once."""
        timeout = aiohttp.ClientTimeout(total=60, sock_read=TRY_S, sock_connect=TRY_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(callers):
                group.create_task(self._call_on(session, number))
            group.create_task(self._submit_on(session, orders_per_s))

    async def _call_on(self, session: aiohttp.ClientSession, number: int) -> None:
        source, count = random.Random(f"{self.seed} {number}"), 0
        while not self.over.is_set():
            count += 1
            call = Call(
                f"c{number}x{count}", source.choice(self.keys),
                source.choice(["openai", "anthropic"]), source.random() < 0.5,
            )  # fmt: skip
            words, delay = source.randint(5, 60), source.uniform(0, 0.5)
            slow = f" slow={source.uniform(0, 0.02):.3f}" if call.stream else ""
            text = f"[[tag={call.tag} tokens={words} delay={delay:.2f}{slow}]] Write so much."
            body = {"model": MODELS[call.dialect], "max_tokens": words, "stream": call.stream,
                    "messages": [{"role": "user", "content": text}]}  # fmt: skip
            while not await self._try(session, source, call, body):
                if time.monotonic() - call.begun > GIVE_UP_S:
                    self.problems.append(f"{call.tag} was never answered: {call.heard[-5:]}")
                    break
                await asyncio.sleep(source.uniform(0.05, 0.3))
            call.ended = time.monotonic()
            self.calls.append(call)
            await asyncio.sleep(0.5 if not call.exchange_id else 0.02)

    async def _try(
        self, session: aiohttp.ClientSession, source: random.Random, call: Call,
        body: dict[str, Any],
    ) -> bool:  # fmt: skip
        """Whether it need not be tried again."""
        headers = {"authorization": f"Bearer {call.key}", "idempotency-key": call.tag,
                   "x-remit-session": call.session}  # fmt: skip
        status = 0
        try:
            url = source.choice(self.urls()) + _PATHS[call.dialect]
            async with session.post(url, json=body, headers=headers) as response:
                status = response.status
                told = response.headers.get("x-remit-exchange", "")
                call.replayed = "x-remit-replayed" in response.headers
                text = (await response.read()).decode()
        except (aiohttp.ClientError, OSError, TimeoutError):
            call.heard.append(0)
            return False
        call.heard.append(status)
        if status in _WRONG:
            self.problems.append(f"{call.tag} was told {status}: {text[:200]}")
        if status in _WRONG or status == _NO_MONEY:
            return True
        whole = not call.stream or '"message_stop"' in text or "[DONE]" in text
        if status != 200 or not whole or '"error":' in text:
            return False
        found = _EXCHANGE.search(text)
        call.exchange_id = told or (found[1] if found else "")
        if not call.exchange_id:
            self.problems.append(f"{call.tag} has no exchange: {text[-200:]}")
        return True

    async def _submit_on(self, session: aiohttp.ClientSession, per_s: float) -> None:
        source, count = random.Random(f"{self.seed} orders"), 0
        headers = {"authorization": f"Bearer {self.operator}"}
        while not self.over.is_set():
            count += 1
            key, begun = f"o{count}", time.monotonic()
            task = f"[[tag={key} tokens=8 delay={source.uniform(0, 0.5):.2f}]] Do it."
            body = {"agent_id": NAME, "task": task, "key": key, "max_attempts": 1000}
            while not (order_id := await self._submit(session, source, body, headers)):
                if time.monotonic() - begun > GIVE_UP_S:
                    self.problems.append(f"{key} was never taken")
                    break
                await asyncio.sleep(source.uniform(0.05, 0.3))
            if order_id:
                self.orders[key] = order_id
            await asyncio.sleep(1 / per_s)

    async def _submit(
        self, session: aiohttp.ClientSession, source: random.Random, body: dict[str, Any],
        headers: dict[str, str],
    ) -> str:  # fmt: skip
        try:
            url = source.choice(self.urls()) + "/api/orders"
            async with session.post(url, json=body, headers=headers) as response:
                said = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return ""
        if response.status in _WRONG:
            self.problems.append(f"{body['key']} was told {response.status}: {said}")
        return str(said["order_id"]) if response.status == 201 else ""
