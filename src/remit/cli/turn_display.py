"""The display of a turn in a terminal, with streamed words and results of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.agents.supervisor import TurnResult
from remit.agents.workorders import (
    AnswerRejected,
    ApprovalNeeded,
    Degraded,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEvent,
    TurnResumed,
)
from remit.cli.operations import say_lines
from remit.cli.output import note, say, say_text
from remit.cli.progress import Activity
from remit.kernel.message_text import cut, dollars
from remit.operations import facts
from remit.views.wording import call_text

_WIDE = 100
_ASKS = "waiting for the model"


class TurnPrinter:
    """A printer of the events of one turn.

    Text of the answer goes to standard output, other events to standard error; ends of tools print
    nothing. As a context, the printer also shows the running step on a terminal. With ``quiet``
    nothing is printed.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._shown = ""
        self._activity = Activity()

    def __enter__(self) -> TurnPrinter:
        if not self._quiet:
            self._activity.__enter__()
            self._activity.show(_ASKS)
        return self

    def __exit__(self, *_: object) -> None:
        self._activity.__exit__()

    def __call__(self, event: TurnEvent) -> None:
        """Print one event."""
        if self._quiet:
            return
        self._activity.hide()
        if isinstance(event, TextDelta):
            text = event.text if self._shown else event.text.lstrip()
            self._shown += text
            say_text(text, nl=False)
        elif isinstance(event, ToolStarted):
            self._note(f"[{event.tool_id} …]", "cyan")
            self._activity.show(event.tool_id)
        elif isinstance(event, ToolEnded):
            self._activity.show(_ASKS)
        elif isinstance(event, AnswerRejected):
            going_on = "trying again" if event.retrying else "giving up"
            self._note(f"[answer rejected: {'; '.join(event.reasons)}; {going_on}]", "yellow")
            self._activity.show(_ASKS)
        elif isinstance(event, Degraded):
            self._note(f"[degraded: {event.reason}]", "yellow")
        elif isinstance(event, ApprovalNeeded):
            shown = call_text(event.tool_id, event.arguments, _WIDE)
            self._note(f"[{shown} waits for approval]", "yellow")
        elif isinstance(event, TurnResumed):
            message = cut(event.user_message, _WIDE) or "(erased)"
            self._note(f"[resuming the unfinished turn: {message}]")
            self._activity.show(_ASKS)

    def _note(self, text: str, colour: str = "") -> None:
        self._end_line()
        note(text, colour)

    def finish(self, result: TurnResult) -> None:
        """Print the rest of a finished turn.

        The rest is the answer unless its text was streamed, then a note for each waiting request,
        and the status and the output or error of each tool.
        """
        self._activity.hide()
        if self._quiet:
            return
        if self._shown.strip() != result.response.strip():
            self._end_line()
            say_text(result.response)
            self._shown = ""
        self._end_line()
        for waiting in result.waiting_for:
            shown = call_text(waiting.tool_id, waiting.arguments, _WIDE)
            note(
                f"{shown} waits for approval: run `remit approve {waiting.request_id}` (--deny "
                "to deny)"
            )
        for tool in result.tool_results:
            say(f"  ── result of {tool['tool_id']} ({tool['status']}):")
            name = "output" if tool["status"] == "ok" else "error"
            told = tool[name] if isinstance(tool[name], Mapping) else {name: tool[name]}
            say_lines(facts(told), "  │ ")

    def _end_line(self) -> None:
        if self._shown and not self._shown.endswith("\n"):
            say("")
        self._shown = ""


def turn_data(result: TurnResult) -> dict[str, Any]:
    """Return a turn as the JSON object of the option ``--json``.

    ``waiting_for`` has the ids of the requests. ``output`` and the turn's number are left out.
    """
    return {
        "response": result.response,
        "session_id": result.session_id,
        "quality_gate_passed": result.quality_gate_passed,
        "degraded": result.degraded,
        "notice": result.notice,
        "error_code": result.error_code,
        "error_detail": result.error_detail,
        "tool_results": result.tool_results,
        "classification": result.classification,
        "cost": result.cost_summary,
        "work_orders": result.wo_chain_summary,
        "turn_entry_id": result.turn_entry_id,
        "waiting_for": [approval.request_id for approval in result.waiting_for],
    }


def cost_text(cost: Mapping[str, Any]) -> str:
    """Return the cost of a session as text.

    Args:
        cost: the mapping from :meth:`remit.runtime.Conversation.cost`.
    """
    return "cost unknown" if cost["cost_usd"] is None else dollars(cost["cost_usd"])
