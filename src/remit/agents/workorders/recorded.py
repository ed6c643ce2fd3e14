"""Orders read from the ledger: what a plan says, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from remit.agents.workorders.order import (
    Actor,
    IllegalTransitionError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
)
from remit.kernel.errors import RemitError
from remit.ledger import Erased, LedgerEntry, LedgerPort, Transaction, is_authentic, utc_now

_STATES = {
    "WO_DISPATCHED": WorkOrderState.DISPATCHED,
    "WO_EXECUTING": WorkOrderState.EXECUTING,
    "WO_COMPLETED": WorkOrderState.COMPLETED,
    "WO_FAILED": WorkOrderState.FAILED,
}
_ACTORS = {"ho2": Actor.SUPERVISOR, "ho1": Actor.WORKER}


class OrderRecordError(RemitError):
    """What the ledger says of an order does not make an order."""


def plan_of(order: WorkOrder) -> dict[str, Any]:
    """What a ``WO_PLANNED`` says of an order, besides its id: enough to have it worked on."""
    return {
        "wo_type": str(order.wo_type),
        "tier_target": order.tier_target,
        "parent_wo_id": order.parent_wo_id,
        "input_context": dict(order.input_context),
        "acceptance_criteria": dict(order.acceptance_criteria),
        "constraints": constraints_of(order.constraints),
    }


def constraints_of(limits: WorkOrderConstraints) -> dict[str, Any]:
    """Constraints as plain data."""
    plain = {field.name: getattr(limits, field.name) for field in fields(limits)}
    schema = plain.pop("output_schema")
    if not limits.set_aside:
        del plain["set_aside"]
    if schema is not None:  # as text: its keys may be none that metadata can have
        plain["output_schema"] = orjson.dumps(schema).decode()
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()
    }


def replay(entries: Iterable[LedgerEntry], *, allow_erased: bool = False) -> WorkOrder:
    """The order that its entries make, in ledger order.

    Every step goes through the state machine, made by the tier that wrote the entry: an order
    with any other transition is not an order.

    Args:
        entries: of one order; those that are no step of it are passed over.
        allow_erased: give an order whose input was erased without it, for ending it.

    Raises:
        IllegalTransitionError: it made a transition that does not exist.
        OrderRecordError: the plan is missing, erased, or not a plan.
    """
    order: WorkOrder | None = None
    for entry in entries:
        if entry.event_type == "WO_PLANNED":
            if order is not None:
                raise IllegalTransitionError(f"{order.wo_id} was planned twice.")
            order = _planned(entry, allow_erased)
        elif entry.event_type in _STATES:
            if order is None:
                raise OrderRecordError(f"{entry.submission_id} was never planned.")
            order = moved_by(order, entry)
    if order is None:
        raise OrderRecordError("There is no such work order.")
    return order


def recorded_order(
    ledger: LedgerPort, wo_id: str, *, allow_erased: bool = False
) -> WorkOrder | None:
    """The order with that id in its present state, as :func:`replay` gives it, or ``None``."""
    steps = [
        entry
        for event_type in ("WO_PLANNED", *_STATES)
        for entry in ledger.query(work_order_id=wo_id, event_type=event_type)
        if entry.submission_id == wo_id and is_authentic(entry)
    ]
    if not steps:
        return None
    steps.sort(key=lambda entry: int(entry.id[4:], 16))
    return replay(steps, allow_erased=allow_erased)


def _planned(entry: LedgerEntry, allow_erased: bool) -> WorkOrder:
    data = dict(entry.metadata)
    erased = [name for name in ("input_context", "acceptance_criteria")
              if isinstance(data.get(name), Erased)]  # fmt: skip
    if erased and not allow_erased:
        raise OrderRecordError(
            f"The plan of {entry.submission_id} was erased.",
            next_step="It cannot be worked on any more; cancel it.",
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
    """The order after the step that ``entry`` puts on record, written already or not.

    Raises:
        IllegalTransitionError: the state machine has no such step, or not by that writer.
    """
    data: Mapping[str, Any] = entry.metadata
    state = _STATES[entry.event_type]
    if state is WorkOrderState.EXECUTING and data.get("resumed"):
        if order.state is not WorkOrderState.EXECUTING:
            raise IllegalTransitionError(
                f"{order.wo_id} is {order.state} and cannot be resumed ({entry.id})."
            )
        return order
    by = _ACTORS.get(str((data.get("scope") or {}).get("tier")))
    if by is None:
        raise IllegalTransitionError(f"{entry.id} was written by neither supervisor nor worker.")
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
    return order.moved_to(state, by=by, **changes)


def trace_hash(
    ledger: LedgerPort, work_order_ids: Sequence[str], *, before: str | None = None
) -> str:
    """SHA-256 over the ``entry_hash``es (hex, concatenated) of the orders' ``ho1`` entries.

    They are in ledger order; anyone with the ledger can compute it again.

    Args:
        before: id of the entry that holds the hash: what came after it, such as the late answer
            of a call that had been given up, is not in it.
    """
    end = None if before is None else int(before[4:], 16)
    entries = [
        (int(entry.id[4:], 16), entry.entry_hash)
        for order_id in work_order_ids
        for entry in ledger.query(work_order_id=order_id, tier="ho1", with_content=False)
        if end is None or int(entry.id[4:], 16) < end
    ]
    return hashlib.sha256("".join(item for _, item in sorted(entries)).encode()).hexdigest()


def trace_hash_of(tx: Transaction, work_order_ids: Sequence[str]) -> str:
    """:func:`trace_hash` while it is being written, of all that came before in its transaction."""
    marks = ", ".join("?" * len(work_order_ids))
    rows = tx.execute(
        f"SELECT seq, entry_hash FROM entries WHERE work_order_id IN ({marks}) "
        "AND tier || '' = 'ho1' ORDER BY seq",
        work_order_ids,
    )
    return hashlib.sha256("".join(item for _, item in rows).encode()).hexdigest()
