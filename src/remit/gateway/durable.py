"""Waiting for a write that must not be half heard of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["CancelledMeanwhileError", "whole"]

_T = TypeVar("_T")


class CancelledMeanwhileError(Exception):
    """The caller was cancelled while something was made durable; it is."""

    def __init__(self, result: Any) -> None:
        self.result = result


async def whole(write: Awaitable[_T]) -> _T:
    """Wait for a write to its end, also when the caller is cancelled meanwhile, and again.

    Raises:
        CancelledMeanwhileError: cancelled, and the write is durable.
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
    raise CancelledMeanwhileError(task.result())
