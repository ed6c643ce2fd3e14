"""The memory that request bodies, answers and streams of this process take, bounded in sum.

Each body, answer and stream that is larger than a few kilobytes is a :class:`Holding` of one
:class:`MemoryAccount`. A body that does not fit is refused before it is read. An answer or a stream
that grows is never refused: if the account is full, the largest of them is ended. A stream's call
records what came until then and is billed for it. The call of an answer that is read whole records
an error without content, and its whole reservation is charged.

The account also has room for the work on the largest holding: to assemble, encode and hash it takes
a few times its size. :func:`run_large` does this work for one holding at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE_BYTES = 1024 * 1024
"""Work on more bytes than this is done off the event loop."""

MEMORY_FULL = "the bodies and answers of this process reached the memory limit"
"""What the task of the largest stream is cancelled with."""

_DEFAULT_BYTES = 256 * 1024 * 1024
_WORK = 3  # times the size of the largest holding

_P = ParamSpec("_P")
_T = TypeVar("_T")
_worker = ThreadPoolExecutor(1, thread_name_prefix="remit-large")


class MemoryAccount:
    """Sum of what bodies, answers and streams hold.

    Any thread may use it.

    The account counts; it allocates nothing. :meth:`change` is called by :meth:`Holding.resize`.

    Args:
        limit: most bytes, with the room for work: three times the largest answer.

    Attributes:
        limit: most bytes, with the room for work.
        held: bytes that are held now.
    """

    def __init__(self, limit: int = _DEFAULT_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self._holdings: set[Holding] = set()
        self._lock = threading.Lock()

    @property
    def limit_of_bodies(self) -> int:
        """Most bytes for bodies; the rest of the limit is for growing answers."""
        return self.limit - self.limit // 4

    def has_room_for_body(self, size: int) -> bool:
        """Return True if a body of this many bytes may be read now. Reserves nothing."""
        with self._lock:
            return self._need(size) <= self.limit_of_bodies

    @property
    def is_over(self) -> bool:
        """True if more is held than the limit allows, answers that were ended included."""
        with self._lock:
            return self._need(0) > self.limit

    def change(self, holding: Holding, size: int) -> None:
        """Set the size of a holding in bytes; 0 removes the holding from the account.

        If a holding grows and the account is over its limit, the tasks of the largest holdings that
        can be ended are cancelled until the rest fits. Nothing is refused.

        Args:
            holding: the holding; its ``size`` is set.
            size: the new size in bytes.
        """
        with self._lock:
            grows = size > holding.size
            self.held += size - holding.size
            holding.size = size
            if size:
                self._holdings.add(holding)
            else:
                self._holdings.discard(holding)
            if not grows or self._need(0) <= self.limit:
                return
            ending = sum(one.size for one in self._holdings if one.is_ended)
            alive = [one for one in self._holdings if one.can_end]
            alive.sort(key=lambda one: one.size)
            while alive and self._need(-ending) > self.limit:
                largest = alive.pop()
                ending += largest.size
                largest.end()

    def _need(self, more: int) -> int:
        """Return what would be held with so many bytes more, and the room for work."""
        if (self.held + more) * (1 + _WORK) <= self.limit_of_bodies:
            return 0  # whichever is the largest
        return (
            self.held
            + more
            + _WORK
            * max(
                (one.size for one in self._holdings if one.is_answer and not one.is_ended),
                default=0,
            )
        )


class Holding:
    """The bytes that one body, answer or stream holds of an account.

    A holding counts from its first :meth:`resize` until :meth:`resize` with 0. The account may end
    a holding with a task until :meth:`settle`.

    Args:
        account: the account.
        task: the task to cancel with :data:`MEMORY_FULL` to end the stream; None for a holding that
            cannot be ended.

    Attributes:
        size: bytes.
        is_answer: True for a holding that can be ended; the account reserves work space for the
            largest.
        is_ended: True once the account has ended it.
    """

    __slots__ = ("_account", "_loop", "_task", "is_answer", "is_ended", "size")

    def __init__(self, account: MemoryAccount, task: asyncio.Task[object] | None = None) -> None:
        self._account = account
        self._task = task
        self._loop = task.get_loop() if task is not None else None
        self.size = 0
        self.is_answer = task is not None
        self.is_ended = False

    @property
    def can_end(self) -> bool:
        """True if the account may still end the holding."""
        return self._task is not None and not self.is_ended

    def resize(self, size: int) -> None:
        """Set the size in bytes. The account may then end its largest holdings."""
        self._account.change(self, size)

    def settle(self) -> None:
        """Forbid the account to end the holding; its size stays."""
        self._task = None

    def end(self) -> None:
        """Cancel the task, from any thread.

        Only the account calls this.

        Sets ``is_ended``. A task that was settled in the meantime is not cancelled.
        """
        self.is_ended = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel(MEMORY_FULL)


memory = MemoryAccount()
"""The account of this process."""


async def run_to_the_end(
    function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> tuple[_T, asyncio.CancelledError | None]:
    """Do as :func:`run_large`; a cancelled caller still waits for the result.

    Args:
        function: the work.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        The result, and the cancellation of the caller; None if it was not cancelled. An error of
            the function is raised.
    """
    work = asyncio.ensure_future(run_large(function, *args, **kwargs))
    gone = None
    while True:
        try:
            return await asyncio.shield(work), gone
        except asyncio.CancelledError as error:
            if work.cancelled():
                raise
            gone = error


async def run_large(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run work on many bytes in the one thread for such work and return its result.

    Waits for earlier work in that thread. The context variables of the caller apply. An error of
    the function is raised. If the caller is cancelled, the work continues in the thread.

    Args:
        function: the work.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_worker, lambda: context.run(function, *args, **kwargs))
