"""``remit trace``: what happened in a session, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remit.cli.shared import echo_json, open_ledger, reads
from remit.ledger import LedgerClient, LedgerEntry
from remit.workorders import trace_hash


@click.command()
@click.argument("session_id")
@click.option(
    "--verify", is_flag=True, help="Compute every trace hash again; exit 1 on a mismatch."
)
@reads
def trace(root: Path | None, as_json: bool, session_id: str, verify: bool) -> None:
    """The turns of a session: orders, model calls, tools, checks, with entry ids."""
    with open_ledger(root) as client:
        result = session_trace(client, session_id)
        if not result["turns"]:
            raise click.ClickException("The ledger has no such session; see `remit session list`.")
        if verify:
            result["trace_hashes"] = _recompute(client, session_id)
    if as_json:
        echo_json(result)
    else:
        print_trace(result)
    bad = [item for item in result.get("trace_hashes", ()) if not item["agrees"]]
    raise SystemExit(1 if bad else 0)


def session_trace(client: LedgerClient, session_id: str) -> dict[str, Any]:
    """The steps of a session as data: turns, their work orders, their events."""
    turns: list[dict[str, Any]] = []
    turn: dict[str, Any] = {"work_orders": {}, "other": []}
    for entry in client.query(session_id=session_id):
        if entry.event_type == "DISPATCH":
            continue  # for recovery only; its exchange says the same and more
        step = _step(entry)
        order_id = _order_of(entry)
        if order_id:
            orders = turn["work_orders"]
            orders.setdefault(order_id, {"wo_id": order_id, "steps": []})["steps"].append(step)
        else:
            turn["other"].append(step)
        if entry.event_type == "TURN_RECORDED":
            turns.append(_closed(turn, entry))
            turn = {"work_orders": {}, "other": []}
    if turn["work_orders"] or turn["other"]:
        turns.append(_closed(turn, None))
    return {"session_id": session_id, "turns": turns}


def print_trace(result: dict[str, Any]) -> None:
    """A trace as a tree."""
    click.echo(result["session_id"])
    for turn in result["turns"]:
        if turn["turn_number"] is not None:
            click.echo(f"├─ turn {turn['turn_number']}: {_cut(turn['user_message'])}")
        for step in turn["other"]:
            click.echo(f"│  {step['entry_id']} {step['event_type']}{_details(step)}")
        for order in turn["work_orders"]:
            click.echo(f"│  ├─ {order['wo_id']}")
            for step in order["steps"]:
                click.echo(f"│  │  {step['entry_id']} {step['event_type']}{_details(step)}")
        if turn["turn_number"] is not None:
            click.echo(f"│  └─ answer: {_cut(turn['response'])}")
    if result.get("trace_hashes") == []:
        click.echo("There is no trace hash in this session.")
    for item in result.get("trace_hashes", ()):
        word = "agrees" if item["agrees"] else "DOES NOT AGREE"
        click.echo(f"trace hash of {item['entry_id']} {word}")


def _closed(turn: dict[str, Any], entry: LedgerEntry | None) -> dict[str, Any]:
    metadata = entry.metadata if entry else {}
    return {
        "turn_number": metadata.get("turn_number"),
        "user_message": metadata.get("user_message"),
        "response": metadata.get("response"),
        "work_orders": list(turn["work_orders"].values()),
        "other": turn["other"],
    }


# fmt: off
_SHOWN = ("wo_type", "model_id", "outcome", "input_tokens", "output_tokens", "latency_ms",
          "tool_id", "status", "tool_error", "verdict", "reasons", "error_code", "error_message",
          "exchange_entry_id", "turn_number")
# fmt: on


def _step(entry: LedgerEntry) -> dict[str, Any]:
    shown = {key: entry.metadata[key] for key in _SHOWN if key in entry.metadata}
    return {
        "entry_id": entry.id,
        "event_type": entry.event_type,
        "timestamp": entry.timestamp,
        **shown,
    }


def _details(step: dict[str, Any]) -> str:
    parts = [
        f"{key}={_cut(value)}"
        for key, value in step.items()
        if key in _SHOWN and value not in ("", None, [])
    ]
    return f"  {' '.join(parts)}" if parts else ""


def _order_of(entry: LedgerEntry) -> str:
    provenance = entry.metadata.get("provenance") or {}
    return str(entry.metadata.get("work_order_id") or provenance.get("work_order_id") or "")


def _recompute(client: LedgerClient, session_id: str) -> list[dict[str, Any]]:
    return [
        {
            "entry_id": gate.id,
            "agrees": trace_hash(client, gate.metadata["work_order_ids"])
            == gate.metadata["trace_hash"],
        }
        for gate in client.query(session_id=session_id, event_type="WO_QUALITY_GATE")
    ]


def _cut(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 90 else text[:89] + "…"
