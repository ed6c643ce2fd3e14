"""The webhook for requests: signed messages, retried, sent by a thread of its own.

Messages are signed as https://www.standardwebhooks.com specifies: ``webhook-signature`` is ``v1,``
and the base64 of the HMAC-SHA256 of ``{webhook-id}.{webhook-timestamp}.{body}``.
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
_MAX_QUEUED_MESSAGES = 1000
_ATTEMPTS = 4
# Seconds before the second attempt; each further wait is twice as long.
_BACKOFF_S = 1.0
# Time limit of one attempt, seconds.
_TIMEOUT_S = 10.0
_CLOSE_S = 2.0


class Webhook:
    """Posts messages to one address, one after the other, in a thread of its own.

    A message that cannot be delivered is logged and dropped: the ledger contains the request.

    Args:
        url: the address; redirects are not followed.
        secret: the signing key: a text, or ``whsec_`` followed by base64.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._host = _host(url)  # The log shows the host only: a URL may contain a secret.
        self._key = _key(secret)
        self._queue: queue.Queue[tuple[str, Callable[[], Mapping[str, Any]]] | None]
        self._queue = queue.Queue(_MAX_QUEUED_MESSAGES)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def send(self, message_id: str, message: Callable[[], Mapping[str, Any]]) -> None:
        """Queue a message and return at once; log and drop the message if 1,000 are queued.

        Args:
            message_id: id by which the receiver recognises repeated attempts.
            message: returns the message; called in the webhook's thread.
        """
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._work, name="remit-approvals-webhook", daemon=True
                )
                self._thread.start()
        try:
            self._queue.put_nowait((message_id, message))
        except queue.Full:
            _log.warning(
                "the queue of the webhook at %s is full: %s was dropped", self._host, message_id
            )

    def close(self) -> None:
        """End the thread; wait at most two seconds for the message in delivery."""
        self._closing.set()
        if self._thread is not None:
            with contextlib.suppress(queue.Full):  # A busy thread sees the event instead.
                self._queue.put_nowait(None)
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            message_id, message = item
            try:
                body = dump(message(), str)
                problem = asyncio.run(self._deliver(message_id, body))
            except Exception as error:  # noqa: BLE001 - a webhook must take nothing down
                problem = type(error).__name__
            if problem:
                _log.warning(
                    "the webhook at %s did not accept %s: %s", self._host, message_id, problem
                )
            if self._closing.is_set() and self._queue.empty():
                return

    async def _deliver(self, message_id: str, body: bytes) -> str:
        """Post a message, with retries; return why it was not accepted, or an empty text."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                delay = _BACKOFF_S * 2 ** (attempt - 1)
                if await asyncio.to_thread(self._closing.wait, delay):
                    return f"{problem}; the process is ending"
            problem, is_transient = await self._attempt(message_id, body)
            if not is_transient:
                return problem
        return f"{problem} ({_ATTEMPTS} attempts)"

    async def _attempt(self, message_id: str, body: bytes) -> tuple[str, bool]:
        """Post a message once; return the problem, and True if a retry may succeed."""
        import aiohttp  # Slow to load, and most roots have no webhook.

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
