"""Orders begin by DBOS, on the same PostgreSQL (extra ``cluster``).

DBOS says which worker takes which order when, and nothing else: it is given an order's id, in the
transaction that makes the order ready, by its own SQL function ``enqueue_workflow``; it keeps
portable JSON; and its workflows return sequence numbers of the ledger. What an order is, how it
stands and what became of it are the table ``orders`` and the record, as without it: a workflow
whose order has begun elsewhere, or is not ready any more, does nothing.

A worker is DBOS's executor of the same name. Whether it lives is known by its lease, as of any
worker: workflows that a dead one had taken are put back, and so are those that DBOS itself took for
a living one and lost, as where the answer to its own commit was.
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
from remit.agents.queue.limits import Limits
from remit.agents.queue.order import Row
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClient, Transaction

__all__ = ["DbosEngine"]

_log = logging.getLogger("remit.worker")

_WORKFLOW = "remit_order"
_VERSION = "orders-1"  # of the workflow: DBOS gives it to executors of the same version
_POLL_S = 0.2  # how often it looks for workflows
_SWEEP_S = 0.25  # how often orders that are due, or have room again, are announced
_AWAY_S = 1.0  # until a database is tried again that does not answer
_LOST_S = 5.0  # in which DBOS begins what it has taken, or has lost it
_FIRST = 1001  # DBOS's priorities begin at 1; ours at -1000
_PREFIX = "remit."
_NEVER = f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'ready' AND announced = 0 LIMIT 1000"
_TAKEN = "SELECT DISTINCT executor_id FROM {}.workflow_status WHERE status = 'PENDING'"


class DbosEngine:
    """See the module.

    Args:
        ledger: on PostgreSQL.
        settings: ``[worker]``.
        url: of the ledger's database, with its password.

    Raises:
        InvalidInputError: the ledger is not on PostgreSQL.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings, url: str) -> None:
        if not url.startswith("postgresql://"):
            raise InvalidInputError(
                "[worker.orders] engine is 'dbos', and the ledger is not on PostgreSQL.",
                next_step='Set engine = "table", or move the ledger: see docs/postgresql.md.',
            )
        self._ledger = ledger
        self._settings = settings
        self._limits = Limits(settings.queues, self)
        self._url, self._schema = _places(url)
        self._enqueue = (
            f"SELECT {self._schema}.enqueue_workflow(workflow_name => ?, queue_name => ?, "
            "positional_args => ARRAY[to_json(CAST(? AS text))], workflow_id => ?, "
            "app_version => ?, priority => CAST(? AS int))"
        )
        self._is_there = False

    def announce(self, tx: Transaction, row: Row) -> None:
        """Give DBOS an order, in the transaction that makes it ready.

        Before the first worker has made DBOS's tables there is nobody to give it to: that worker
        finds it.
        """
        if not self._is_there:
            (found,) = tx.execute(
                "SELECT to_regclass(CAST(? AS text)) IS NOT NULL",
                (f"{self._schema}.workflow_input",),
            )
            self._is_there = bool(found[0])
        if not self._is_there:
            return
        row = rows.change(tx, row, announced=row.announced + 1)
        tx.execute(
            self._enqueue,
            (_WORKFLOW, _PREFIX + row.queue, row.order_id, f"{row.order_id}.{row.announced}",
             _VERSION, row.priority + _FIRST),
        )  # fmt: skip

    async def hand_out(self, worker: rows.Taker) -> None:
        """Be an executor of DBOS until the worker is draining."""
        loop = asyncio.get_running_loop()
        begun: set[str] = set()  # workflows that run here

        async def take(workflow_id: str) -> int:
            if workflow_id in begun:  # put back, and not lost
                return -1
            begun.add(workflow_id)
            try:
                claim = await self._claim(workflow_id, worker)
                if claim is None:
                    return -1
                await worker.begin(claim)
                return claim.seq
            finally:
                begun.discard(workflow_id)

        async def order(order_id: str) -> int:  # in DBOS's own loop
            from dbos import DBOS

            taking = asyncio.run_coroutine_threadsafe(take(str(DBOS.workflow_id)), loop)
            return await asyncio.wrap_future(taking)

        end = await asyncio.to_thread(self._launch, worker, order)
        ending: asyncio.Future[None] | None = None
        lost: set[str] = set()  # workflows of this worker that do not run, at the last look
        look_at = loop.time() + _LOST_S
        try:
            while not worker.draining:
                try:
                    await self._ledger.submit(functools.partial(self._sweep, worker))
                    await asyncio.to_thread(self._put_back_of_others, worker.seat)
                    if loop.time() >= look_at:
                        taken = await asyncio.to_thread(self._taken, worker.seat)
                        lost, before = taken.keys() - begun, lost
                        await asyncio.to_thread(
                            self._put_back, {name: taken[name] for name in lost & before}
                        )
                        look_at = loop.time() + _LOST_S
                except RemitError as error:
                    _log.warning("orders cannot be announced: %s", error.message)
                await worker.nudged(_SWEEP_S)
        finally:
            drain_s = int(self._settings.orders.drain_s)
            ending = asyncio.ensure_future(
                asyncio.to_thread(end, workflow_completion_timeout_sec=drain_s)
            )
            await ending

    async def _claim(self, workflow_id: str, worker: rows.Taker) -> Row | None:
        """Take the order of a workflow, however long the database does not answer: DBOS gives it to
        nobody else."""
        order_id, _, number = workflow_id.rpartition(".")
        begin = functools.partial(self._begin, order_id, int(number), worker)
        while True:
            try:
                return await self._ledger.submit(begin)
            except RemitError as error:
                _log.warning("an order cannot be taken: %s", error.message)
                await asyncio.sleep(_AWAY_S)

    def _begin(
        self, order_id: str, announced: int, worker: rows.Taker, tx: Transaction
    ) -> Row | None:
        """Take an order by the workflow of its ``announced`` time; ``None`` where it is not to be
        done now. Only the latest begins it: so what runs on this worker by that number was taken
        by this workflow, in a commit whose answer was lost."""
        row = rows.read_row(tx, order_id)
        if row is None or row.announced != announced:
            return None
        if (row.state, row.worker) == ("running", worker.seat):
            return row
        if row.state != "ready":
            return None
        if worker.draining:  # DBOS was faster
            self.announce(tx, row)
            return None
        lanes = self._limits.of(tx, row.queue)
        lane = "" if row.stop else lanes.full(row)
        if lane:
            rows.change(tx, row, state="held", held_by=lane)
            return None
        lanes.take(row)
        lanes.write()
        return rows.change(tx, row, state="running", worker=worker.seat, attempts=row.attempts + 1)

    def _sweep(self, worker: rows.Taker, tx: Transaction) -> None:
        """Announce what is due, has room again, or was submitted before there was a worker."""
        rows.promote(tx, self)
        for queue in worker.queues:
            self._limits.of(tx, queue)
        for row in rows.rows_of(tx.execute(_NEVER)):
            self.announce(tx, row)

    def _put_back_of_others(self, seat: str) -> None:
        """Put back the workflows of workers that are gone."""
        held = {name for (name,) in self._ledger.select("SELECT name FROM leases")}
        for (executor,) in self._ledger.select(_TAKEN.format(self._schema)):
            if executor != seat and executor not in held:
                self._put_back(self._taken(executor))

    def _taken(self, executor: str) -> dict[str, str]:
        """The workflows that a worker has taken, by id, each with its queue."""
        from dbos import DBOS

        found = DBOS.list_workflows(
            status="PENDING", executor_id=executor, load_input=False, load_output=False
        )
        return {one.workflow_id: str(one.queue_name) for one in found}

    def _put_back(self, workflows: Mapping[str, str]) -> None:
        """Have these workflows taken again, each by a worker of its queue."""
        from dbos import DBOS

        for queue in set(workflows.values()):
            ids = [name for name, its in workflows.items() if its == queue]
            DBOS.resume_workflows(ids, queue_name=queue)

    def _launch(self, worker: rows.Taker, order: Callable[[str], Any]) -> Callable[..., None]:
        """Start DBOS in this process; returns what ends it."""
        try:
            from dbos import DBOS, DBOSPortableJSONSerializer, WorkflowSerializationFormat
        except ImportError as error:
            raise InvalidInputError(
                "[worker.orders] engine is 'dbos', which is not installed.",
                next_step="pip install 'remit[cluster]', or set engine = \"table\".",
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
        DBOS.launch()
        for queue in worker.queues:
            limits = self._settings.queues.get(queue)
            DBOS.register_queue(
                _PREFIX + queue, worker_concurrency=worker.at_once, polling_interval_sec=_POLL_S,
                global_concurrency=limits.at_once if limits and limits.at_once else None,
            )  # fmt: skip
        return functools.partial(DBOS.destroy, destroy_registry=True)


def _places(url: str) -> tuple[str, str]:
    """The URL as SQLAlchemy has it, and DBOS's schema: one for each schema of a ledger."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query)
    own = next((value for name, value in query if name == "search_path"), "public")
    rest = urlencode([pair for pair in query if pair[0] != "search_path"])
    schema = "dbos" if own == "public" else f"dbos_{re.sub(r'[^a-z0-9_]', '_', own.lower())}"
    place = urlunsplit(("postgresql+psycopg", parts.netloc, parts.path, rest, ""))
    return place, schema
