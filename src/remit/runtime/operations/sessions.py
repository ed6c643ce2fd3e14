"""Operations on recorded conversations, as commands show and cancel them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.message_text import count, dollars, indented
from remit.operations import (
    AgentTool,
    Caller,
    Feed,
    RootPort,
    ToolCall,
    argument,
    field,
    limit,
    list_schema,
    session_argument,
    verb,
)

if TYPE_CHECKING:
    from remit.agents.sessions import SessionOverview
    from remit.ledger import LedgerClient

_DEFAULT_TURNS = 20


def _cost(one: dict[str, Any]) -> str:
    return "unknown" if one["cost_usd"] is None else dollars(one["cost_usd"])


def _turns(one: dict[str, Any]) -> str:
    """Return the number of turns; a waiting session does not count as ended."""
    state = ", waiting" if one.get("waits") else ", ended" if one["ended"] else ""
    return f"{one['turns']:,}{state}"


_LIST_TOOL = AgentTool(
    name="list_sessions", label="sessions", title="Recorded conversations",
    returns=list_schema("sessions"),
    about="List the recorded conversations, with their number of turns. Calls without an agent "
    "are sessions without turns. Use it to find the session_id for other tools.",
    arguments={"max_sessions": argument("maximum number of sessions", 20, type=int, least=1,
                                        most=100, examples=(20,))},
    examples=(
        "which sessions exist?", "list my conversations", "show all sessions",
        "how many sessions are there?", "are there past chats?", "who talked to you?",
        "list the latest sessions",
    ),
)  # fmt: skip


@verb(
    "session list", command_member="sessions", nothing="No sessions.", agent_tools=(_LIST_TOOL,),
    columns=(
        ("session", lambda one: one["session_id"]), ("started", lambda one: one["started_at"][:10]),
        ("agent", lambda one: one["agent_id"]), ("calls", lambda one: f"{one['calls']:,}"),
        ("tokens", lambda one: f"{one['tokens']:,}"), ("cost", _cost),
        ("turns", _turns),
    ),
)  # fmt: skip
def list_conversations(
    root: RootPort, caller: Caller, *,
    limit: int | None = limit(),
) -> Feed:  # fmt: skip
    """List sessions of agents and of gateway calls, newest first.

    Gateway calls that name no session have one session for each key and day. Sessions without an
    agent are listed only if one of their calls is among the latest 10,000.

    Returns:
        The overview of each session with ``calls``, ``tokens`` and ``cost_usd``, which is None if
        the price of a call is unknown.
    """
    from remit.agents.sessions import sessions_with_calls
    from remit.views import UsageRow, instant_of, read_usage

    # Only people are shown which sessions wait; the approvals are not read for anything else.
    waiting = cache(lambda: dict.fromkeys(one.session_id for one in root.approvals.pending()))

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        found = sessions_with_calls(root.ledger, limit=most)
        ids = [item.session_id for item in found]
        since = instant_of(min(item.started_at for item in found)) if found else None
        used = read_usage(root.ledger, since=since, by=["session"], where={"session": ids}).rows
        rows = {row.names["session"]: row for row in used}
        for item in found:
            row = rows.get(item.session_id, UsageRow())
            tokens = row.input_tokens + row.output_tokens
            cost = None if row.unpriced_calls else row.nano / 1e9
            figures = {"calls": row.calls, "tokens": tokens, "cost_usd": cost}
            yield item.session_id, {**item.to_dict(), **figures}

    def note() -> str:
        names = ", ".join(waiting())
        return names and f"Waiting for approval: {names}. `remit approve` lists the requests."

    return Feed(read, note=note, shown=lambda one: {**one, "waits": one["session_id"] in waiting()})


def _conversation_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the turns, the models and tools that were set aside, and the unfinished turn."""
    from remit.views.wording import call_text, failures, set_aside

    name, unfinished = found["session_id"], found["unfinished_turn"]
    state = "waiting for approval" if unfinished and unfinished["waiting_for"] else "unfinished"
    turns = count(found["turns"] + bool(unfinished), "turn") + f" ({state})" * bool(unfinished)
    yield f"{name}, {turns}, started {found['started_at']}"
    if found["archived"]:
        yield f"archived; read it with `remit ledger query --session-id {name} --archive DIR`"
    for turn in found["turn_list"]:
        yield from ("", f"[{turn['turn_number']}] {turn['timestamp']} {turn['entry_id']}")
        yield from indented("user:  ", turn["user_message"])
        yield from indented("agent: ", turn["response"])
    for step in found["set_aside"]:
        over = "" if step["in_force"] else " (no longer set aside)"
        yield from ("", f"set aside: {set_aside(step)}{over}: {step['entry_id']}")
        yield f"failed: {', '.join(failures(step))}"
    if unfinished is None:
        return
    yield from ("", f"[{unfinished['turn_number']}] {state}")
    yield from indented("user:  ", unfinished["user_message"])
    for request in unfinished["waiting_for"]:
        called = call_text(request["tool_id"], request["arguments"])
        yield f"waiting: {called}: run `remit approve {request['request_id']}` (--deny to deny)"


def _requested(call: ToolCall) -> dict[str, Any]:
    from remit.agents import caller_session

    return {"session_id": caller_session(call.given["session_id"])}


def _window(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the turns of the window in the request; by default, the last 20.

    Raises:
        InvalidInputError: the window begins after the last turn.
    """
    turns, name = found["turns"], found["session_id"]
    last = min(call.given["to_turn"] or turns, turns)
    first = call.given["from_turn"] or max(1, last - _DEFAULT_TURNS + 1)
    if first > max(last, 1):
        raise InvalidInputError(f"{name} has {count(turns, 'turn')}, none from {first} on.")
    rows = [turn for turn in found["turn_list"] if first <= turn["turn_number"] <= last]
    return {"session_id": name, "turns": turns, "from_turn": first, "to_turn": last,
            "turn_list": rows}  # fmt: skip


def _say_turns(output: dict[str, Any]) -> str:
    turns = output["turn_list"]
    if not turns:
        return "Nothing was said in that session yet."
    last = turns[-1]
    return (
        f"The session has {count(output['turns'], 'turn')}. The last said: {last['user_message']} "
        f"The answer was: {last['response']}"
    )


_SHOW_TOOL = AgentTool(
    name="reconstruct_session", label="replay", request=_requested, shape=_window,
    about="Read a conversation from the ledger: both sides of every turn, in full, or of a window "
    "of turns. Without a window: the last 20. Without an id: the current one.",
    arguments={
        "session_id": session_argument("such as SES-7K2M4QX9; this session when left out"),
        "from_turn": argument("number of the first turn", type=int, least=1),
        "to_turn": argument("number of the last turn", type=int, least=1),
    },
    examples=(
        ("reconstruct SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
        ("what was said in SES-7K2M4QX9?", {"session_id": "SES-7K2M4QX9"}),
        "both sides of the whole conversation",
        "the transcript of this chat from start to end, turn by turn",
        ("replay SES-4B8QW2ZZ", {"session_id": "SES-4B8QW2ZZ"}),
    ),
    describe=_say_turns,
    note="Cut to fit. Ask for fewer turns with from_turn and to_turn to see more of each.",
)  # fmt: skip


@verb("session show", lines=_conversation_lines, agent_tools=(_SHOW_TOOL,))
def show_conversation(
    root: RootPort, caller: Caller, *,
    session_id: str = field("Id of the session, or last.", "", flag="", metavar="[SESSION_ID]"),
    last: bool = field("Show the latest session.", False),
) -> dict[str, Any]:  # fmt: skip
    """Show the messages of every turn of a session, and the tools and models it set aside.

    --last leaves out sessions of sub-agents. The turns of an archived session are not shown.

    Returns:
        The overview of the session; ``turn_list``, its recorded turns, oldest first;
        ``unfinished_turn``, with the approvals in ``waiting_for``, or None; and ``set_aside``,
        which lists the exclusions, ``in_force`` or not.

    Raises:
        InvalidInputError: neither a session nor the latest one is meant, or both.
        NotFoundError: the ledger has no such session of an agent, or for --last none.
        LedgerError: the ledger cannot be read.
    """
    from remit.agents.sessions import list_sessions

    ledger = root.ledger
    if session_id == "last" and not last:
        session_id, last = "", True
    if bool(session_id) == last:
        raise InvalidInputError("Give a session id, or --last.")
    if last:
        session_id = next(
            (one.session_id for one in list_sessions(ledger) if not one.caller_session_id), ""
        )
    overview = _overview(ledger, session_id)
    turns = [
        {
            "turn_number": entry.metadata["turn_number"],
            "timestamp": entry.timestamp,
            "entry_id": entry.id,
            "user_message": entry.metadata["user_message"],
            "response": entry.metadata["response"],
            **({"outcome": outcome} if (outcome := entry.metadata.get("outcome")) else {}),
        }
        for entry in ledger.query(session_id=session_id, event_type="TURN_RECORDED")
    ]
    return {
        **overview.to_dict(), "turn_list": turns, "unfinished_turn": _unfinished(ledger, overview),
        "set_aside": _set_aside(ledger, session_id),
    }  # fmt: skip


@verb(
    "session cancel", changes=True,
    lines=lambda found: ["cancelled" if found["cancelled"] else "This session has no unfinished "
                         "turn."],
)  # fmt: skip
def cancel_conversation(
    root: RootPort, caller: Caller, *, session_id: str = field("Id of the session.", flag="")
) -> dict[str, Any]:
    """Cancel the running, waiting or interrupted turn of a session.

    Returns:
        ``session_id``, and ``cancelled``: False if the session has no unfinished turn. A turn that
        runs in another process is only requested to stop. The end of any other turn is recorded.

    Raises:
        NotFoundError: the ledger has no such session of an agent, or the session was archived.
        LeaseBusyError: another process has begun to work on the session.
        RemitError: the root cannot be opened, or the ledger cannot be read or written.
    """
    from remit.runtime.runtime import Runtime

    with Runtime.open(root.path, by=caller.name) as runtime:
        agent_id = _overview(runtime.ledger, session_id).agent_id
        # As the session's own agent: its entries belong to that agent.
        is_shell = agent_id == runtime.loaded.settings.chat.agent_id
        agent = runtime if is_shell else runtime.agent(agent_id)
        return {"session_id": session_id, "cancelled": agent.session(session_id).cancel()}


def _overview(ledger: LedgerClient, session_id: str) -> SessionOverview:
    from remit.agents.sessions import session_overview

    if not session_id:
        raise NotFoundError(
            "The ledger has no session yet.", next_step="`remit chat` starts a session."
        )
    if (found := session_overview(ledger, session_id)) is None:
        raise NotFoundError(
            f"No agent session has the id {session_id}.",
            next_step="`remit session list` lists sessions; `remit trace ID` shows gateway calls.",
        )
    return found


def _unfinished(ledger: LedgerClient, overview: SessionOverview) -> dict[str, Any] | None:
    """Return the session's unfinished turn as JSON, or None."""
    from remit.agents import ApprovalQueue
    from remit.agents.supervisor import unfinished_turn

    turn = unfinished_turn(ledger.scoped(tier="ho2"), overview.session_id, overview.turns)
    if turn is None:
        return None
    queue = ApprovalQueue(ledger)
    return {
        "turn_number": turn.turn_number,
        "user_message": turn.message,
        "work_orders": [
            {"wo_id": work.order.wo_id, "step": work.step, "state": str(work.order.state)}
            for work in turn.orders
        ],
        "waiting_for": [queue.get(request).to_dict() for request in turn.waiting_for],
    }


def _set_aside(ledger: LedgerClient, session_id: str) -> list[dict[str, Any]]:
    """Return the models and tools that the session set aside.

    The key ``in_force`` is True if the session has not ended since.
    """
    from remit.agents.sessions import latest_of
    from remit.agents.supervisor import exclusion_entries

    end = latest_of(ledger, session_id, "SESSION_END")
    ended = -1 if end is None else end.seq
    names = ("dimension", "name", "instead", "until", "evidence")
    return [
        {
            "entry_id": step.id,
            "timestamp": step.timestamp,
            "work_order_id": step.submission_id,
            **{name: step.metadata.get(name) for name in ("kind", *names)},
            "in_force": step.seq > ended,
        }
        for step in exclusion_entries(ledger, session_id)
    ]
