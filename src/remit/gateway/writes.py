"""Waiting for a write whose outcome must be known, also when the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["CancelledAfterWriteError", "finish_write"]

_T = TypeVar("_T")


class CancelledAfterWriteError(Exception):
    """The caller was cancelled while something was made durable; it is."""

    def __init__(self, result: Any) -> None:
        self.result = result


async def finish_write(write: Awaitable[_T]) -> _T:
    """Wait until a write has finished, also when the caller is cancelled meanwhile, and again.

    Raises:
        CancelledAfterWriteError: cancelled, and the write is durable.
        CancelledError: cancelled, and the write failed.
    """
    task = asyncio.ensure_future(write)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - looked at below
            break
    if not cancelled:
        return task.result()
    if task.exception() is not None:
        raise asyncio.CancelledError
    raise CancelledAfterWriteError(task.result())
