"""The operation that traces a prompt to its answer, as a tool of agents."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.operations.agent_tools import AgentTool, ToolCall, argument, session_argument
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

_MAX_TURNS = 20
_TURN_FIELDS = (
    "kind", "turn_number", "entry_id", "user_message", "response", "outcome", "started_at",
    "elapsed_ms", "llm_calls", "tool_calls", "input_tokens", "output_tokens", "cost_usd",
    "escalation", "degradation",
)  # fmt: skip
_ORDER_FIELDS = (
    "wo_id", "wo_type", "step", "attempt", "contract_id", "contract_version", "state",
    "waiting_for", "elapsed_ms", "cost_usd",
)  # fmt: skip
_STEP_FIELDS = (
    "kind", "event_type", "entry_id", "dispatch_entry_id", "intent_entry_ids", "offset_ms",
    "elapsed_ms", "model_id", "outcome", "finish_reason", "input_tokens", "output_tokens",
    "cost_usd", "tool_id", "status", "arguments", "result", "tool_error", "response",
    "error_code", "error_message", "replayed", "decided", "decision_id",
)  # fmt: skip
_GATE_FIELDS = ("verdict", "reasons", "attempt", "trace_hash", "entry_id")


def _say_journey(output: dict[str, Any]) -> str:
    turns = output["turns"]
    if not turns:
        return "There is no turn in that journey."
    last = turns[-1]
    orders = ", ".join(
        f"{order.get('step') or order.get('wo_type')} {order.get('state')}"
        for order in last["work_orders"]
        if isinstance(order, Mapping)  # the others are marks of cuts
    )
    return (
        f"The prompt {last.get('user_message', '')!r} took {last.get('llm_calls', 0)} model calls "
        f"and {last.get('tool_calls', 0)} tools; its steps: {orders or 'none'}."
    )


def _requested(call: ToolCall) -> dict[str, Any]:
    """Return the one named thing; without one, the last turn of the session.

    Raises:
        InvalidInputError: a work order and an entry are named, or the session has no turn.
    """
    from remit.agents.sessions import session_overview

    given = dict(call.given)
    if given["work_order_id"] and given["entry_id"]:
        raise InvalidInputError("Name a work order or an entry, not both.")
    if given["work_order_id"] or given["entry_id"]:
        return {**given, "session_id": None, "turn": None}
    session = call.session()
    if given["session_id"] is None and given["turn"] is None:
        found = session_overview(call.root.ledger, session)
        if found is None or not found.turns:
            raise InvalidInputError("This session has no earlier turn; name a session_id.")
        given["turn"] = found.turns
    return {**given, "session_id": session}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of a turn: its steps in order, without prompts."""
    return {
        **_picked(turn, _TURN_FIELDS),
        "work_orders": [
            {
                **_picked(order, _ORDER_FIELDS),
                "steps": [_picked(step, _STEP_FIELDS) for step in order["steps"]],
            }
            for order in turn["work_orders"]
        ],
        "calls": [_picked(call, _STEP_FIELDS) for call in turn["calls"]],
        "gates": [_picked(gate, _GATE_FIELDS) for gate in turn["gates"]],
        "left_out": len(turn["left_out"]),
    }


def _picked(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) not in (None, [], "")}


_TOOL = AgentTool(
    name="trace_prompt_journey", label="trace", title="How a prompt became an answer",
    returns={"status": {"const": "ok"}, "turns": {"type": "array"}}, request=_requested,
    about="Trace how a prompt became an answer: planned, dispatched, asked, answered, tools used, "
    "checked, delivered, with the ids of what is on record.",
    arguments={
        "session_id": session_argument(
            "session to trace; in a session, its own last turn by default"
        ),
        "work_order_id": argument("work order to trace", pattern="^WO-[A-Za-z0-9_.-]+$",
                                  examples=("WO-SES-7K2M4QX9-001",)),
        "entry_id": argument("any entry of the turn", pattern="^LED-[0-9a-f]{8,}$",
                             examples=("LED-0000002a",)),
        "turn": argument("only this turn of the session, counted from 1", type=int, least=1,
                         examples=(2,)),
    },
    examples=(
        "trace the journey of the last prompt",
        ("trace LED-0000002a", {"entry_id": "LED-0000002a"}),
        "how did my question turn into an answer?",
        ("follow LED-00000007 step by step", {"entry_id": "LED-00000007"}),
        ("trace turn 2 of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9", "turn": 2}),
    ),
    describe=_say_journey,
    note="Texts are cut to fit; name one turn with turn, or an entry with entry_id, to see more.",
)  # fmt: skip


@verb(agent_tools=(_TOOL,))
def trace_journey(
    root: RootPort, caller: Caller, *,
    session_id: str | None = field("Session to trace.", None),
    work_order_id: str | None = field("Work order to trace.", None),
    entry_id: str | None = field("Any entry of the turn.", None),
    turn: int | None = field("Only this turn of the session.", None, least=1),
) -> dict[str, Any]:  # fmt: skip
    """Trace how a prompt became an answer. At most 20 turns are shown, without prompts.

    Raises:
        InvalidInputError: not exactly one session, work order or entry is named.
        NotFoundError: the ledger does not have it.
    """
    from remit.views import open_journey

    journey = open_journey(
        root.ledger, session_id=session_id, work_order_id=work_order_id, entry_id=entry_id,
        turn=turn,
    )  # fmt: skip
    turns = [_turn(one) for one in islice(journey["turns"], _MAX_TURNS)]
    left = journey["totals"]["turns"] - len(turns)
    more = {"note": f"{left} more turns: ask for one by its number with turn."} if left > 0 else {}
    return {**journey, "turns": turns, **more}
