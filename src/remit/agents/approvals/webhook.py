"""A webhook for what waits: signed, tried a few times, never in the way of a turn.

Messages are signed as https://www.standardwebhooks.com has it: ``webhook-signature`` is
``v1,`` and the base64 of HMAC-SHA256 over ``{webhook-id}.{webhook-timestamp}.{body}``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from remit.kernel.json_text import dump

_log = logging.getLogger("remit.approvals")
_MOST_WAITING = 1000
_ATTEMPTS = 4
_BACKOFF_S = 1.0  # before the second attempt, doubled for each further
_TIMEOUT_S = 10.0  # of one attempt, all in all
_CLOSE_S = 2.0


class Webhook:
    """Posts messages to one address, one after the other, in a thread of its own.

    A message that cannot be delivered is logged and dropped: the ledger has what it was about.

    Args:
        url: where to; redirects are not followed.
        secret: what messages are signed with: a text, or ``whsec_`` and base64.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._host = _host(url)  # a URL may hold a secret of its own
        self._key = _key(secret)
        self._waiting: queue.Queue[tuple[str, Callable[[], Mapping[str, Any]]] | None]
        self._waiting = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def send(self, message_id: str, message: Callable[[], Mapping[str, Any]]) -> None:
        """Have a message sent; returns at once.

        Args:
            message_id: the same in each attempt, for the receiver to recognise it.
            message: makes it, in the webhook's own thread.
        """
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._work, name="remit-approvals-webhook", daemon=True
                )
                self._thread.start()
        try:
            self._waiting.put_nowait((message_id, message))
        except queue.Full:
            _log.warning("too much waits for the webhook at %s: %s dropped", self._host, message_id)

    def close(self) -> None:
        """End the thread, with what is sent at this moment given a short time."""
        self._closing.set()
        if self._thread is not None:
            with contextlib.suppress(queue.Full):  # it looks at the event then
                self._waiting.put_nowait(None)
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            message_id, message = item
            try:
                body = dump(message(), str)
                problem = asyncio.run(self._delivered(message_id, body))
            except Exception as error:  # noqa: BLE001 - a webhook must take nothing down
                problem = type(error).__name__
            if problem:
                _log.warning(
                    "the webhook at %s did not take %s: %s", self._host, message_id, problem
                )
            if self._closing.is_set() and self._waiting.empty():
                return

    async def _delivered(self, message_id: str, body: bytes) -> str:
        """Try until it is taken; why it was not, where it was not."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                delay = _BACKOFF_S * 2 ** (attempt - 1)
                if await asyncio.to_thread(self._closing.wait, delay):
                    return f"{problem}; closing"
            problem, again = await self._attempt(message_id, body)
            if not again:
                return problem
        return f"{problem} ({_ATTEMPTS} attempts)"

    async def _attempt(self, message_id: str, body: bytes) -> tuple[str, bool]:
        """One attempt: what went wrong, and whether that may change."""
        import aiohttp  # slow to load, and most roots have no webhook

        sent_at = str(int(time.time()))
        signed = b".".join((message_id.encode(), sent_at.encode(), body))
        signature = base64.b64encode(hmac.digest(self._key, signed, hashlib.sha256)).decode()
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": sent_at,
            "webhook-signature": f"v1,{signature}",
        }
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__, not isinstance(error, ValueError)
        if 200 <= status < 300:
            return "", False
        redirect = ", a redirect, which is not followed" if 300 <= status < 400 else ""
        return f"HTTP {status}{redirect}", status == 429 or status >= 500


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        with contextlib.suppress(binascii.Error):
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"
