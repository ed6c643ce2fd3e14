"""Records of work orders in the ledger: plans, present states and trace hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
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
from remit.ledger import Erased, LedgerEntry, LedgerPort, Transaction, is_authentic, utc_now

_STATES = {
    "WO_DISPATCHED": WorkOrderState.DISPATCHED,
    "WO_EXECUTING": WorkOrderState.EXECUTING,
    "WO_COMPLETED": WorkOrderState.COMPLETED,
    "WO_FAILED": WorkOrderState.FAILED,
}


def plan_of(order: WorkOrder) -> dict[str, Any]:
    """Return the metadata of ``WO_PLANNED``: type, tier, parent, input, acceptance criteria and
    constraints.

    A worker needs no more than these and the order's id.

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
        OrderRecordError: as :func:`replay`.
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
    steps.sort(key=lambda entry: int(entry.id[4:], 16))
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

    A resumption (``WO_EXECUTING`` with ``resumed``) leaves the order unchanged.

    Args:
        order: the order before.
        entry: a ``WO_DISPATCHED``, ``WO_EXECUTING``, ``WO_COMPLETED`` or ``WO_FAILED``.

    Raises:
        OrderRecordError: the state machine does not allow the transition, or not to the writer.
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

    The entries are in ledger order. Anyone with the ledger can recompute the hash.

    Args:
        ledger: contains the entries.
        work_order_ids: the orders.
        before: id of the entry that contains the hash; later entries, such as a late answer to an
            abandoned call, are excluded. None includes all.
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
    """Return :func:`trace_hash` as of this point of the transaction.

    This is the SHA-256, in hex, of the hashes of the orders' ``ho1`` entries in ledger order.
    Entries that this transaction has appended count; entries of other tiers do not.

    Args:
        tx: the transaction.
        work_order_ids: the orders.
    """
    marks = ", ".join("?" * len(work_order_ids))
    rows = tx.execute(
        f"SELECT seq, entry_hash FROM entries WHERE work_order_id IN ({marks}) "
        "AND tier || '' = 'ho1' ORDER BY seq",
        work_order_ids,
    )
    return hashlib.sha256("".join([str(item) for _, item in rows]).encode()).hexdigest()
