"""Orders for workers: submit, read, change, wait.

Each change writes an entry and the queue's row in one transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Self

from remit.agents.queue import entries, rows
from remit.agents.queue.projection import stated
from remit.agents.queue.submission import (
    END_STATES,
    STATES,
    OrderStatus,
    Row,
    Submission,
    no_such_order,
    order_id_of,
    require_id,
)
from remit.agents.queue.table_engine import TableEngine
from remit.agents.sessions.manager import new_session_id
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.settings import Settings, WorkerSettings
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, parse_entry_id

_SUBMISSION = (
    "SELECT 1 FROM entries WHERE submission_id = ? AND event_type = 'ORDER_SUBMITTED' LIMIT 1"
)
_MIN_POLL_S, _MAX_POLL_S = 0.01, 0.25
_DEFAULT_LIMIT = 100


class OrderQueue:
    """The orders of a ledger; submits, copies, reads, cancels, pauses, resumes and retries orders.

    Workers take and end orders through ``engine``. Every method that changes an order writes its
    entry and its row in one transaction and returns the id or the new status. An object may be used
    by several threads.

    Args:
        ledger: the ledger, with the queue's tables in its database.
        settings: ``[worker]``.
        engine: hands out ready orders; kept as the attribute ``engine``.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings, engine: rows.Engine) -> None:
        self._ledger = ledger
        self._settings = settings
        self.engine = engine

    @classmethod
    def of_root(cls, ledger: LedgerClient, settings: Settings) -> Self:
        """Return the orders of a root, with the engine that its settings name.

        Args:
            ledger: the root's ledger.
            settings: the root's settings; ``[worker.orders] engine`` names the engine.

        Raises:
            InvalidInputError: the engine is ``dbos``, and the ledger is not on PostgreSQL.
        """
        engine: rows.Engine
        if settings.worker.orders.engine == "dbos":
            from remit.agents.queue.dbos_engine import DbosEngine  # Needs the extra `cluster`.

            engine = DbosEngine(ledger, settings.worker, settings.ledger.path)
        else:
            engine = TableEngine(ledger, settings.worker)
        return cls(ledger, settings.worker, engine)

    # -- submitting --------------------------------------------------------------------------

    def submit(self, wanted: Submission, *, by: str, key: str = "") -> str:
        """Submit an order and return its id, once its entry and its row are durable.

        One transaction appends ``ORDER_SUBMITTED``, inserts the row, and announces the order to the
        engine unless it is due later. If a key is repeated, only kind, task, user and data subject
        are compared; all else of the first order stays.

        Args:
            wanted: the work.
            by: the recorded name of the submitter.
            key: idempotency key of the work for its agent. Submitting the same work again with its
                key writes nothing and returns the first order's id. Empty for a new order.

        Raises:
            InvalidInputError: the key was used for another kind, task, user or data subject; the
                key contains a NUL character or a lone surrogate, or ``by`` a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """
        order_id, put = self.prepare(wanted, by=by, key=key)
        self._ledger.transact(put)
        if key:
            self.require_same_work(order_id, wanted)
        return order_id

    def require_same_work(self, order_id: str, wanted: Submission) -> None:
        """Raise InvalidInputError if an order was submitted for other work or another person.

        Kind, task, user and data subject are compared. An erased task or data subject is not
        compared, and neither is the data subject if ``wanted`` names none.

        Args:
            order_id: the order.
            wanted: the work to compare with the recorded submission.

        Raises:
            InvalidInputError: the recorded work differs.
            NotFoundError: there is no such order.
            LedgerError: the ledger cannot be read.
        """
        data = self.submission(order_id).metadata
        task = wanted.task if isinstance(data["task"], Erased) else data["task"]
        subject = data.get("subject_id", "")
        if isinstance(subject, Erased) or not wanted.subject_id:
            subject = wanted.subject_id
        recorded = data["kind"], task, data.get("user_id", ""), subject
        if recorded != (wanted.kind, wanted.task, wanted.user_id, wanted.subject_id):
            raise InvalidInputError(
                f"The key of the order {order_id} was used for other work.",
                next_step="Use a key that identifies the input, such as a row's id.",
            )

    def prepare(
        self, wanted: Submission, *, by: str, key: str = "", forked_from: str = ""
    ) -> tuple[str, Callable[[Transaction], None]]:
        """Return an order's id, and the function that submits the order in a transaction.

        The caller runs the function in its own transaction. The function appends
        ``ORDER_SUBMITTED``, inserts the row and announces an order to the engine unless it is due
        later. Equal agents and keys give the same id. If that order exists, the function does
        nothing, even if its work differs; :meth:`require_same_work` compares.

        Args:
            wanted: the work.
            by: the recorded name of the submitter.
            key: idempotency key; empty for a new order.
            forked_from: id of the order of which this is a copy; may be empty.

        Raises:
            InvalidInputError: the key contains a NUL character or a lone surrogate, or ``by`` a
                lone surrogate.
        """
        order_id, session_id = order_id_of(wanted.agent_id, key), new_session_id()
        max_attempts = wanted.max_attempts or self._settings.orders.max_attempts
        entry = entries.submitted(order_id, session_id, wanted, max_attempts, by, forked_from)
        prepared = self._ledger.prepare(entry, subject_id=wanted.subject_id or None)

        def put(tx: Transaction) -> None:
            if key and tx.execute(_SUBMISSION, (order_id,)):
                return
            seq = parse_entry_id(tx.append(prepared))
            assert seq is not None
            due = 0
            if wanted.due is not None:
                due = int(wanted.due.timestamp() * 1000) - tx.wall_ms + tx.now_ms
            row = Row(
                **stated(entry, seq), state="delayed" if due > tx.now_ms else "ready", due_ms=due,
                attempts=0, worker="", held_by="", waits_for="", announced=0,
            )  # fmt: skip
            rows.insert(tx, row)
            self._announce(tx, row)

        return order_id, put

    def fork(self, order_id: str, *, by: str) -> str:
        """Submit the work of an order again as a new order in a new session; return its id.

        Appends ``ORDER_SUBMITTED``, which names the copied order, and inserts a row. The due time
        and the idempotency key are not copied, so the order is ready at once and each call makes
        another copy. The copied order may be in any state and is not changed.

        Args:
            order_id: the order to copy.
            by: the recorded name of the submitter.

        Raises:
            NotFoundError: there is no such order, or the text is not in the form of an order's id.
            ConflictError: the task was erased.
            InvalidInputError: ``by`` contains a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """
        submission = self.submission(order_id)
        data = submission.metadata
        task = data["task"]
        if isinstance(task, Erased):
            raise ConflictError(
                f"The task of the order {order_id} was erased.", next_step="Submit a new order."
            )
        optional = ("key_id", "model_id", "user_id", "tokens", "usd")
        wanted = Submission(
            task=task, subject_id=entries.subject_of(submission),
            **{name: data[name] for name in ("agent_id", "kind", "queue", "priority",
                                                      "max_attempts")},
            **{name: data[name] for name in optional if name in data},
        )  # fmt: skip
        forked, put = self.prepare(wanted, by=by, forked_from=order_id)
        self._ledger.transact(put)
        return forked

    # -- reading -----------------------------------------------------------------------------

    def get(self, order_id: str) -> OrderStatus:
        """Return the status of an order, read from its row and its entries.

        Entries that are not authentic are ignored.

        Args:
            order_id: id of the order.

        Raises:
            NotFoundError: there is no such order, or the text is not in the form of an order's id.
            LedgerFormatError: the order is open in the ledger, but has no row.
            LedgerError: the ledger cannot be read.
        """
        require_id(order_id)
        status = entries.read_status(self._ledger, order_id, self._due)
        if status is None:
            raise no_such_order(order_id)
        return status

    def list(
        self, *, queue: str = "", state: str = "", limit: int = _DEFAULT_LIMIT, after: str = ""
    ) -> Iterator[OrderStatus]:
        """Yield the status of orders.

        Without ``state``, orders that are neither completed nor cancelled are listed. Such orders
        come by priority, then by age, from one query at the first iteration. The status of a failed
        one is read when reached. Completed or cancelled orders come latest end first, each read
        when reached.

        Args:
            queue: orders of one queue; all if empty.
            state: orders in one state; see above if empty.
            limit: maximum number of orders; 100 by default.
            after: an :attr:`OrderStatus.cursor`: only orders after it are listed, even if that
                order has ended. Empty to list from the start.

        Raises:
            InvalidInputError: the state or the cursor is unknown; raised at the first iteration.
            LedgerError: the ledger cannot be read.
        """
        if state and state not in STATES:
            raise InvalidInputError(
                f"There is no state {state!r}.", next_step=f"Use one of {', '.join(STATES)}."
            )
        if state in ("completed", "cancelled"):
            yield from self._list_ended(queue, state, limit, after)
            return
        equal = {name: value for name, value in (("queue", queue), ("state", state)) if value}
        conditions = [f"o.{name} = ?" for name in equal]
        if after:
            conditions.append("(o.priority, o.seq) > (?, ?)")
        where = " AND ".join(conditions)
        columns = ", ".join(f"o.{name}" for name in Row._fields)
        found = self._ledger.select(
            f"SELECT e.timestamp, {columns} FROM orders AS o JOIN entries AS e ON e.seq = o.seq "
            f"{f'WHERE {where} ' if where else ''}ORDER BY o.priority, o.seq LIMIT ?",
            (*equal.values(), *(rows.parsed_cursor(after) if after else ()), limit),
        )
        for submitted, *values in found:
            row = Row(*values)
            if row.state == "failed":
                yield self.get(row.order_id)
            else:
                yield entries.status_of_row(row, submitted, self._due(row))

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the number of orders by queue and state, without completed and cancelled ones.

        Queues and states without orders are absent. Queues and states are in alphabetical order.
        Orders set aside count as ``failed``.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        counts: dict[str, dict[str, int]] = {}
        for queue, state, number in self._ledger.select(
            "SELECT queue, state, count(*) FROM orders GROUP BY queue, state ORDER BY queue, state"
        ):
            counts.setdefault(queue, {})[state] = number
        return counts

    def submission(self, order_id: str) -> LedgerEntry:
        """Return the ``ORDER_SUBMITTED`` of an order, with its content.

        Args:
            order_id: id of the order.

        Raises:
            NotFoundError: there is no such order, or the text is not in the form of an order's id.
            LedgerError: the ledger cannot be read.
        """
        require_id(order_id)
        found = self._ledger.query(submission_id=order_id, event_type="ORDER_SUBMITTED", limit=1)
        for entry in found:
            return entry
        raise no_such_order(order_id)

    async def ended(self, order_id: str, timeout_s: float | None = None) -> OrderStatus:
        """Wait until an order is completed, cancelled or set aside; return its status.

        The database is polled at intervals of 0.01 to 0.25 s. A failed order counts as ended
        although it can be retried.

        Args:
            order_id: the order.
            timeout_s: maximum wait, seconds; None for no limit.

        Raises:
            NotFoundError: there is no such order, or the text is not in the form of an order's id.
            TimeoutError: the order has not ended in time.
            LedgerError: the ledger cannot be read.
        """
        await asyncio.to_thread(self.get, order_id)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        pause = _MIN_POLL_S
        while True:
            found = await asyncio.to_thread(
                self._ledger.select, "SELECT state FROM orders WHERE order_id = ?", (order_id,)
            )
            if not found or found[0][0] == "failed":
                return await asyncio.to_thread(self.get, order_id)
            remaining = pause if end is None else end - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"The order {order_id} has not ended after {timeout_s:g} s.")
            await asyncio.sleep(min(pause, remaining))
            pause = min(pause * 1.5, _MAX_POLL_S)

    # -- changing ----------------------------------------------------------------------------

    def cancel(self, order_id: str, *, by: str) -> OrderStatus:
        """Cancel an order; return its status.

        An order that has not started, or was set aside, ends at once: its row is deleted and
        ``ORDER_ENDED`` appended. Another order is asked to stop: ``ORDER_CHANGED`` is appended and
        its row is marked. Unless it runs, the order becomes ready, even if it is paused or not due.
        A worker ends it soon after. Nothing changes if the order was asked already.

        Args:
            order_id: the order.
            by: the recorded name of the person who cancels.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: the order is completed or cancelled.
            InvalidInputError: ``by`` contains a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """

        def act(tx: Transaction, row: Row) -> None:
            has_started = row.state in ("running", "waiting") or rows.session_started(
                tx, row.session_id
            )
            if row.state == "failed" or not has_started:
                rows.delete(tx, order_id)
                tx.append(entries.ended(row, "CANCELLED", by=by))
            elif not row.stop:
                tx.append(entries.changed(row, "STOPPED", by))
                state = "running" if row.state == "running" else "ready"
                row = rows.change(tx, row, stop=1, state=state, held_by="", waits_for="")
                self._announce(tx, row)

        return self._change(order_id, act)

    def pause(self, order_id: str, *, by: str) -> OrderStatus:
        """Keep an order from starting until :meth:`resume`; return its status.

        Sets the row's state and appends ``ORDER_CHANGED``.

        Args:
            order_id: the order.
            by: the recorded name of the person who pauses.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: the order runs, waits for a person, is paused, or has ended.
            InvalidInputError: ``by`` contains a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """

        def act(tx: Transaction, row: Row) -> None:
            self._require(row, "ready", "delayed", "held")
            rows.change(tx, row, state="paused", held_by="")
            tx.append(entries.changed(row, "PAUSED", by))

        return self._change(order_id, act)

    def resume(self, order_id: str, *, by: str) -> OrderStatus:
        """Make a paused order ready, or delayed if it is not due; return its status.

        Sets the row's state, appends ``ORDER_CHANGED`` and announces a ready order to the engine.

        Args:
            order_id: the order.
            by: the recorded name of the person who resumes.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: the order is not paused.
            InvalidInputError: ``by`` contains a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """

        def act(tx: Transaction, row: Row) -> None:
            self._require(row, "paused")
            state = "delayed" if row.due_ms > tx.now_ms else "ready"
            tx.append(entries.changed(row, "RESUMED", by))
            self._announce(tx, rows.change(tx, row, state=state))

        return self._change(order_id, act)

    def retry(self, order_id: str, *, by: str) -> OrderStatus:
        """Make an order ready that was set aside; return its status.

        Its attempts are counted from 0 again, and an earlier request to stop is dropped. An
        interrupted turn is continued. A turn that ended without an answer is repeated in a new
        session. Appends ``ORDER_CHANGED`` and announces the order to the engine.

        Args:
            order_id: the order.
            by: the recorded name of the person who retries.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: the order is in another state than set aside (``failed``).
            InvalidInputError: ``by`` contains a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """

        def act(tx: Transaction, row: Row) -> None:
            self._require(row, "failed")
            if tx.execute(_TURN, (row.session_id,)):
                row = row._replace(session_id=new_session_id())
            tx.append(entries.changed(row, "RETRIED", by))
            row = rows.change(tx, row, session_id=row.session_id, state="ready", attempts=0, stop=0)
            self._announce(tx, row)

        return self._change(order_id, act)

    def _change(self, order_id: str, act: Callable[[Transaction, Row], None]) -> OrderStatus:
        status = self.get(order_id)

        def work(tx: Transaction) -> None:
            row = rows.read_row(tx, order_id)
            if row is None:
                raise ConflictError(f"The order {order_id} has ended already.")
            act(tx, row)

        if status.has_ended and status.state != "failed":
            raise ConflictError(f"The order {order_id} is {status.state} already.")
        self._ledger.transact(work)
        return self.get(order_id)

    def _announce(self, tx: Transaction, row: Row) -> None:
        if row.state == "ready":
            self.engine.announce(tx, row)

    def _require(self, row: Row, *states: str) -> None:
        if row.state not in states:
            raise ConflictError(
                f"The order {row.order_id} is {row.state}, not {' or '.join(states)}.",
                next_step=f"Run `remit order show {row.order_id}` to see its state.",
            )

    def _list_ended(self, queue: str, state: str, limit: int, after: str) -> Iterator[OrderStatus]:
        shown = 0
        if after:
            rows.parsed_cursor(f"0/{after}")  # Raises for an unknown cursor.
        for entry in self._ledger.query(
            event_type="ORDER_ENDED", order="desc", after=after or None, with_content=False
        ):
            if shown == limit:
                return
            if END_STATES.get(entry.decision) != state:
                continue
            status = self.get(entry.submission_id)
            if status.ended_entry_id == entry.id and queue in ("", status.queue):
                shown += 1
                yield status

    def _due(self, row: Row) -> str:
        if row.state != "delayed":
            return ""
        ms = row.due_ms - self._ledger.now_ms + self._ledger.wall_ms
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


_TURN = "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'TURN_RECORDED' LIMIT 1"
