"""Orders for workers: submitted, changed, looked at, ended; the record and the queue's row in one
transaction each time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Self

from remit.agents.queue import entries, rows
from remit.agents.queue.engines import engine_of
from remit.agents.queue.order import (
    ENDED,
    STATES,
    OrderStatus,
    Row,
    Submission,
    no_such_order,
    order_id_of,
    require_id,
)
from remit.agents.sessions.manager import new_session_id
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.settings import Settings, WorkerSettings
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, parse_entry_id

__all__ = ["OrderQueue"]

_KNOWN = "SELECT 1 FROM entries WHERE submission_id = ? AND event_type = 'ORDER_SUBMITTED' LIMIT 1"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.25
_LISTED = 100


class OrderQueue:
    """The orders of one ledger.

    Args:
        ledger: holds the record and the rows.
        settings: ``[worker]``.
        engine: has orders begin.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings, engine: rows.Engine) -> None:
        self._ledger = ledger
        self._settings = settings
        self.engine = engine

    @classmethod
    def of_root(cls, ledger: LedgerClient, settings: Settings) -> Self:
        """The orders of a root, begun by the engine that its settings name.

        Raises:
            InvalidInputError: the ledger's database has none such.
        """
        return cls(ledger, settings.worker, engine_of(ledger, settings))

    # -- submitting --------------------------------------------------------------------------

    def submit(self, wanted: Submission, *, by: str, key: str = "") -> str:
        """Submit an order and return its id, once its entry and its row are durable.

        Args:
            wanted: the work.
            by: who submits the order, for the record.
            key: names the work for its agent. Work that is submitted again with its key is one
                order, the first.

        Raises:
            InvalidInputError: the key was used for other work.
        """
        order_id, put = self.prepare(wanted, by=by, key=key)
        self._ledger.transact(put)
        if key:
            self.require_same_work(order_id, wanted)
        return order_id

    def require_same_work(self, order_id: str, wanted: Submission) -> None:
        """Raise InvalidInputError if an order is recorded for other work than `wanted`.

        A task that was erased counts as the same.
        """
        said = self.submission(order_id).metadata
        if isinstance(said["task"], Erased):
            return
        recorded = said["kind"], said["task"], said.get("user_id", "")
        if recorded != (wanted.kind, wanted.task, wanted.user_id):
            raise InvalidInputError(
                f"The key of {order_id} was used for other work.",
                next_step="Use a key that names the input, such as the row's own id.",
            )

    def prepare(
        self, wanted: Submission, *, by: str, key: str = "", forked_from: str = ""
    ) -> tuple[str, Callable[[Transaction], None]]:
        """An order's id, and what submits it in a transaction of the caller's: together with all
        else of it, or not at all."""
        order_id, session_id = order_id_of(wanted.agent_id, key), new_session_id()
        most = wanted.max_attempts or self._settings.orders.max_attempts
        entry = self._ledger.prepare(
            entries.submitted(order_id, session_id, wanted, most, by, forked_from),
            subject_id=wanted.subject_id or None,
        )

        def put(tx: Transaction) -> None:
            if key and tx.execute(_KNOWN, (order_id,)):
                return
            seq = parse_entry_id(tx.append(entry))
            assert seq is not None
            due = 0 if wanted.due is None else _ms(wanted.due) - tx.wall_ms + tx.now_ms
            row = Row(
                order_id, seq, wanted.queue, wanted.kind, wanted.agent_id, session_id,
                wanted.key_id, wanted.model_id, wanted.priority, most,
                state="delayed" if due > tx.now_ms else "ready", due_ms=due, attempts=0, worker="",
                stop=0, held_by="", waits_for="", announced=0,
            )  # fmt: skip
            rows.insert(tx, row)
            self._announce(tx, row)

        return order_id, put

    def fork(self, order_id: str, *, by: str) -> str:
        """Submit what an order was submitted with again, as a new order; returns its id.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: its task was erased.
        """
        said = self.submission(order_id)
        task = said.metadata["task"]
        if isinstance(task, Erased):
            raise ConflictError(
                f"The task of {order_id} was erased.", next_step="Submit a new order."
            )
        optional = ("key_id", "model_id", "user_id", "tokens", "usd")
        wanted = Submission(
            task=task, subject_id=subject_of(said),
            **{name: said.metadata[name] for name in ("agent_id", "kind", "queue", "priority",
                                                      "max_attempts")},
            **{name: said.metadata[name] for name in optional if name in said.metadata},
        )  # fmt: skip
        forked, put = self.prepare(wanted, by=by, forked_from=order_id)
        self._ledger.transact(put)
        return forked

    # -- looking -----------------------------------------------------------------------------

    def get(self, order_id: str) -> OrderStatus:
        """How an order stands.

        Raises:
            NotFoundError: there is none.
        """
        require_id(order_id)
        found = self._ledger.select(
            f"SELECT {rows.COLUMNS} FROM orders WHERE order_id = ?", (order_id,)
        )
        row = rows.rows_of(found)[0] if found else None
        said = list(self._ledger.query(submission_id=order_id, with_content=False))
        status = entries.status_of(said, row, self._due(row))
        if status is None:
            raise no_such_order(order_id)
        return status

    def list(
        self, *, queue: str = "", state: str = "", limit: int = _LISTED, after: str = ""
    ) -> Iterator[OrderStatus]:
        """Orders that are not done, in the order in which they begin; of a state, or all.

        Orders that are completed or cancelled come the latest first.

        Args:
            queue: of one queue.
            state: of one state.
            limit: most of them.
            after: those behind this :attr:`OrderStatus.cursor`, whatever became of that order.

        Raises:
            InvalidInputError: there is no such state, or the cursor is none.
        """
        if state and state not in STATES:
            raise InvalidInputError(f"There is no state {state!r}: {', '.join(STATES)}.")
        if state in ("completed", "cancelled"):
            yield from self._ended(queue, state, limit, after)
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
            (*equal.values(), *(_place_of(after) if after else ()), limit),
        )
        for submitted, *values in found:
            row = Row(*values)
            if row.state == "failed":
                yield self.get(row.order_id)
            else:
                yield entries.status_of_row(row, submitted, self._due(row))

    def stats(self) -> dict[str, dict[str, int]]:
        """How many orders there are that are not done, by queue and state."""
        counts: dict[str, dict[str, int]] = {}
        for queue, state, number in self._ledger.select(
            "SELECT queue, state, count(*) FROM orders GROUP BY queue, state ORDER BY queue, state"
        ):
            counts.setdefault(queue, {})[state] = number
        return counts

    def submission(self, order_id: str) -> LedgerEntry:
        """The ``ORDER_SUBMITTED``, with its content.

        Raises:
            NotFoundError: there is none.
        """
        require_id(order_id)
        found = self._ledger.query(submission_id=order_id, event_type="ORDER_SUBMITTED", limit=1)
        for entry in found:
            return entry
        raise no_such_order(order_id)

    async def ended(self, order_id: str, timeout_s: float | None = None) -> OrderStatus:
        """Wait until an order is done, set aside or given up.

        Raises:
            NotFoundError: there is no such order.
            TimeoutError: it takes longer.
        """
        await asyncio.to_thread(self.get, order_id)
        end = None if timeout_s is None else time.monotonic() + timeout_s
        pause = _FIRST_WAIT_S
        while True:
            found = await asyncio.to_thread(
                self._ledger.select, "SELECT state FROM orders WHERE order_id = ?", (order_id,)
            )
            if not found or found[0][0] == "failed":
                return await asyncio.to_thread(self.get, order_id)
            left = pause if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{order_id} is not done after {timeout_s:g} s.")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_WAIT_S)

    # -- changing ----------------------------------------------------------------------------

    def cancel(self, order_id: str, *, by: str) -> OrderStatus:
        """Give an order up; one that has begun ends in a moment, by its worker.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: it is done.
        """

        def act(tx: Transaction, row: Row) -> None:
            begun = row.state in ("running", "waiting") or rows.has_begun(tx, row.session_id)
            if row.state == "failed" or not begun:
                rows.delete(tx, order_id)
                tx.append(entries.ended(row, "CANCELLED", by=by))
            elif not row.stop:
                tx.append(entries.changed(row, "STOPPED", by))
                state = "running" if row.state == "running" else "ready"
                row = rows.change(tx, row, stop=1, state=state, held_by="", waits_for="")
                self._announce(tx, row)

        return self._change(order_id, act)

    def pause(self, order_id: str, *, by: str) -> OrderStatus:
        """Keep an order that does not run from beginning, until :meth:`resume`.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: it runs, waits for a person, or has ended.
        """

        def act(tx: Transaction, row: Row) -> None:
            self._require(row, "ready", "delayed", "held")
            rows.change(tx, row, state="paused", held_by="")
            tx.append(entries.changed(row, "PAUSED", by))

        return self._change(order_id, act)

    def resume(self, order_id: str, *, by: str) -> OrderStatus:
        """Let a paused order begin.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: it is not paused.
        """

        def act(tx: Transaction, row: Row) -> None:
            self._require(row, "paused")
            state = "delayed" if row.due_ms > tx.now_ms else "ready"
            tx.append(entries.changed(row, "RESUMED", by))
            self._announce(tx, rows.change(tx, row, state=state))

        return self._change(order_id, act)

    def retry(self, order_id: str, *, by: str) -> OrderStatus:
        """Have an order tried again that was set aside.

        A turn that was interrupted is gone on with; one that ended without an answer is made
        again, in a session of its own.

        Raises:
            NotFoundError: there is no such order.
            ConflictError: it is not set aside.
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
                raise ConflictError(f"{order_id} is done already.")
            act(tx, row)

        if status.has_ended and status.state != "failed":
            raise ConflictError(f"{order_id} is {status.state} already.")
        self._ledger.transact(work)
        return self.get(order_id)

    def _announce(self, tx: Transaction, row: Row) -> None:
        if row.state == "ready":
            self.engine.announce(tx, row)

    def _require(self, row: Row, *states: str) -> None:
        if row.state not in states:
            raise ConflictError(
                f"{row.order_id} is {row.state}, not {' or '.join(states)}.",
                next_step=f"`remit order show {row.order_id}` says how it stands.",
            )

    def _ended(self, queue: str, state: str, limit: int, after: str) -> Iterator[OrderStatus]:
        shown = 0
        if after and parse_entry_id(after) is None:
            raise _unknown_cursor()
        for entry in self._ledger.query(
            event_type="ORDER_ENDED", order="desc", after=after or None, with_content=False
        ):
            if shown == limit:
                return
            if ENDED.get(entry.decision) != state:
                continue
            status = self.get(entry.submission_id)
            if status.ended_entry_id == entry.id and queue in ("", status.queue):
                shown += 1
                yield status

    def _due(self, row: Row | None) -> str:
        if row is None or row.state != "delayed":
            return ""
        ms = row.due_ms - self._ledger.now_ms + self._ledger.wall_ms
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


_TURN = "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'TURN_RECORDED' LIMIT 1"


def subject_of(said: LedgerEntry) -> str:
    """The person of whom an order's content speaks; empty where nobody, or erased."""
    found = said.metadata.get("subject_id", "")
    return "" if isinstance(found, Erased) else str(found)


def _place_of(cursor: str) -> tuple[int, int]:
    """Priority and sequence number of a cursor."""
    priority, _, submitted = cursor.partition("/")
    seq = parse_entry_id(submitted)
    if seq is None or not re.fullmatch(r"-?[0-9]{1,4}", priority):
        raise _unknown_cursor()
    return int(priority), seq


def _unknown_cursor() -> InvalidInputError:
    return InvalidInputError("The cursor is unknown.", next_step="Begin again without one.")


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
