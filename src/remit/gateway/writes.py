"""Waiting for a write whose outcome must be known, also when the caller is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

__all__ = ["CancelledAfterWriteError", "finish_write"]

_T = TypeVar("_T")


class CancelledAfterWriteError(Exception):
    """The caller was cancelled while something was made durable; it is."""

    def __init__(self, result: Any) -> None:
        self.result = result


async def finish_write(write: asyncio.Future[_T]) -> _T:
    """Wait until a write has finished, also when the caller is cancelled meanwhile, and again.

    Args:
        write: a future of the ledger, which cannot be cancelled.

    Raises:
        CancelledAfterWriteError: cancelled, and the write is durable.
        CancelledError: cancelled, and the write failed.
    """
    try:
        return await write
    except asyncio.CancelledError:
        if not write.done() or write.exception() is not None:
            raise
        raise CancelledAfterWriteError(write.result()) from None
