"""The periodic work of an application: recovery, batches, the canary, ended keys and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from remit.kernel.loops import repeat
from remit.runtime import Runtime
from remit.runtime.installation import settle_canary
from remit.server.telemetry import CallMetrics

_log = logging.getLogger("remit.server")

_FLUSH_S = 1.0
_LOOKS = 50  # Pause between two looks at a canary, in durations of a look.


class Upkeep:
    """The periodic tasks of an application.

    They recover calls of dead processes, settle batches and the canary, end the calls of ended
    keys, and write shared metrics. Their errors are logged.

    Args:
        runtime: the open root.
        metrics: the metrics of the process.
        end_calls: ends the calls of ended keys.
    """

    def __init__(
        self, runtime: Runtime, metrics: CallMetrics, end_calls: Callable[[], Awaitable[object]]
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._end_calls = end_calls
        self._next_look = 0.0
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks in the running event loop; they run until :meth:`stop`.

        Each runs at once and then at its interval, see ``gateway.recover_every_s`` and
        ``auth.revocation_s`` (half of it). Metrics are written only if processes share them.
        """
        settings = self._runtime.loaded.settings
        every_s = settings.gateway.recover_every_s
        tasks = [
            repeat(self._recover, every_s, "calls of dead processes cannot be recovered"),
            repeat(self._settle_canary, every_s, "the canary cannot be settled"),
            repeat(self._runtime.gateway.batches.poll, every_s, "batches cannot be settled"),
            repeat(
                self._end_calls,
                settings.auth.revocation_s / 2,
                "calls of ended keys cannot be ended",
            ),
        ]
        if self._metrics.shared:
            tasks.append(repeat(self._flush_metrics, _FLUSH_S, "metrics cannot be written"))
        self._running = [asyncio.create_task(task) for task in tasks]

    async def stop(self) -> None:
        """Cancel the tasks, and wait for their end."""
        for task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _recover(self) -> None:
        recovered = await asyncio.to_thread(self._runtime.gateway.recover)
        self._metrics.refresh()
        if recovered:
            _log.warning("%d calls of processes that died were settled", len(recovered))

    async def _settle_canary(self) -> None:
        """Look at the canary; a look that takes long is repeated less often."""
        runtime, began = self._runtime, time.monotonic()
        if began < self._next_look:
            return
        try:
            found = await asyncio.to_thread(
                settle_canary, runtime.root, runtime.ledger, runtime.loaded
            )
        finally:
            self._next_look = began + _LOOKS * (time.monotonic() - began)
        if found is not None and found.verdict:
            _log.warning("the canary ended (%s): %s", found.verdict, found.reason)

    async def _flush_metrics(self) -> None:
        """Write this process's numbers to the files that all processes read."""
        self._metrics.flush()
