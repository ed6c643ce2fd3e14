"""Responses that run in the background: begun, polled, cancelled, from any process of a root."""

from __future__ import annotations

import asyncio
import logging

from remit.gateway import Dispatched, Identity, LLMGateway
from remit.gateway.leases import LeaseManager
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.providers import EventSink
from remit.server.answers import failure
from remit.server.refusals import HttpError
from remit.server.responses.call import ResponseCall

_log = logging.getLogger("remit.server")

_MOST_RUNNING = 1_000  # in one process
_POLLS, _POLL_S = 200, 0.05  # how long a cancelled call is waited for


class Background:
    """Runs calls apart from the requests that began them.

    Each holds a lease while it runs: other processes see by it that it does, and ask it to stop.

    Args:
        gateway: makes the calls.
        leases: of the root.
    """

    def __init__(self, gateway: LLMGateway, leases: LeaseManager) -> None:
        self._gateway = gateway
        self._leases = leases
        self._tasks: set[asyncio.Task[PromptResponse]] = set()

    async def begin(self, request: PromptRequest, identity: Identity) -> bytes:
        """Begin a call; return the ``response`` object as soon as the sent call is recorded.

        Raises:
            HttpError: the call was refused, or too many run.
        """
        if len(self._tasks) >= _MOST_RUNNING:
            raise too_many(_MOST_RUNNING)
        begun = asyncio.Event()

        task = asyncio.create_task(self.run(request, identity, _Begun(begun)))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
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
        """Run a call that other requests may stop.

        Raises:
            CancelledError: the call was stopped; the stop is recorded.
        """
        call: ResponseCall = request.keeper
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            call.cancelled = True
            task.cancel()

        async with self._leases.hold(_lease(call.response_id), wait_s=0, on_stop=stop):
            return await self._gateway.aroute(request, sink=sink, identity=identity)

    def _ended(self, task: asyncio.Task[PromptResponse]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, RemitError):
            _log.error("a background response has no record: %s", error.message)
        elif error is not None:
            _log.error("a background response failed unexpectedly", exc_info=error)

    def runs(self, response_id: str) -> bool:
        """Whether any process runs it. Blocks."""
        return self._leases.is_held(_lease(response_id))

    async def cancel(self, response_id: str) -> bool:
        """Ask the process that runs a call to stop it, and wait; return False if there is none."""
        name = _lease(response_id)
        if not await asyncio.to_thread(self._leases.request_stop, name):
            return False
        for _ in range(_POLLS):
            if not await asyncio.to_thread(self._leases.is_held, name):
                break
            await asyncio.sleep(_POLL_S)
        return True

    async def ended(self) -> None:
        """Wait for the end of all of them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Cancel all running calls; each is recorded."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Begun:
    """Waits for a call to be sent, and not for its answer."""

    def __init__(self, begun: asyncio.Event) -> None:
        self._begun = begun

    async def take(self, event: object) -> None:
        if type(event) is Dispatched:
            self._begun.set()

    def pass_on(self, raw: bytes) -> bool:
        return True


def _lease(response_id: str) -> str:
    return f"response:{response_id}"


def too_many(most: int) -> HttpError:
    """Return the refusal of a response for which no place is left."""
    said = f"{most} responses run in the background, the most allowed; try again."
    return HttpError(429, "too_many_in_background", said, retry_after_s=1)
