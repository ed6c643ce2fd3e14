"""The operation that traces a prompt to its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.operations.agent_tools import AgentTool, ToolCall, argument, session_argument
from remit.operations.operation import Answer, Document, Feed, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Drawn

if TYPE_CHECKING:
    from remit.ledger import LedgerClient

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
    from remit.agents import caller_session
    from remit.agents.sessions import session_overview

    order, entry, turn = (call.given[name] for name in ("work_order_id", "entry_id", "turn"))
    if order and entry:
        raise InvalidInputError("Name a work order or an entry, not both.")
    if order or entry:
        return {"place": order or entry, "max_turns": _MAX_TURNS}
    session = caller_session(call.given["session_id"])
    if call.given["session_id"] is None and turn is None:
        found = session_overview(call.root.ledger, session)
        if found is None or not found.turns:
            raise InvalidInputError("This session has no earlier turn; name a session_id.")
        turn = found.turns
    return {"place": session, "turn": turn, "max_turns": _MAX_TURNS}


def _shape(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the journey with a summary of each turn, without prompts."""
    left = found["totals"]["turns"] - found["count"]
    more = {"note": f"{left} more turns: ask for one by its number with turn."} if left > 0 else {}
    return {**found, "turns": [_turn(one) for one in found["turns"]], **more}


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
    name="trace_prompt_journey", label="trace", title="How a prompt became an answer", shape=_shape,
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


@verb("trace", command_member="turns", instead_of_json=("page",), agent_tools=(_TOOL,))
def trace_journey(
    root: RootPort, caller: Caller, *,
    place: str | None = field("Session, work order, entry or last.", None, flag="",
                              metavar="[SESSION | WO-… | LED-…]"),
    last: bool = field("Show the latest session or gateway call.", False),
    turn: int | None = field("Only this turn of the session.", None, least=1),
    verify: bool = field("Recompute every trace hash; exit 1 on a mismatch.", False),
    full: bool = field("Show full texts, plans and prompts.", False),
    page: Path | None = field("Write a self-contained HTML page; - is standard output.", None,
                              flag="--html", metavar="FILENAME"),
) -> Answer:  # fmt: skip
    """Show the journey of a prompt, from its plan to its answer.

    Give a session, or a work order or an entry to show its turn.

    Returns:
        The journey, whose turns are read one by one, or the page. With ``last`` and without a turn,
        the latest of all sessions and gateway calls is shown. With ``verify``, the journey has
        ``trace_hashes``, and each gate ``trace_hash_agrees``; the command fails if one does not.

    Raises:
        InvalidInputError: not exactly one of a place and ``last`` is given, or a turn without a
            session.
        NotFoundError: the ledger does not have the place or turn, or has no session and no call.
        LedgerError: the ledger cannot be read; also raised when turns are read.
    """
    from remit.views import journey_text, open_journey, page_parts

    if place == "last" and not last:
        place, last = None, True
    if (place is None) != last:
        raise InvalidInputError("Give a session, a work order, an entry, or --last.")
    ledger = root.ledger
    which = _latest(ledger, turn) if place is None else _named(place)
    if turn is not None:
        if "session_id" not in which:
            raise InvalidInputError("--turn requires a session.")
        which["turn"] = turn
    journey, lines, has_failed = open_journey(ledger, **which), [], False
    if verify:
        hashes = _recompute(ledger, which)
        journey = _with_hashes(journey, hashes)
        has_failed = not all(one["agrees"] for one in hashes)
        lines = [*map(_hash_line, hashes)] or ["This journey has no trace hashes."]
    if page is not None:
        for line in lines:
            root.note(line)
        note = "" if str(page) == "-" else f"written to {page}"
        parts = page_parts(journey)
        written = Document(lambda file: file.writelines(map(str.encode, parts)), page, note)
        return Answer(written, has_failed=has_failed)
    rest = {name: value for name, value in journey.items() if name != "turns"}
    columns, colour = root.screen
    tree = map(Drawn, journey_text(journey, colour=colour, width=columns, full=full))
    read = Feed(lambda cursor, most: (("", one) for one in journey["turns"]), rest)
    return Answer(read, chain(tree, lines), has_failed)


def _named(place: str) -> dict[str, Any]:
    """Return the keyword for a place by its form: an entry, work order or session id."""
    if place.startswith("LED-"):
        return {"entry_id": place}
    return {"work_order_id": place} if place.startswith("WO-") else {"session_id": place}


def _latest(ledger: LedgerClient, turn: int | None) -> dict[str, Any]:
    """Return the keyword of the latest session with an agent, or of a later gateway call.

    If a turn is named, a session is meant.

    Raises:
        NotFoundError: there is neither.
    """
    from remit.agents.sessions import list_sessions, session_overview

    own = next((one for one in list_sessions(ledger) if not one.caller_session_id), None)
    last = "" if own is None else max(own.started_at, own.last_turn_at)
    calls = (
        call
        for event in (("EXCHANGE", "PROMPT_REJECTED") if turn is None else ())
        for call in ledger.query(event_type=event, order="desc", limit=1, with_content=False)
        if session_overview(ledger, str(call.metadata.get("session_id", ""))) is None
    )
    call = max(calls, key=lambda one: one.timestamp, default=None)
    if call is not None and call.timestamp > last:
        return {"entry_id": call.id}
    if own is None:
        raise NotFoundError(
            "The ledger has no session and no model call yet. `remit chat` starts a session, and "
            "`remit serve` answers clients."
        )
    return {"session_id": own.session_id}


def _recompute(ledger: LedgerClient, which: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each gate a comparison of the trace hash with the present entries."""
    from remit.agents.workorders import trace_hash
    from remit.views import gates_of, open_journey

    return [
        {
            "entry_id": gate["entry_id"],
            "agrees": trace_hash(ledger, gate.get("work_order_ids") or (), before=gate["entry_id"])
            == gate.get("trace_hash"),
        }
        for turn in open_journey(ledger, **which, with_content=False)["turns"]
        for gate in gates_of(turn)
    ]


def _with_hashes(journey: Mapping[str, Any], hashes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the journey with the recomputed hashes, as a list and at each gate."""
    from remit.views import gates_of

    agrees = {item["entry_id"]: item["agrees"] for item in hashes}

    def turns() -> Iterator[dict[str, Any]]:
        for turn in journey["turns"]:
            for gate in gates_of(turn):
                gate["trace_hash_agrees"] = agrees.get(gate["entry_id"])
            yield turn

    return {**journey, "trace_hashes": hashes, "turns": turns()}


def _hash_line(one: Mapping[str, Any]) -> str:
    word = "agrees" if one["agrees"] else "DOES NOT MATCH"
    return f"trace hash of {one['entry_id']} {word}"
