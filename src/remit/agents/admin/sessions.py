"""Views of sessions: lists, summaries, messages and budgets."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.admin.output import SessionId, Toolset, caller_session, plain_value
from remit.agents.admin.recall import asks_for_turn, describe_recall
from remit.agents.approvals import ApprovalQueue
from remit.agents.sessions import (
    SessionManager,
    SessionOverview,
    session_overview,
)
from remit.agents.supervisor import unfinished_turn
from remit.agents.tools import ToolError, current_call, tool
from remit.kernel.message_text import fixed


def _describe_overview(output: dict[str, Any]) -> str:
    cost = output["cost_usd"]
    priced = "at an unknown price" if cost is None else f"for {fixed(cost, 4)} US dollars"
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


class SessionTools(Toolset):
    """The tools ``session_overview`` and ``recall_turn``.

    They only read the ledger: the first any session of an agent, the second the caller's own.
    """

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

        The result has the fields of :class:`SessionOverview`, the cost, ``models`` and ``tools``
        (number of uses by name, most used first), ``open_approvals`` (each ``request_id``,
        ``tool_id`` and ``wo_id``), and ``unfinished_turn`` (``turn_number``, ``waiting_for``, and
        ``work_orders``, states by id): None without one, and inside that turn.

        Args:
            session_id: such as SES-7K2M4QX9; this session when left out

        Raises:
            ToolError: the ledger has no such session of an agent, or none is meant.
            OrderRecordError: the entries of the unfinished turn do not form orders.
            LedgerError: the ledger cannot be read.
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
        """Repeat what was said last in this session.

        The result has ``speaker``, ``turn_number`` and ``text``. The latest recorded turn is 1 turn
        back; the running turn does not count. Without such a turn the text is None, the number 0.
        An erased text is a placeholder.

        Raises:
            ToolError: the tool is called outside of a session.
            LedgerError: the ledger cannot be read.
        """
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
