"""Responses that run in the background, and can be polled and cancelled from any process."""

from __future__ import annotations

import asyncio
import logging

from remit.gateway import SHUTTING_DOWN, STOPPED_BY_OWNER, Dispatched, Identity, LLMGateway
from remit.gateway.leases import LeaseManager
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.providers import EventSink
from remit.server.answers import failure
from remit.server.refusals import HttpError
from remit.server.responses.call import ResponseCall

_log = logging.getLogger("remit.server")

_MAX_RUNNING = 1_000  # Calls of one process.
_POLLS, _POLL_S = 200, 0.05  # Number of checks whether a cancelled call has ended, and their pause.


class Background:
    """Calls that run independently of their clients' requests.

    Each call holds a lease while it runs. Other processes see by the lease that it runs, and ask
    for its end through the lease. :meth:`begin` starts a call and returns after the dispatch,
    :meth:`run` makes one in the caller's task, and :meth:`cancel` ends one of any process.
    :meth:`aclose` ends the begun calls of this process. A process begins at most 1,000 calls at a
    time. Use an instance in one event loop.

    Args:
        gateway: makes the calls.
        leases: the root's leases.

    Attributes:
        tasks: the running calls that :meth:`begin` began, with their callers' tokens.
    """

    def __init__(self, gateway: LLMGateway, leases: LeaseManager) -> None:
        self._gateway = gateway
        self._leases = leases
        self.tasks: dict[asyncio.Task[PromptResponse], str | None] = {}

    async def begin(self, request: PromptRequest, identity: Identity, token: str | None) -> bytes:
        """Begin a call; return the ``response`` object as soon as the dispatch is recorded.

        The call continues in a task after the return. The errors of the call after that are
        recorded and logged. A replayed answer is returned as ``queued`` too.

        Args:
            request: the request, whose keeper is a :class:`ResponseCall`.
            identity: the caller.
            token: the caller's key or token, with whose end the call ends; None in dev mode.

        Returns:
            The JSON text of a response with the status ``queued``.

        Raises:
            HttpError: the call was refused or failed at once; 429, too many calls run in this
                process.
            RemitError: the call could not be recorded.
            CancelledError: the request, or the call before its dispatch, was cancelled.
        """
        if len(self.tasks) >= _MAX_RUNNING:
            raise too_many(_MAX_RUNNING)
        begun = asyncio.Event()

        task = asyncio.create_task(self.run(request, identity, _Begun(begun)))
        self.tasks[task] = token
        task.add_done_callback(self._ended)
        waiting = asyncio.create_task(begun.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not begun.is_set():
            response = task.result()
            if response.outcome is not RouteOutcome.SUCCESS:
                raise failure(response)
        call: ResponseCall = request.keeper
        return call.unfinished("queued")

    async def run(
        self, request: PromptRequest, identity: Identity, sink: EventSink
    ) -> PromptResponse:
        """Run a call under its lease, and return its response.

        A lease that another process holds is not waited for.

        Args:
            request: the request, whose keeper is a :class:`ResponseCall`.
            identity: the caller.
            sink: receives the events of the call.

        Returns:
            The response, also of a call that failed.

        Raises:
            CancelledError: another request stopped the call, or the task was cancelled; the end is
                recorded.
            LeaseBusyError: the call runs already.
            LeaseLostError: the answer came after the call was settled as an orphan.
            LedgerError: the ledger cannot be written.
        """
        call: ResponseCall = request.keeper
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            call.cancelled = True
            task.cancel(STOPPED_BY_OWNER)

        async with self._leases.hold(_lease(call.response_id), wait_s=0, on_stop=stop):
            return await self._gateway.aroute(request, sink=sink, identity=identity)

    def _ended(self, task: asyncio.Task[PromptResponse]) -> None:
        del self.tasks[task]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, RemitError):
            _log.error("a background response has no record: %s", error.message)
        elif error is not None:
            _log.error("a background response failed unexpectedly", exc_info=error)

    def runs(self, response_id: str) -> bool:
        """Return True if a process runs the call of a response. Blocks.

        Args:
            response_id: id of the response.

        Raises:
            LedgerError: the lease cannot be read.
        """
        return self._leases.is_held(_lease(response_id))

    async def cancel(self, response_id: str) -> bool:
        """Ask the process that runs a call to stop it; return False if none runs it.

        Waits for the end of the call for at most ten seconds; True is returned after that too. The
        lease is checked every 0.05 seconds. Does not block the event loop.

        Args:
            response_id: id of the response.

        Raises:
            LedgerError: the lease cannot be read or marked.
        """
        name = _lease(response_id)
        if not await asyncio.to_thread(self._leases.request_stop, name):
            return False
        for _ in range(_POLLS):
            if not await asyncio.to_thread(self._leases.is_held, name):
                break
            await asyncio.sleep(_POLL_S)
        return True

    async def ended(self) -> None:
        """Wait until all running calls of this process have ended; their errors are not raised."""
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Cancel all running calls of this process; each is recorded.

        Waits until the calls have ended; their errors are not raised.
        """
        for task in list(self.tasks):
            task.cancel(SHUTTING_DOWN)
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Begun:
    """A sink that sets an event once the call was dispatched, and drops everything else."""

    def __init__(self, begun: asyncio.Event) -> None:
        self._begun = begun

    async def take(self, event: object) -> None:
        if type(event) is Dispatched:
            self._begun.set()

    def pass_on(self, raw: bytes) -> bool:
        return True

    def release(self) -> bool:
        return True


def _lease(response_id: str) -> str:
    return f"response:{response_id}"


def too_many(most: int) -> HttpError:
    """Return (not raise) the 429 for a response when ``most`` others run in the background.

    Args:
        most: largest number of running responses.
    """
    said = f"{most} responses run in the background, the most allowed; try again later."
    return HttpError(429, "too_many_in_background", said, retry_after_s=1)
