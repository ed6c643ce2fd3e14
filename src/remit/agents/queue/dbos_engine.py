"""The engine that hands out orders through DBOS, on the same PostgreSQL (extra ``cluster``).

DBOS only decides which worker starts which order when. The transaction that makes an order ready
also gives its id to DBOS, by DBOS's SQL function ``enqueue_workflow``. DBOS stores portable JSON,
and its workflows return sequence numbers of the ledger. The table ``orders`` and the ledger remain
authoritative: a workflow whose order has started elsewhere or is no longer ready does nothing.

A worker is a DBOS executor of the same name, and is alive while it holds its lease. Workflows taken
by a dead worker are put back. So are workflows that DBOS took for a living worker and lost, for
example because the answer to a commit was lost.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from remit.agents.queue import rows
from remit.agents.queue.limits import Lanes
from remit.agents.queue.submission import Row
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClient, LedgerUnavailableError, Transaction

_log = logging.getLogger("remit.worker")

_WORKFLOW = "remit_order"
# Version of the workflow; DBOS gives workflows only to executors of the same version.
_VERSION = "orders-1"
# Interval at which DBOS looks for workflows, seconds.
_POLL_S = 0.2
# Interval at which due and released orders are announced, seconds.
_SWEEP_S = 0.25
# Pause before a database that does not answer is tried again, seconds.
_RETRY_S = 1.0
# Interval of the search for lost workflows, seconds. DBOS starts a taken workflow sooner.
_LOSS_CHECK_S = 5.0
# DBOS's priorities begin at 1, those of orders at -1000.
_PRIORITY_OFFSET = 1001
_PREFIX = "remit."
_UNANNOUNCED = (
    f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'ready' AND announced = 0 LIMIT 1000"
)
_TAKEN = "SELECT DISTINCT executor_id FROM {}.workflow_status WHERE status = 'PENDING'"


class DbosEngine:
    """An engine that hands out orders through DBOS.

    :meth:`announce` enqueues a ready order, :meth:`hand_out` runs an executor until its worker is
    draining. The engine changes only rows, by a claim (running or held), by making due and released
    orders ready, and by counting announcements; it appends no entry.

    Args:
        ledger: a ledger on PostgreSQL.
        settings: ``[worker]``.
        url: URL of the ledger's database, with its password.

    Raises:
        InvalidInputError: the ledger is not on PostgreSQL.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings, url: str) -> None:
        if "://" not in url:
            raise InvalidInputError(
                "[worker.orders] engine is 'dbos', but the ledger is not on PostgreSQL.",
                next_step='Set engine = "table", or move the ledger: see docs/postgresql.md.',
            )
        self._ledger = ledger
        self._settings = settings
        self._url, self._schema = _database_of(url)
        self._enqueue = (
            f"SELECT {self._schema}.enqueue_workflow(workflow_name => ?, queue_name => ?, "
            "positional_args => ARRAY[to_json(CAST(? AS text))], workflow_id => ?, "
            "app_version => ?, priority => CAST(? AS int))"
        )
        self._has_schema = False

    def announce(self, tx: Transaction, row: Row) -> None:
        """Enqueue a ready order in DBOS, in the same transaction.

        The announcement is counted in the order's row. Nothing happens before the first worker has
        created DBOS's tables; that worker announces the order.

        Args:
            tx: the transaction that makes the order ready.
            row: the order's row.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if not self._has_schema:
            (found,) = tx.execute(
                "SELECT to_regclass(CAST(? AS text)) IS NOT NULL",
                (f"{self._schema}.workflow_input",),
            )
            self._has_schema = bool(found[0])
        if not self._has_schema:
            return
        row = rows.change(tx, row, announced=row.announced + 1)
        tx.execute(
            self._enqueue,
            (_WORKFLOW, _PREFIX + row.queue, row.order_id, f"{row.order_id}.{row.announced}",
             _VERSION, row.priority + _PRIORITY_OFFSET),
        )  # fmt: skip

    async def hand_out(self, worker: rows.Taker) -> None:
        """Act as a DBOS executor until the worker is draining.

        Starts DBOS, which creates its tables on first use. Starts each claimed order by
        :meth:`Taker.begin`. Announces due orders and orders that a limit releases. Puts back
        workflows of dead workers, and lost ones of its own. A failed start of DBOS, and errors of
        the ledger, of DBOS and of its database, are logged and tried again. At the end waits for
        running orders, at most ``drain_s`` seconds, and stops DBOS.

        Args:
            worker: the worker; orders begin in its event loop.

        Raises:
            InvalidInputError: DBOS is not installed.
        """
        loop = asyncio.get_running_loop()
        started: set[str] = set()  # Workflows that run in this process.

        async def take(workflow_id: str) -> int:
            if workflow_id in started:  # A workflow was put back that was not lost.
                return -1
            started.add(workflow_id)
            try:
                claim = await self._claim(workflow_id, worker)
                if claim is None:
                    return -1
                await worker.begin(claim)
                return claim.seq
            finally:
                started.discard(workflow_id)

        async def order(order_id: str) -> int:  # DBOS calls it in a loop of its own.
            from dbos import DBOS

            taking = asyncio.run_coroutine_threadsafe(take(str(DBOS.workflow_id)), loop)
            return await asyncio.wrap_future(taking)

        while True:
            try:
                end = await asyncio.to_thread(self._launch, worker, order)
                break
            except LedgerUnavailableError as error:
                _log.warning("orders cannot be taken yet: %s", error.message)
                await worker.nudged(_RETRY_S)
                if worker.draining:
                    return
        from dbos import error as dbos_errors
        from sqlalchemy.exc import SQLAlchemyError

        missing: set[str] = set()  # Workflows of this worker that did not run at the last check.
        next_check = loop.time() + _LOSS_CHECK_S
        try:
            while not worker.draining:
                try:
                    await self._ledger.submit(functools.partial(self._sweep, worker))
                    await asyncio.to_thread(self._put_back_orphans, worker.seat)
                    if loop.time() >= next_check:
                        taken = await asyncio.to_thread(self._taken, worker.seat)
                        missing, before = taken.keys() - started, missing
                        await asyncio.to_thread(
                            self._put_back, {name: taken[name] for name in missing & before}
                        )
                        next_check = loop.time() + _LOSS_CHECK_S
                except (RemitError, dbos_errors.DBOSException, SQLAlchemyError) as error:
                    said = error.message if isinstance(error, RemitError) else type(error).__name__
                    _log.warning("orders cannot be announced: %s", said)
                await worker.nudged(_SWEEP_S)
        finally:
            drain_s = int(self._settings.orders.drain_s)
            await asyncio.ensure_future(
                asyncio.to_thread(end, workflow_completion_timeout_sec=drain_s)
            )

    async def _claim(self, workflow_id: str, worker: rows.Taker) -> Row | None:
        """Take the order of a workflow; retry while the database does not answer.

        DBOS gives the workflow to no other worker.
        """
        order_id, _, number = workflow_id.rpartition(".")
        begin = functools.partial(self._begin, order_id, int(number), worker)
        while True:
            try:
                return await self._ledger.submit(begin)
            except RemitError as error:
                _log.warning("an order cannot be taken: %s", error.message)
                await asyncio.sleep(_RETRY_S)

    def _begin(
        self, order_id: str, announced: int, worker: rows.Taker, tx: Transaction
    ) -> Row | None:
        """Claim an order for a workflow; return its row, or None if the order must not start now.

        Only the workflow of the latest announcement may start an order. So an order that runs on
        this worker under that number was claimed by this workflow, in a commit whose answer was
        lost.
        """
        row = rows.read_row(tx, order_id)
        if row is None or row.announced != announced:
            return None
        if (row.state, row.worker) == ("running", worker.seat):
            return row
        if row.state != "ready":
            return None
        if worker.draining:  # DBOS took the order before it noticed.
            self.announce(tx, row)
            return None
        lanes = Lanes(tx, row.queue, self._settings.queues, self)
        lane = "" if row.stop else lanes.full(row)
        if lane:
            rows.change(tx, row, state="held", held_by=lane)
            return None
        lanes.take(row)
        lanes.write()
        return rows.change(tx, row, state="running", worker=worker.seat, attempts=row.attempts + 1)

    def _sweep(self, worker: rows.Taker, tx: Transaction) -> None:
        """Announce orders that are due, released by a limit, or not announced yet."""
        rows.promote(tx, self)
        for queue in worker.queues:
            Lanes(tx, queue, self._settings.queues, self)  # releases held orders
        for row in rows.rows_of(tx.execute(_UNANNOUNCED)):
            self.announce(tx, row)

    def _put_back_orphans(self, seat: str) -> None:
        """Put back the workflows of executors that hold no lease."""
        held = {name for (name,) in self._ledger.select("SELECT name FROM leases")}
        for (executor,) in self._ledger.select(_TAKEN.format(self._schema)):
            if executor != seat and executor not in held:
                self._put_back(self._taken(executor))

    def _taken(self, executor: str) -> dict[str, str]:
        """Return the pending workflows of an executor: queue by workflow id."""
        from dbos import DBOS

        found = DBOS.list_workflows(
            status="PENDING", executor_id=executor, load_input=False, load_output=False
        )
        return {one.workflow_id: str(one.queue_name) for one in found}

    def _put_back(self, workflows: Mapping[str, str]) -> None:
        """Return workflows to their queues, for any worker to take."""
        from dbos import DBOS

        for queue in set(workflows.values()):
            ids = [name for name, its in workflows.items() if its == queue]
            DBOS.resume_workflows(ids, queue_name=queue)

    def _launch(self, worker: rows.Taker, order: Callable[[str], Any]) -> Callable[..., None]:
        """Start DBOS in this process; return the function that stops it.

        Raises:
            InvalidInputError: DBOS is not installed.
            LedgerUnavailableError: the database did not answer, or refused DBOS's tables.
        """
        try:
            from dbos import DBOS, DBOSPortableJSONSerializer, WorkflowSerializationFormat
            from sqlalchemy.exc import DBAPIError
        except ImportError as error:
            raise InvalidInputError(
                "[worker.orders] engine is 'dbos', but DBOS is not installed.",
                next_step="Run `pip install 'remit[cluster]'`, or set engine = \"table\".",
            ) from error
        DBOS(
            config={
                "name": "remit", "system_database_url": self._url,
                "dbos_system_schema": self._schema, "executor_id": worker.seat,
                "application_version": _VERSION, "serializer": DBOSPortableJSONSerializer(),
                "log_level": "ERROR",
            }
        )  # fmt: skip
        DBOS.workflow(
            name=_WORKFLOW, serialization_type=WorkflowSerializationFormat.PORTABLE,
            max_recovery_attempts=None,
        )(order)  # fmt: skip
        DBOS.listen_queues([_PREFIX + queue for queue in worker.queues])
        end = functools.partial(DBOS.destroy, destroy_registry=True)
        try:
            DBOS.launch()
            for queue in worker.queues:
                limits = self._settings.queues.get(queue)
                DBOS.register_queue(
                    _PREFIX + queue, worker_concurrency=worker.at_once,
                    polling_interval_sec=_POLL_S,
                    global_concurrency=limits.at_once if limits and limits.at_once else None,
                )  # fmt: skip
        except DBAPIError as error:
            end()
            said = type(error.orig or error).__name__
            raise LedgerUnavailableError(f"DBOS cannot be started ({said}).") from error
        return end


def _database_of(url: str) -> tuple[str, str]:
    """Return the URL for SQLAlchemy, and the name of DBOS's schema: one for each ledger schema."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query)
    ledger_schema = next((value for name, value in query if name == "search_path"), "public")
    rest = urlencode([pair for pair in query if pair[0] != "search_path"])
    suffix = re.sub(r"[^a-z0-9_]", "_", ledger_schema.lower())
    schema = "dbos" if ledger_schema == "public" else f"dbos_{suffix}"
    database = urlunsplit(("postgresql+psycopg", parts.netloc, parts.path, rest, ""))
    return database, schema
