"""The journey of a prompt, short enough for a model to read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from remit.agents.admin.asking import SESSION_ID, asked_session
from remit.agents.admin.fitting import fit, plain
from remit.agents.admin.hiding import Hiding
from remit.agents.sessions import session_overview
from remit.agents.tools import Tool, ToolError
from remit.kernel.settings import ToolSettings
from remit.ledger import EntryNotFoundError, LedgerClient
from remit.views import JourneyNotFoundError, open_journey

__all__ = ["journey_tools"]

_MAX_TURNS = 20
_OF_TURN = ("kind", "turn_number", "entry_id", "user_message", "response", "outcome", "started_at",
            "elapsed_ms", "llm_calls", "tool_calls", "input_tokens", "output_tokens", "cost_usd",
            "escalation", "degradation")  # fmt: skip
_OF_ORDER = ("wo_id", "wo_type", "step", "attempt", "contract_id", "contract_version", "state",
             "waiting_for", "elapsed_ms", "cost_usd")  # fmt: skip
_OF_STEP = ("kind", "event_type", "entry_id", "dispatch_entry_id", "intent_entry_ids", "offset_ms",
            "elapsed_ms", "model_id", "outcome", "finish_reason", "input_tokens", "output_tokens",
            "cost_usd", "tool_id", "status", "arguments", "result", "tool_error", "response",
            "error_code", "error_message", "replayed", "decided", "decision_id")  # fmt: skip
_OF_GATE = ("verdict", "reasons", "attempt", "trace_hash", "entry_id")


def journey_tools(ledger: LedgerClient, settings: ToolSettings, hiding: Hiding) -> list[Tool]:
    """``trace_prompt_journey``.

    Args:
        ledger: the root's.
        settings: where outputs are cut.
        hiding: takes keys out of content.
    """

    def trace_prompt_journey(
        session_id: str | None = None,
        work_order_id: str | None = None,
        entry_id: str | None = None,
        turn: int | None = None,
    ) -> dict[str, Any]:
        which: dict[str, Any] = {"work_order_id": work_order_id, "entry_id": entry_id}
        named = [name for name, value in which.items() if value]
        if len(named) > 1:
            raise ToolError("Name a work order or an entry, not both.")
        if not named:  # an order and an entry lead to their session by themselves
            which = {"session_id": asked_session(session_id), "turn": turn}
            if session_id is None and turn is None:
                which["turn"] = _last_turn(ledger, which["session_id"])
        try:
            journey = open_journey(ledger, **which)
            turns = [_turn(one) for one in islice(journey["turns"], _MAX_TURNS)]
        except (JourneyNotFoundError, EntryNotFoundError) as error:
            raise ToolError(error.message) from error
        told = hiding.value(plain({**journey, "turns": turns}))
        fitted = fit(told, settings.max_output_bytes // 2)
        output = {"status": "ok", **fitted.value}
        notes = []
        if (left := journey["totals"]["turns"] - len(turns)) > 0:
            notes.append(f"{left} more turns: ask for one by its number with turn.")
        if fitted.cut:
            notes.append(
                "Texts are cut to fit; query_ledger_full with an entry_id shows more of one."
            )
        if notes:
            output["note"] = " ".join(notes)
        return output

    return [
        Tool(
            "trace_prompt_journey",
            "Trace how a prompt became an answer: planned, dispatched, asked, answered, tools "
            "used, checked, delivered, with the ids of what is on record. With nothing named, the "
            "last turn.",
            {
                "type": "object",
                "properties": {
                    "session_id": SESSION_ID,
                    "work_order_id": {"type": "string", "pattern": "^WO-[A-Za-z0-9_.-]+$"},
                    "entry_id": {"type": "string", "pattern": "^LED-[0-9a-f]{8,}$"},
                    "turn": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "only this turn of the session",
                    },
                },
                "additionalProperties": False,
            },
            trace_prompt_journey,
            (
                ("trace the journey of the last prompt", {}),
                ("trace LED-0000002a", {"entry_id": "LED-0000002a"}),
                ("how did you come to that answer?", {}),
                ("trace turn 2 of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9", "turn": 2}),
            ),
            _describe,
            "trace",
            on_unknown="retry",
        )
    ]


def _last_turn(ledger: LedgerClient, session_id: str) -> int:
    found = session_overview(ledger, session_id)
    if found is None or not found.turns:
        raise ToolError("This session has no earlier turn; name a session_id.")
    return found.turns


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A turn in short: what happened in which order, without prompts."""
    return {
        **_kept(turn, _OF_TURN),
        "work_orders": [
            {**_kept(order, _OF_ORDER), "steps": [_kept(step, _OF_STEP) for step in order["steps"]]}
            for order in turn["work_orders"]
        ],
        "calls": [_kept(call, _OF_STEP) for call in turn["calls"]],
        "gates": [_kept(gate, _OF_GATE) for gate in turn["gates"]],
        "left_out": len(turn["left_out"]),
    }


def _kept(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: told[name] for name in names if told.get(name) not in (None, [], "")}


def _describe(output: dict[str, Any]) -> str:
    turns = output["turns"]
    if not turns:
        return "There is no turn in that journey."
    last = turns[-1]
    orders = ", ".join(
        f"{order.get('step') or order.get('wo_type')} {order.get('state')}"
        for order in last["work_orders"]
        if isinstance(order, Mapping)
    )
    return (
        f"The prompt {last.get('user_message', '')!r} took {last.get('llm_calls', 0)} model calls "
        f"and {last.get('tool_calls', 0)} tools; its steps: {orders or 'none'}."
    )
