"""Batches: many calls in one request, reserved together and recorded one by one.

The package owns the tables ``batches`` and ``batch_lines``, and the polling of batches. The request
that creates a batch is an ordinary call of the gateway; its reservation stays until results come.

Invariants: each result becomes a ``DISPATCH`` and its ``EXCHANGE`` in the transaction that settles
the result, so no result is charged twice.

Start reading in :class:`Batches`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from remit.gateway.batches.lines import identified, object_of
from remit.gateway.batches.plan import BatchPlan, BatchRefusedError, Planner
from remit.gateway.batches.results import GROUP, Results
from remit.gateway.batches.rows import Row
from remit.gateway.config import RouterConfig
from remit.gateway.provider_objects import provider_id_of
from remit.gateway.transport import AnyProvider
from remit.kernel.errors import RemitError
from remit.kernel.loops import abandon
from remit.ledger import LedgerClient
from remit.providers import ProviderError, Timeouts, UpstreamProvider, error_of
from remit.providers.wire import BATCHES, FILES

__all__ = ["BatchPlan", "BatchRefusedError", "Batches", "Planner", "Results"]

_log = logging.getLogger("remit.gateway")

_WINDOW_MS = 86_400_000
"""When a batch expires whose provider does not say: the window of every provider's batches."""

_LOST_AFTER_MS = 31 * _WINDOW_MS
"""Providers keep results for a month: results that cannot be read by then never will be."""

_ENDED = ("completed", "failed", "expired", "cancelled")
_RESULTS = ("completed", "failed", "succeeded", "errored", "canceled", "expired")
_MAX_STATUS_BYTES = 1024 * 1024
_LINE_BYTES = 64 * 1024 * 1024


class Batches:
    """Batches that are planned here, polled at their providers, and settled after their end.

    :meth:`settle` runs once at a time for each batch; :meth:`aclose` ends it.

    Args:
        ledger: the ledger that records the results and whose database contains the batches.
        planner: checks new batches and computes their bounds.
        results: records and settles results.
        providers: registered providers, keyed by provider id.
        config: timeouts.

    Attributes:
        plan: :meth:`Planner.plan`.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        planner: Planner,
        results: Results,
        providers: Mapping[str, AnyProvider],
        config: RouterConfig,
    ) -> None:
        self._ledger = ledger
        self.plan = planner.plan
        self._results = results
        self._providers = providers
        self._timeouts = Timeouts(
            config.connect_timeout_ms / 1000, config.default_timeout_ms / 1000,
            config.idle_timeout_ms / 1000,
        )  # fmt: skip
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def poll(self, owner: str = "") -> int:
        """Ask the providers for the state of open batches and settle the ended ones.

        Batches are asked one after the other, oldest first. A batch that cannot be settled now is
        logged and stays open.

        Args:
            owner: restricts the poll to the batches of one owner; empty for all batches.

        Returns:
            The number of batches that stay open.

        Raises:
            LedgerError: the batches cannot be read.
        """
        rows = await asyncio.to_thread(self._rows, owner=owner)
        for row in rows:
            try:
                await self.settle(row.batch_id)
            except RemitError as error:
                _log.warning("batch %s is not settled yet: %s", row.batch_id, error.message)
        return len(await asyncio.to_thread(self._rows, owner=owner)) if rows else 0

    async def settle(self, batch_id: str, *, gone: bool = False) -> None:
        """Record and settle the results of one batch if it has ended, expired or disappeared.

        Each result gets a ``DISPATCH`` and an ``EXCHANGE``; then the rows of the batch and its
        reservation are deleted. An open or unknown batch is left as it is, and so is a batch whose
        provider is not registered here. Concurrent calls for one batch share the work. If the
        caller is cancelled, the work continues. A batch whose state cannot be read after its
        window of 24 hours, or its results after 31 days, counts as lost: requests without a result
        are charged at their bound. So are those of a batch whose provider has not named the file of
        its results a day after its expiry, or whose file then still lacks results.

        Args:
            batch_id: id of the batch's row.
            gone: True if the provider has deleted the batch. Requests without a result are then
                charged at their bound.

        Raises:
            ProviderError: the provider cannot be asked, or its results cannot be read; not raised
                for a lost batch.
            LedgerError: the results could not be read or recorded; the batch stays open.
        """
        task = self._settling.get(batch_id)
        if gone and task is not None:
            await asyncio.wait({task})
            task = None
        if task is None:
            task = asyncio.create_task(self._settle(batch_id, gone))
            self._settling[batch_id] = task
            task.add_done_callback(lambda _: self._settling.pop(batch_id, None))
            abandon(task)  # The waiting callers receive its error.
        await asyncio.shield(task)

    async def aclose(self) -> None:
        """Cancel the settling of batches and wait until transactions in progress have ended.

        The callers of :meth:`settle` are cancelled too; the batches stay open.
        """
        tasks = list(self._settling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _rows(self, batch_id: str = "", *, owner: str = "") -> list[Row]:
        sql, named = f"SELECT {', '.join(Row._fields)} FROM batches", batch_id or owner
        if batch_id:
            sql += " WHERE batch_id = ?"
        elif owner:
            sql += " WHERE batch_id IN (SELECT object_id FROM provider_objects WHERE owner = ?)"
        rows = self._ledger.select(f"{sql} ORDER BY created_ms", (named,) if named else ())
        return [Row(*row) for row in rows]

    async def _settle(self, batch_id: str, gone: bool) -> None:
        rows = await asyncio.to_thread(self._rows, batch_id)
        provider = self._providers.get(rows[0].provider_id) if rows else None
        if not isinstance(provider, UpstreamProvider):
            return
        [row] = rows
        dialect = provider.home.dialect
        endpoint = BATCHES[dialect]
        path = f"{endpoint.path}/{quote(provider_id_of(batch_id), safe='')}"
        age_ms = await asyncio.to_thread(getattr, self._ledger, "now_ms") - row.created_ms
        try:
            async with await provider.fetch(path, {}, self._timeouts) as came:
                raw = await came.read(_MAX_STATUS_BYTES)
        except ProviderError:
            if age_ms <= _WINDOW_MS:
                raise
            came, raw = None, b""
        status = object_of(raw) if came is not None and came.status == 200 else {}
        state = status.get("processing_status" if dialect == "anthropic" else "status")
        if state not in ("ended", *_ENDED):
            if gone or (came is not None and came.status in (404, 410)):
                await _to_the_end(self._results.finish, row, dialect, "deleted", [])
            elif age_ms > _expires_after_ms(status, row):
                await _to_the_end(self._results.finish, row, dialect, "lost", [])
            return
        files = [
            name
            for key in ("output_file_id", "error_file_id")
            if isinstance(name := status.get(key), str) and name
        ]
        waits = age_ms <= _expires_after_ms(status, row) + _WINDOW_MS
        is_short = dialect == "openai" and _lacks_a_file(status)
        if is_short and waits:
            return
        paths = [f"{FILES['openai'].path}/{quote(name, safe='')}/content" for name in files]
        texts = await asyncio.to_thread(self._results.texts, row, dialect)
        read = 0
        try:
            for results in [f"{path}/results"] if dialect == "anthropic" else paths:
                async for lines in _groups(provider, results, self._timeouts):
                    read += len(lines)
                    group = [one for line in lines for one in identified(line)]
                    await _to_the_end(self._results.record, row, dialect, texts, group)
        except ProviderError:
            if age_ms <= _LOST_AFTER_MS:
                raise
            state = "lost"
        else:
            is_short = is_short or read < _promised(status)
            if is_short and waits:
                return  # The file is still being written.
            if is_short:
                state = "lost"
        await _to_the_end(self._results.finish, row, dialect, str(state), files)


def _lacks_a_file(status: Mapping[str, Any]) -> bool:
    """Return True if an ended batch of OpenAI has results, but does not name their file yet."""
    if status.get("output_file_id"):
        return False
    counts = status.get("request_counts")
    completed = counts.get("completed") if isinstance(counts, dict) else None
    has_answers = isinstance(completed, int) and completed > 0
    return has_answers or (status["status"] == "completed" and not status.get("error_file_id"))


def _promised(status: Mapping[str, Any]) -> int:
    """Return the number of results that an ended batch states; 0 if it states none."""
    counts = status.get("request_counts")
    found = counts.items() if isinstance(counts, dict) else ()
    return sum(count for name, count in found if name in _RESULTS and type(count) is int)


def _expires_after_ms(status: Mapping[str, Any], row: Row) -> int:
    """Return the milliseconds from a batch's creation to its expiry.

    The provider's ``expires_at`` counts if it is within 31 days, else the usual window of 24 hours.
    """
    stated = status.get("expires_at")
    try:
        at_s = datetime.fromisoformat(stated).timestamp() if isinstance(stated, str) else stated
    except ValueError:
        at_s = None
    if isinstance(at_s, (int, float)) and math.isfinite(at_s):
        after_ms = int(at_s * 1000) - row.created_ms
        if 0 < after_ms <= _LOST_AFTER_MS:
            return after_ms
    return _WINDOW_MS


async def _to_the_end(call: Callable[..., None], *args: Any) -> None:
    """Run ``call`` in a thread; a cancelled caller still waits for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _groups(
    provider: UpstreamProvider, path: str, timeouts: Timeouts
) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a file of results in groups, without blank lines and a cut last one.

    Raises:
        ProviderError: the file cannot be read, or a line is longer than 64 MiB.
    """
    group: list[bytes] = []
    rest = bytearray()
    async with await provider.fetch(path, {}, timeouts) as came:
        if came.status != 200:
            raise error_of(came.status, came.headers, await came.read(_MAX_STATUS_BYTES))
        async for piece in came.chunks():
            rest += piece
            if len(rest) > _LINE_BYTES:
                raise ProviderError("SERVER_ERROR", "a line of the results is too long")
            if b"\n" not in piece:
                continue
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            group += [line for line in whole if line.strip()]
            while len(group) >= GROUP:
                yield group[:GROUP]
                del group[:GROUP]
    group += [bytes(rest)] if identified(bytes(rest)) else []
    if group:
        yield group
