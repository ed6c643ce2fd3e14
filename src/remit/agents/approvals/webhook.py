"""A webhook that announces requests for approval, signed and retried, without delaying a turn.

Messages are signed as https://www.standardwebhooks.com specifies: ``webhook-signature`` is ``v1,``
and the base64 of HMAC-SHA256 over ``{webhook-id}.{webhook-timestamp}.{body}``.
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

from remit.agents.approvals.approval import Approval
from remit.kernel.json_text import dump

_log = logging.getLogger("remit.approvals")
_MAX_WAITING = 1000
_PAUSES_S = (0.0, 1.0, 2.0, 4.0)  # The pause before each attempt.
_TIMEOUT_S = 10.0  # Longest time of one attempt.
_CLOSE_S = 2.0


class Webhook:
    """A thread that posts messages to one address, in order; started by the first message.

    Each message is tried up to four times, with at most 10 s for an attempt. A message that cannot
    be delivered is logged and dropped: the ledger holds the request. Answers 3xx and 4xx other than
    429 are final, and so is an invalid URL. A :class:`Webhook` never raises for a receiver that
    fails. A secret after ``whsec_`` that is not base64 is used as text. Thread-safe.

    Args:
        url: http or https address of the receiver; redirects are not followed.
        secret: key of the signature: a text, or ``whsec_`` and base64.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._host = "?"  # The log names only the host, because a URL may contain a secret.
        with contextlib.suppress(ValueError):
            self._host = urlsplit(url).hostname or "?"
        self._key = secret.encode()
        if secret.startswith("whsec_"):
            with contextlib.suppress(binascii.Error):
                self._key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        self._waiting: queue.Queue[tuple[str, Callable[[], Mapping[str, Any]]] | None]
        self._waiting = queue.Queue(_MAX_WAITING)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def send(self, message_id: str, message: Callable[[], Mapping[str, Any]]) -> None:
        """Queue a message and return; if 1,000 messages wait, log and drop it.

        If the message cannot be delivered within four attempts, or ``message`` raises, that is
        logged and the message is dropped. A message after :meth:`close` may be lost without a log.

        Args:
            message_id: id that the receiver sees in each attempt, to recognise a repetition.
            message: returns the message; called in the webhook's thread.
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
            _log.warning("too many messages wait for the webhook at %s: %s is dropped",
                         self._host, message_id)  # fmt: skip

    def close(self) -> None:
        """End the thread; wait at most two seconds.

        Messages that are still queued are tried once at most, and may be lost. Closing twice is
        harmless.
        """
        self._closing.set()
        if self._thread is not None:
            with contextlib.suppress(queue.Full):  # The thread sees the event instead.
                self._waiting.put_nowait(None)
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            message_id, message = item
            try:
                problem = asyncio.run(self._deliver(message_id, dump(message(), str)))
            except Exception as error:  # noqa: BLE001 - the thread serves later messages too
                problem = type(error).__name__
            if problem:
                _log.warning("the webhook at %s did not take %s: %s",
                             self._host, message_id, problem)  # fmt: skip
            if self._closing.is_set() and self._waiting.empty():
                return

    async def _deliver(self, message_id: str, body: bytes) -> str:
        """Send a message; return the reason of the last failure, or an empty text."""
        import aiohttp  # The import is slow, and most roots have no webhook.

        problem = ""
        for pause_s in _PAUSES_S:
            if pause_s and await asyncio.to_thread(self._closing.wait, pause_s):
                return f"{problem}; closing"
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
            except ValueError as error:  # The URL is invalid.
                return type(error).__name__
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = type(error).__name__
                continue
            if 200 <= status < 300:
                return ""
            problem = f"HTTP {status}"
            if 300 <= status < 400:
                return f"{problem}, a redirect, which is not followed"
            if status != 429 and status < 500:
                return problem
        return f"{problem} ({len(_PAUSES_S)} attempts)"


def message_of(approval: Approval, *, with_arguments: bool) -> dict[str, Any]:
    """Return the message that announces a request.

    Its keys are ``type`` (``approval.requested``), ``timestamp`` (that of the request) and
    ``data``: ``request_id``, ``wo_id``, ``session_id``, ``agent_id``, ``requested_by``,
    ``tool_id``, ``kind``, ``requested_at`` and ``people`` of the request.

    Args:
        approval: the request.
        with_arguments: True to add ``arguments`` of the tool to ``data``.
    """
    data = {
        name: getattr(approval, name)
        for name in (
            "request_id", "wo_id", "session_id", "agent_id", "requested_by", "tool_id", "kind",
            "requested_at", "people",
        )
    }  # fmt: skip
    if with_arguments:
        data["arguments"] = approval.arguments
    return {"type": "approval.requested", "timestamp": approval.requested_at, "data": data}
