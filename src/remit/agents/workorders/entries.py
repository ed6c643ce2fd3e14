"""The entries of sessions and work orders: written in order and in one form, and read back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import orjson

from remit.agents.workorders.order import (
    OrderRecordError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
)
from remit.kernel.loops import abandon
from remit.ledger import (
    Erased,
    LedgerEntry,
    LedgerPort,
    Prepared,
    Transaction,
    Write,
    is_authentic,
    utc_now,
)


class WriteBuffer:
    """The writes of one piece of work: those held back, and those in progress, in order.

    A held write joins the transaction of the next write that must happen anyway: the entry of a
    tool's intent, or the gateway's ``DISPATCH``. Consecutive journals share a buffer. The buffer
    belongs to one event loop.

    Attributes:
        held: entries and functions of a transaction, lost unless a later transaction takes them.
    """

    def __init__(self) -> None:
        self.held: list[Write] = []
        self._under_way: list[asyncio.Future[Any]] = []

    async def take(self) -> list[Write]:
        """Wait until writes in progress are durable; return and clear the held writes.

        Implements :class:`~remit.kernel.exchange.WritesAhead`. Raises the error of a write that
        failed; the held writes stay then.
        """
        await self.settle()
        return self.take_held()

    def take_held(self) -> list[Write]:
        """Return and clear the held writes, without waiting, for a transaction of this moment."""
        held, self.held = self.held, []
        return held

    def follow(self, write: asyncio.Future[Any]) -> None:
        """Add a submitted transaction to the writes that :meth:`settle` waits for.

        Args:
            write: the future of the transaction.
        """
        abandon(write)  # asyncio would log an error that is never awaited.
        self._under_way.append(write)

    async def settle(self) -> None:
        """Wait until all writes in progress are durable; raise the error of the first failed write.

        The other writes are waited for too. Writes that are held are not sent. Afterwards no write
        counts as in progress.
        """
        if not self._under_way:
            return
        under_way, self._under_way = self._under_way, []
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def check(self) -> None:
        """Raise the error of a write that has failed already; never wait.

        Writes still in progress are not examined.
        """
        for write in self._under_way:
            if write.done() and not write.cancelled() and (error := write.exception()):
                raise error

    def clear(self) -> None:
        """Drop all writes of earlier work, whose caller has seen their errors."""
        self.held, self._under_way = [], []


class Journal:
    """A writer of entries about one session or one work order.

    Once :meth:`write`, :meth:`write_all` or :meth:`flush` was awaited, everything submitted or held
    before is durable; each raises LedgerError if a write failed. :meth:`note` and :meth:`hold` keep
    entries for the next write, so they are lost if none follows. A crash removes entries from the
    end of the sequence only.

    Args:
        ledger: receives the entries.
        tier: tier of the entries, ``ho1`` or ``ho2``.
        session_id: session of the entries.
        agent_id: agent of the entries.
        agent_class: class of that agent.
        work_order_id: default order of the entries; if empty, they are about the session.
        buffer: holds writes back; a new one by default.
        subject_id: person whom the entries are about, for erasure; empty for nobody.

    Attributes:
        buffer: the writes held back and in progress.
        prompts_used: ids of prompt packs for the entries made from now on.
        agent_class: class of the agent in entries made from now on.
    """

    def __init__(
        self,
        ledger: LedgerPort,
        tier: str,
        session_id: str,
        agent_id: str,
        agent_class: str,
        *,
        work_order_id: str = "",
        buffer: WriteBuffer | None = None,
        subject_id: str = "",
    ) -> None:
        self.ledger = ledger
        self._subject_id = subject_id or None
        self.session_id = session_id
        self.agent_id = agent_id
        self.prompts_used: list[str] = []
        self.buffer = WriteBuffer() if buffer is None else buffer
        self._tier = tier
        self.agent_class = agent_class
        self._work_order_id = work_order_id

    def entry(self, event_type: str, work_order_id: str = "", /, **metadata: Any) -> LedgerEntry:
        """Return a new, unwritten entry, whose metadata names agent, session, order and tier.

        Args:
            event_type: type of the entry, and its decision; nothing is checked.
            work_order_id: order of the entry; if empty, the journal's; without both, the session.
            metadata: further metadata; may replace ``provenance`` and ``scope``.
        """
        work_order_id = work_order_id or self._work_order_id
        subject = work_order_id or self.session_id
        return LedgerEntry(
            event_type=event_type,
            submission_id=subject,
            decision=event_type,
            reason=f"{event_type} for {subject}",
            prompts_used=list(self.prompts_used),
            metadata={
                "provenance": {
                    "agent_id": self.agent_id,
                    "agent_class": self.agent_class,
                    "session_id": self.session_id,
                    **({"work_order_id": work_order_id} if work_order_id else {}),
                },
                "scope": {"tier": self._tier},
                **metadata,
            },
        )

    async def write(self, event_type: str, work_order_id: str = "", /, **metadata: Any) -> str:
        """Append an entry, wait for the entry and all earlier writes, and return its id.

        Held writes go first, in the same transaction.

        Args:
            event_type: type of the entry.
            work_order_id: order of the entry; by default the journal's.
            metadata: further metadata.

        Raises:
            LedgerError: this or an earlier write failed.
            InvalidInputError: the entry cannot be recorded.
        """
        return await self.write_all([self.entry(event_type, work_order_id, **metadata)])

    async def write_all(self, writes: Sequence[Write]) -> str:
        """Submit held writes and these in one transaction, wait for all, return the last result.

        Args:
            writes: entries, and functions of a transaction; at least one. The result is an entry's
                id, or a function's value as text.

        Raises:
            LedgerError: one of these or an earlier write failed. These are not submitted if the
                earlier one had failed before the call; else they may be durable.
            InvalidInputError: an entry cannot be recorded; held writes stay held.
        """
        write = self.submit(*writes)
        await self.buffer.settle()
        return str(write.result()[-1])

    def submit(self, *writes: Write) -> asyncio.Future[list[Any]]:
        """Submit the held writes and then ``writes`` in one transaction, without waiting.

        Args:
            writes: entries, and functions that take the transaction.

        Returns:
            A future of the results in order: ids of entries, results of functions.

        Raises:
            LedgerError: an earlier write has failed, so that nothing may follow it.
            InvalidInputError: an entry cannot be recorded; held writes stay held.
        """
        self.buffer.check()
        return self._submit([*map(self._prepared, writes)] if self._subject_id else writes)

    def _submit(self, writes: Sequence[Write]) -> asyncio.Future[list[Any]]:
        write = self.ledger.submit([*self.buffer.held, *writes])
        self.buffer.take_held()
        self.buffer.follow(write)
        return write

    def note(self, event_type: str, **metadata: Any) -> None:
        """Make an entry for the next transaction; nothing is durable yet.

        Args:
            event_type: kind of the entry.
            metadata: its metadata, in addition to the provenance.

        Raises:
            InvalidInputError: the entry cannot be recorded in this form.
            LedgerError: the journal's handle may not write the entry.
        """
        self.buffer.held.append(self.prepared_entry(self.entry(event_type, **metadata)))

    def hold(self, *writes: Write, buffer: WriteBuffer | None = None) -> None:
        """Hold writes for the next transaction that must happen anyway.

        Function writes are not checked. The writes before a refused one stay held.

        Args:
            writes: entries, and functions of a transaction.
            buffer: receives the writes; by default the journal's own.

        Raises:
            InvalidInputError: an entry cannot be recorded in this form.
            LedgerError: the journal's handle may not write an entry.
        """
        (buffer or self.buffer).held.extend(map(self._prepared, writes))

    def _prepared(self, write: Write) -> Write:
        return self.prepared_entry(write) if isinstance(write, LedgerEntry) else write

    def prepared_entry(self, entry: LedgerEntry) -> Prepared:
        """Return an entry validated, encoded and linked to its subject, not yet written.

        Raises:
            InvalidInputError: the entry cannot be recorded in this form.
            LedgerError: the journal's handle may not write the entry.
        """
        return self.ledger.prepare(entry, subject_id=self._subject_id)

    def flush(self) -> Awaitable[None]:
        """Submit everything held; return an awaitable that ends once all writes are durable.

        Nothing is submitted if nothing is held.

        Raises:
            LedgerError: at once, if the client is closed; on awaiting, if a write failed.
        """
        if self.buffer.held:
            self._submit(())
        return self.buffer.settle()


_STATES = {
    "WO_DISPATCHED": WorkOrderState.DISPATCHED,
    "WO_EXECUTING": WorkOrderState.EXECUTING,
    "WO_COMPLETED": WorkOrderState.COMPLETED,
    "WO_FAILED": WorkOrderState.FAILED,
}


def plan_of(order: WorkOrder) -> dict[str, Any]:
    """Return the metadata of ``WO_PLANNED``: ``wo_type``, ``tier_target``, ``parent_wo_id``,
    ``input_context``, ``acceptance_criteria`` and ``constraints``, as plain data.

    In the constraints an output schema becomes JSON text, and empty exclusions are left out.

    Args:
        order: the order.
    """
    return {
        "wo_type": str(order.wo_type),
        "tier_target": order.tier_target,
        "parent_wo_id": order.parent_wo_id,
        "input_context": dict(order.input_context),
        "acceptance_criteria": dict(order.acceptance_criteria),
        "constraints": _plain(order.constraints),
    }


def _plain(limits: WorkOrderConstraints) -> dict[str, Any]:
    """Return constraints as plain data. ``output_schema`` becomes JSON text."""
    plain = {field.name: getattr(limits, field.name) for field in fields(limits)}
    schema = plain.pop("output_schema")
    if not limits.set_aside:
        del plain["set_aside"]
    if schema is not None:
        # Stored as text, because a schema may contain keys that metadata may not.
        plain["output_schema"] = orjson.dumps(schema).decode()
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()
    }


def replay(entries: Iterable[LedgerEntry], *, allow_erased: bool = False) -> WorkOrder:
    """Return the order that results from its entries.

    Each entry passes the state machine as a transition by the tier that wrote it.

    Args:
        entries: the order's entries in ledger order; other event types are skipped.
        allow_erased: if the input was erased, return the order without it, so that it can be ended.

    Raises:
        OrderRecordError: the plan is missing, repeated, erased or invalid, or an entry is not an
            allowed transition.
    """
    order: WorkOrder | None = None
    for entry in entries:
        if entry.event_type == "WO_PLANNED":
            if order is not None:
                raise OrderRecordError(f"{order.wo_id} was planned twice.")
            order = _planned(entry, allow_erased)
        elif entry.event_type in _STATES:
            if order is None:
                raise OrderRecordError(f"{entry.submission_id} was never planned.")
            order = moved_by(order, entry)
    if order is None:
        raise OrderRecordError("The entries contain no plan of a work order.")
    return order


def recorded_order(
    ledger: LedgerPort, wo_id: str, *, allow_erased: bool = False
) -> WorkOrder | None:
    """Return the order with this id in its present state; None if the ledger has none.

    Args:
        ledger: contains the order; entries that are not authentic are ignored.
        wo_id: the order.
        allow_erased: if the input was erased, return the order without it, so that it can be ended.

    Raises:
        OrderRecordError: the plan is missing, erased, doubled or invalid, or a step is not allowed.
        LedgerError: the ledger cannot be read.
    """
    steps = [
        entry
        for event_type in ("WO_PLANNED", *_STATES)
        for entry in ledger.query(work_order_id=wo_id, event_type=event_type)
        if entry.submission_id == wo_id and is_authentic(entry)
    ]
    if not steps:
        return None
    steps.sort(key=attrgetter("seq"))
    return replay(steps, allow_erased=allow_erased)


def _planned(entry: LedgerEntry, allow_erased: bool) -> WorkOrder:
    data = dict(entry.metadata)
    erased = [name for name in ("input_context", "acceptance_criteria")
              if isinstance(data.get(name), Erased)]  # fmt: skip
    if erased and not allow_erased:
        raise OrderRecordError(
            f"The plan of {entry.submission_id} was erased.",
            next_step="Cancel the order; it cannot be resumed.",
        )
    data.update({name: {} for name in erased})
    try:
        limits = dict(data["constraints"])
        for name in ("tools_allowed", "tools_requiring_approval", "domain_tags", "set_aside"):
            limits[name] = tuple(limits.get(name) or ())
        if "output_schema" in limits:
            limits["output_schema"] = orjson.loads(limits["output_schema"])
        provenance = data["provenance"]
        return WorkOrder(
            wo_id=entry.submission_id,
            session_id=str(provenance["session_id"]),
            wo_type=WorkOrderType(data["wo_type"]),
            tier_target=str(data["tier_target"]),
            parent_wo_id=data.get("parent_wo_id"),
            created_at=entry.timestamp,
            created_by=str(provenance["agent_id"]),
            input_context=data["input_context"],
            constraints=WorkOrderConstraints(**limits),
            acceptance_criteria=data["acceptance_criteria"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OrderRecordError(
            f"{entry.id} does not hold a plan ({type(error).__name__}: {error})."
        ) from error


def moved_by(order: WorkOrder, entry: LedgerEntry) -> WorkOrder:
    """Return the order after the transition of ``entry``, whether written or not.

    An end sets result, cost and time; a failure also the error. A resumption leaves all unchanged.

    Args:
        order: the order before.
        entry: a ``WO_DISPATCHED``, ``WO_EXECUTING``, ``WO_COMPLETED`` or ``WO_FAILED``.

    Raises:
        OrderRecordError: the state machine does not allow the transition, or not to the writer.
        KeyError: the entry is of another type.
    """
    data: Mapping[str, Any] = entry.metadata
    state = _STATES[entry.event_type]
    if state is WorkOrderState.EXECUTING and data.get("resumed"):
        if order.state is not WorkOrderState.EXECUTING:
            raise OrderRecordError(
                f"{order.wo_id} is {order.state} and cannot be resumed ({entry.id})."
            )
        return order
    changes: dict[str, Any] = {}
    if state in (WorkOrderState.COMPLETED, WorkOrderState.FAILED):
        cost = data.get("cost") or {}
        known = WorkOrderCost.__slots__
        changes = {
            "completed_at": entry.timestamp or utc_now(),
            "cost": WorkOrderCost(**{k: v for k, v in cost.items() if k in known}),
            "output_result": data.get("output_result"),
        }
        if state is WorkOrderState.FAILED:
            code, message = data.get("error_code", ""), data.get("error_message", "")
            changes["error"] = {"code": code, "message": message}
    tier = str((data.get("scope") or {}).get("tier"))
    return order.moved_to(state, by=tier, **changes)


def trace_hash(
    ledger: LedgerPort, work_order_ids: Sequence[str], *, before: str | None = None
) -> str:
    """Return the SHA-256 over the concatenated ``entry_hash`` texts of the orders' ``ho1`` entries.

    The entries are in ledger order. Anyone with the ledger can recompute the hash. The result is 64
    lower-case hex digits; that of nothing if the orders have no entries.

    Args:
        ledger: contains the entries.
        work_order_ids: the orders.
        before: id of the entry that contains the hash; later entries, such as a late answer to an
            abandoned call, are excluded. None includes all; another text raises ValueError.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    end = None if before is None else int(before[4:], 16)
    entries = [
        (entry.seq, entry.entry_hash)
        for order_id in work_order_ids
        for entry in ledger.query(work_order_id=order_id, tier="ho1", with_content=False)
        if end is None or entry.seq < end
    ]
    return hashlib.sha256("".join(item for _, item in sorted(entries)).encode()).hexdigest()


def trace_hash_of(tx: Transaction, work_order_ids: Sequence[str]) -> str:
    """Return :func:`trace_hash` as of this point of the transaction.

    This is the SHA-256, in hex, of the hashes of the orders' ``ho1`` entries in ledger order.
    Entries that this transaction has appended count; entries of other tiers do not.

    Args:
        tx: the transaction.
        work_order_ids: the orders.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    marks = ", ".join("?" * len(work_order_ids))
    rows = tx.execute(
        f"SELECT seq, entry_hash FROM entries WHERE work_order_id IN ({marks}) "
        "AND tier || '' = 'ho1' ORDER BY seq",
        work_order_ids,
    )
    return hashlib.sha256("".join([str(item) for _, item in rows]).encode()).hexdigest()
