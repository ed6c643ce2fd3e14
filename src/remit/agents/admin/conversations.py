"""Sessions: which there are, what one came to, and what was said in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remit.agents.admin.asking import SESSION_ID, asked_session, asking_session
from remit.agents.admin.fitting import fit, plain
from remit.agents.admin.hiding import Hiding
from remit.agents.approvals import ApprovalQueue
from remit.agents.sessions import SessionManager, SessionOverview, list_sessions, session_overview
from remit.agents.supervisor import unfinished_turn
from remit.agents.tools import Tool, ToolError
from remit.kernel.settings import ToolSettings
from remit.ledger import LedgerClient

__all__ = ["session_tools"]

_MAX_SESSIONS = 100
_SHOWN_TURNS = 20


def session_tools(ledger: LedgerClient, settings: ToolSettings, hiding: Hiding) -> list[Tool]:
    """``list_sessions``, ``session_overview`` and ``reconstruct_session``.

    Args:
        ledger: the root's.
        settings: where outputs are cut.
        hiding: takes keys out of what was said.
    """

    def sessions(max_sessions: int = 20) -> dict[str, Any]:
        rows = [item.to_dict() for item in list_sessions(ledger, limit=max_sessions)]
        return {"status": "ok", "count": len(rows), "sessions": rows}

    def overview(session_id: str | None = None) -> dict[str, Any]:
        found = _overview(ledger, asked_session(session_id))
        waiting = ApprovalQueue(ledger).pending(session_id=found.session_id)
        return {
            "status": "ok",
            **found.to_dict(),
            **SessionManager(ledger, found.session_id).total_cost(),
            "models": _counted(ledger, found.session_id, "EXCHANGE", "model_id"),
            "tools": _counted(ledger, found.session_id, "TOOL_CALL", "tool_id"),
            "open_approvals": [
                {"request_id": one.request_id, "tool_id": one.tool_id, "wo_id": one.wo_id}
                for one in waiting
            ],
            "unfinished_turn": _unfinished(ledger, found),
        }

    def reconstruct(
        session_id: str | None = None, from_turn: int | None = None, to_turn: int | None = None
    ) -> dict[str, Any]:
        found = _overview(ledger, asked_session(session_id))
        last = min(to_turn or found.turns, found.turns)
        first = from_turn or max(1, last - _SHOWN_TURNS + 1)
        if first > max(last, 1):
            raise ToolError(f"{found.session_id} has {found.turns} turns, none from {first} on.")
        turns = [
            hiding.value(
                {
                    "turn_number": entry.metadata["turn_number"],
                    "timestamp": entry.timestamp,
                    "entry_id": entry.id,
                    "user_message": plain(entry.metadata["user_message"]),
                    "response": plain(entry.metadata["response"]),
                    **({"outcome": told} if (told := entry.metadata.get("outcome")) else {}),
                }
            )
            for entry in ledger.query(session_id=found.session_id, event_type="TURN_RECORDED")
            if first <= entry.metadata["turn_number"] <= last
        ]
        fitted = fit(turns, settings.max_output_bytes // 2)
        output = {
            "status": "ok",
            "session_id": found.session_id,
            "turns": found.turns,
            "from_turn": first,
            "to_turn": last,
            "turn_list": fitted.value,
        }
        if fitted.cut:
            output["note"] = (
                "Cut to fit. Ask for fewer turns with from_turn and to_turn to see more of each."
            )
        return output

    return [
        Tool(
            "list_sessions",
            "List the conversations on record, with their number of turns.",
            {
                "type": "object",
                "properties": {
                    "max_sessions": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MAX_SESSIONS,
                        "default": 20,
                    }
                },
                "additionalProperties": False,
            },
            sessions,
            (
                ("which sessions exist?", {}),
                ("list my conversations", {}),
                ("show all sessions", {}),
                ("how many sessions are there?", {}),
                ("every session, please", {}),
            ),
            _describe_sessions,
            "sessions",
            on_unknown="retry",
        ),
        Tool(
            "session_overview",
            "Sum up one session: turns, cost, tokens, models, tools used, open approvals, and a "
            "turn that has not ended. Without an id: the current one.",
            {
                "type": "object",
                "properties": {"session_id": SESSION_ID},
                "additionalProperties": False,
            },
            overview,
            (
                ("overview of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
                ("its cost so far", {}),
                ("turns and tokens of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
                ("summarize SES-4B8QW2ZZ", {"session_id": "SES-4B8QW2ZZ"}),
            ),
            _describe_overview,
            "overview",
            on_unknown="retry",
        ),
        Tool(
            "reconstruct_session",
            "Read a conversation from the ledger: both sides of every turn, in full, or of a "
            f"window of turns. Without a window: the last {_SHOWN_TURNS}. Without an id: the "
            "current one.",
            {
                "type": "object",
                "properties": {
                    "session_id": SESSION_ID,
                    "from_turn": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "number of the first turn",
                    },
                    "to_turn": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "number of the last turn",
                    },
                },
                "additionalProperties": False,
            },
            reconstruct,
            (
                ("reconstruct SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
                ("what was said in SES-7K2M4QX9?", {"session_id": "SES-7K2M4QX9"}),
                ("both sides of the whole conversation", {}),
                ("replay SES-4B8QW2ZZ", {"session_id": "SES-4B8QW2ZZ"}),
            ),
            _describe_turns,
            "replay",
            on_unknown="retry",
        ),
    ]


def _overview(ledger: LedgerClient, session_id: str) -> SessionOverview:
    found = session_overview(ledger, session_id)
    if found is None:
        raise ToolError(f"The ledger has no session {session_id}; list_sessions shows them.")
    return found


def _counted(ledger: LedgerClient, session_id: str, event_type: str, name: str) -> dict[str, int]:
    """How often which model, or tool, the most used first."""
    found = ledger.query(session_id=session_id, event_type=event_type, with_content=False)
    return dict(
        Counter(str(entry.metadata.get(name) or "unknown") for entry in found).most_common()
    )


def _unfinished(ledger: LedgerClient, found: SessionOverview) -> dict[str, Any] | None:
    """The turn that has not ended; the one that asks is not meant."""
    if found.session_id == asking_session():
        return None
    turn = unfinished_turn(ledger.scoped(tier="ho2"), found.session_id, found.turns)
    if turn is None:
        return None
    return {
        "turn_number": turn.turn_number,
        "waiting_for": list(turn.waiting_for),
        "work_orders": {one.order.wo_id: str(one.order.state) for one in turn.orders},
    }


def _describe_sessions(output: dict[str, Any]) -> str:
    rows = output["sessions"]
    shown = ", ".join(
        f"{row['session_id']} with {row['turns']} turn{'' if row['turns'] == 1 else 's'}"
        for row in rows[:3]
    )
    noun = "is 1 session" if len(rows) == 1 else f"are {len(rows)} sessions"
    return f"There {noun}: {shown}."


def _describe_overview(output: dict[str, Any]) -> str:
    cost = output["cost_usd"]
    priced = "at an unknown price" if cost is None else f"for {cost:.4f} US dollars"
    return (
        f"The session {output['session_id']} has {output['turns']} turns, "
        f"{output['llm_calls']} calls and {output['total_tokens']} tokens {priced}."
    )


def _describe_turns(output: dict[str, Any]) -> str:
    turns = output["turn_list"]
    if not turns:
        return "Nothing was said in that session yet."
    last = turns[-1]
    return (
        f"The session has {output['turns']} turns. The last said: {last['user_message']} "
        f"The answer was: {last['response']}"
    )
