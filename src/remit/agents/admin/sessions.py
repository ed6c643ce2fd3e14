"""Views of sessions: lists, summaries, messages and budgets."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.admin.output import Positive, SessionId, Toolset, caller_session, plain_value
from remit.agents.admin.recall import asks_for_turn, describe_recall
from remit.agents.approvals import ApprovalQueue
from remit.agents.sessions import (
    SessionManager,
    SessionOverview,
    session_overview,
    sessions_with_calls,
)
from remit.agents.supervisor import unfinished_turn
from remit.agents.tools import ToolError, current_call, tool
from remit.gateway.budget import BudgetScope, BudgetStatus, TokenBudgeter, usd_of

_DEFAULT_TURNS = 20


def _describe_sessions(output: dict[str, Any]) -> str:
    rows = output["sessions"]
    lines = [
        f"{row['session_id']}  {row['agent_id'] or '-'}  {row['user_id'] or '-'}  {row['turns']} "
        f"turn{'' if row['turns'] == 1 else 's'}"
        for row in rows
    ]
    noun = "is 1 session" if len(rows) == 1 else f"are {len(rows)} sessions"
    more = " and more" if output.get("more") else ""
    return "\n".join([f"There {noun}{more}, by id, agent and user:", *lines])


def _describe_overview(output: dict[str, Any]) -> str:
    cost = output["cost_usd"]
    priced = "at an unknown price" if cost is None else f"for {cost:.4f} US dollars"
    return (
        f"The session {output['session_id']} has {output['turns']} turns, "
        f"{output['llm_calls']} calls and {output['total_tokens']} tokens {priced}.\n"
        f"Models: {_named(output['models'])}. Tools: {_named(output['tools'])}. "
        f"Waiting for a person: {_named(output['open_approvals'])}."
    )


def _named(found: dict[str, int] | list[dict[str, Any]]) -> str:
    """Return names of tools or models, separated by commas; ``none`` if there are none."""
    names = [item["tool_id"] if isinstance(item, dict) else item for item in found]
    return ", ".join(names) or "none"


def _describe_turns(output: dict[str, Any]) -> str:
    turns = output["turn_list"]
    if not turns:
        return "Nothing was said in that session yet."
    last = turns[-1]
    return (
        f"The session has {output['turns']} turns. The last said: {last['user_message']} "
        f"The answer was: {last['response']}"
    )


def _describe_budgets(output: dict[str, Any]) -> str:
    priced = f"{output['spent_usd']:.4f} US dollars"
    if output["unpriced_calls"]:
        priced += f" and {output['unpriced_calls']} calls without a price"
    return (
        f"{output['spent_tokens']} tokens were spent, {priced}; there are {output['count']} "
        "budgets.\n" + "\n".join(map(_of_scope, output["scopes"]))
    ).strip()


def _of_scope(state: dict[str, Any]) -> str:
    limits = [
        f"{state[f'spent_{unit}']} of {state[f'limit_{unit}']} {word}"
        for unit, word in (("usd", "US dollars"), ("tokens", "tokens"))
        if state.get(f"limit_{unit}") is not None
    ]
    return f"{state['scope']}: {' and '.join(limits) or 'no limit'}."


class SessionTools(Toolset):
    """Tools that read sessions, their messages and budgets.

    The tools are ``list_sessions``, ``session_overview``, ``reconstruct_session``,
    ``budget_status`` and ``recall_turn``.
    """

    @tool(
        label="sessions",
        examples=(
            ("which sessions exist?", {}),
            ("list my conversations", {}),
            ("show all sessions", {}),
            ("how many sessions are there?", {}),
            ("are there past chats?", {}),
            ("who talked to you?", {}),
            ("list the latest sessions", {}),
        ),
        describe=_describe_sessions,
        on_unknown="retry",
    )
    def list_sessions(
        self, max_sessions: Annotated[int, Field(ge=1, le=100)] = 20
    ) -> dict[str, Any]:
        """List the conversations on record, with their number of turns."""
        found = sessions_with_calls(self.ledger, limit=max_sessions + 1)
        rows = [item.to_dict() for item in found]
        more = {"more": True} if len(rows) > max_sessions else {}
        rows = rows[:max_sessions]
        return {"status": "ok", "count": len(rows), **more, "sessions": rows}

    @tool(
        label="overview",
        examples=(
            ("overview of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
            ("its cost so far", {}),
            ("turns and tokens of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
            ("how many turns does this conversation have?", {}),
            ("what waits for a person's approval in this session?", {}),
            ("summarize SES-4B8QW2ZZ", {"session_id": "SES-4B8QW2ZZ"}),
        ),
        describe=_describe_overview,
        on_unknown="retry",
    )
    def session_overview(self, session_id: SessionId = None) -> dict[str, Any]:
        """Sum up one session: turns, cost, tokens, models, tools used, open approvals, and a
        turn that has not ended. Without an id: the current one.

        Args:
            session_id: such as SES-7K2M4QX9; this session when left out
        """
        found = self._overview(session_id)
        waiting = ApprovalQueue(self.ledger).pending(session_id=found.session_id)
        return {
            "status": "ok",
            **found.to_dict(),
            **SessionManager(self.ledger, found.session_id).total_cost(),
            "models": self._counted(found.session_id, "EXCHANGE", "model_id"),
            "tools": self._counted(found.session_id, "TOOL_CALL", "tool_id"),
            "open_approvals": [
                {
                    "request_id": approval.request_id,
                    "tool_id": approval.tool_id,
                    "wo_id": approval.wo_id,
                }
                for approval in waiting
            ],
            "unfinished_turn": self._unfinished(found),
        }

    @tool(
        label="replay",
        examples=(
            ("reconstruct SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9"}),
            ("what was said in SES-7K2M4QX9?", {"session_id": "SES-7K2M4QX9"}),
            ("both sides of the whole conversation", {}),
            ("the transcript of this chat from start to end, turn by turn", {}),
            ("replay SES-4B8QW2ZZ", {"session_id": "SES-4B8QW2ZZ"}),
        ),
        describe=_describe_turns,
        on_unknown="retry",
    )
    def reconstruct_session(
        self, session_id: SessionId = None, from_turn: Positive = None, to_turn: Positive = None
    ) -> dict[str, Any]:
        """Read a conversation from the ledger: both sides of every turn, in full, or of a
        window of turns. Without a window: the last 20. Without an id: the current one.

        Args:
            session_id: such as SES-7K2M4QX9; this session when left out
            from_turn: number of the first turn
            to_turn: number of the last turn
        """
        found = self._overview(session_id)
        last = min(to_turn or found.turns, found.turns)
        first = from_turn or max(1, last - _DEFAULT_TURNS + 1)
        if first > max(last, 1):
            raise ToolError(f"{found.session_id} has {found.turns} turns, none from {first} on.")
        turns = [
            self.redactor.value(
                {
                    "turn_number": entry.metadata["turn_number"],
                    "timestamp": entry.timestamp,
                    "entry_id": entry.id,
                    "user_message": plain_value(entry.metadata["user_message"]),
                    "response": plain_value(entry.metadata["response"]),
                    **({"outcome": value} if (value := entry.metadata.get("outcome")) else {}),
                }
            )
            for entry in self.ledger.query(session_id=found.session_id, event_type="TURN_RECORDED")
            if first <= entry.metadata["turn_number"] <= last
        ]
        output = {
            "status": "ok",
            "session_id": found.session_id,
            "turns": found.turns,
            "from_turn": first,
            "to_turn": last,
            "turn_list": turns,
        }
        note = "Cut to fit. Ask for fewer turns with from_turn and to_turn to see more of each."
        return self.shown(output, "turn_list", note)

    @tool(
        label="budget",
        examples=(
            ("show the budget", {}),
            ("how much money was spent?", {}),
            ("is there budget left?", {}),
            ("what are the spending limits?", {}),
            ("are we close to the limit?", {}),
        ),
        describe=_describe_budgets,
        on_unknown="retry",
    )
    def budget_status(
        self,
        session_id: SessionId = None,
        max_scopes: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> dict[str, Any]:
        """Show budgets: what was spent, is reserved and may be spent, in tokens and US dollars;
        of all keys, users and teams, or of one conversation.

        Args:
            session_id: only the budget of this session
        """
        budgeter = TokenBudgeter(self.ledger)
        if session_id is None:
            found = [state for state in budgeter.list() if "/" not in state.scope]
            counted = [state for state in found if state.scope.startswith("session:")]
            # The busiest budgets come first; the sums include the others.
            found.sort(key=lambda state: (-state.spent_nano, -state.spent_tokens, state.scope))
        else:
            top = BudgetScope(session_id).key
            found = [
                state
                for state in budgeter.list(top)
                if state.scope == top or state.scope.startswith(f"{top}/")
            ]
            counted = [state for state in found if state.scope == top]
            if not found:
                raise ToolError(f"There is no budget for the session {session_id}.")
        return {
            "status": "ok",
            "count": len(found),
            "spent_usd": usd_of(sum(state.spent_nano for state in counted)),
            "reserved_usd": usd_of(sum(state.reserved_nano for state in counted)),
            "spent_tokens": sum(state.spent_tokens for state in counted),
            "unpriced_calls": sum(state.unpriced_calls for state in counted),
            "scopes": [_budget(state) for state in found[:max_scopes]],
        }

    @tool(
        label="recall",
        examples=(
            ("what did I just say?", {"speaker": "user", "turns_back": 1}),
            ("what did you just say?", {"speaker": "agent", "turns_back": 1}),
        ),
        describe=describe_recall,
        understand=asks_for_turn,
        on_unknown="retry",
    )
    def recall_turn(
        self,
        speaker: Literal["user", "agent"] = "user",
        turns_back: Annotated[int, Field(ge=1, le=20)] = 1,
    ) -> dict[str, Any]:
        """Repeat what was said last in this session."""
        session = SessionManager(self.ledger, caller_session())
        turns = session.recent_turns(turns_back)
        if len(turns) < turns_back:
            return {"speaker": speaker, "turn_number": 0, "text": None}
        said = turns[0].user_message if speaker == "user" else turns[0].response
        return {"speaker": speaker, "turn_number": turns[0].turn_number, "text": plain_value(said)}

    def _overview(self, session_id: str | None) -> SessionOverview:
        wanted = caller_session(session_id)
        found = session_overview(self.ledger, wanted)
        if found is None:
            raise ToolError(f"The ledger has no session {wanted}; list_sessions shows them.")
        return found

    def _counted(self, session_id: str, event_type: str, name: str) -> dict[str, int]:
        """Return the number of uses of each model or tool, most used first."""
        found = self.ledger.query(session_id=session_id, event_type=event_type, with_content=False)
        return dict(
            Counter(str(entry.metadata.get(name) or "unknown") for entry in found).most_common()
        )

    def _unfinished(self, found: SessionOverview) -> dict[str, Any] | None:
        """Return the unfinished turn as plain data; None without one, or in that turn itself."""
        call = current_call()
        if call is not None and found.session_id == call.session_id:
            return None
        turn = unfinished_turn(self.ledger.scoped(tier="ho2"), found.session_id, found.turns)
        if turn is None:
            return None
        return {
            "turn_number": turn.turn_number,
            "waiting_for": list(turn.waiting_for),
            "work_orders": {
                recorded.order.wo_id: str(recorded.order.state) for recorded in turn.orders
            },
        }


def _budget(state: BudgetStatus) -> dict[str, Any]:
    return {name: value for name, value in state.to_dict().items() if not name.startswith("minute")}
