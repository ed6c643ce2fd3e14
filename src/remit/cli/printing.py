"""How a turn looks in a terminal: the model's words as they come, a tool's data beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import orjson

from remit.agents.supervisor import TurnResult
from remit.agents.workorders import (
    AnswerRejected,
    ApprovalNeeded,
    Degraded,
    TextDelta,
    ToolStarted,
    TurnEvent,
    TurnResumed,
)
from remit.cli.approve import call_text
from remit.cli.shared import note, say
from remit.views.wording import dollars, visible

__all__ = ["TurnPrinter", "cost_text", "turn_data"]

_MAX_ROWS = 60
_CELL = 44
_WIDE = 100


class TurnPrinter:
    """Hears the events of one turn and prints them.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._shown = ""

    def __call__(self, event: TurnEvent) -> None:
        """Take one event."""
        if self._quiet:
            return
        if isinstance(event, TextDelta):
            text = event.text if self._shown else event.text.lstrip()
            self._shown += text
            say(text, nl=False)
        elif isinstance(event, ToolStarted):
            self._end_line()
            note(f"[{event.tool_id} …]")
        elif isinstance(event, AnswerRejected):
            self._end_line()
            going_on = "trying again" if event.retrying else "giving up"
            note(f"[not delivered: {'; '.join(event.reasons)}; {going_on}]")
        elif isinstance(event, Degraded):
            self._end_line()
            note(f"[degraded: {event.reason}]")
        elif isinstance(event, ApprovalNeeded):
            self._end_line()
            note(f"[{call_text(event.tool_id, event.arguments, _WIDE)} waits for a person]")
        elif isinstance(event, TurnResumed):
            self._end_line()
            said = visible(" ".join(event.user_message.split())) or "(erased)"
            note(f"[going on with the unfinished turn: {_cut(said, _WIDE)}]")

    def finish(self, result: TurnResult) -> None:
        """Print what was not streamed: the answer when it differs, and the tools' data."""
        if self._quiet:
            return
        if self._shown.strip() != result.response.strip():
            self._end_line()
            say(result.response)
            self._shown = ""
        self._end_line()
        for waiting in result.waiting_for:
            shown = call_text(waiting.tool_id, waiting.arguments, _WIDE)
            note(f"{shown} waits: `remit approve {waiting.request_id}`, or with --deny")
        for tool in result.tool_results:
            say(f"  ── {tool['tool_id']} gave ({tool['status']}):")
            for line in _lines(tool["output"] if tool["status"] == "ok" else tool["error"]):
                say(f"  │ {line}")

    def _end_line(self) -> None:
        if self._shown and not self._shown.endswith("\n"):
            click.echo()
        self._shown = ""


def turn_data(result: TurnResult) -> dict[str, Any]:
    """A turn as commands print it with ``--json``."""
    return {
        "response": result.response,
        "session_id": result.session_id,
        "quality_gate_passed": result.quality_gate_passed,
        "degraded": result.degraded,
        "tool_results": result.tool_results,
        "classification": result.classification,
        "cost": result.cost_summary,
        "work_orders": result.wo_chain_summary,
        "turn_entry_id": result.turn_entry_id,
        "waiting_for": [one.request_id for one in result.waiting_for],
    }


def cost_text(cost: Mapping[str, Any]) -> str:
    """What a session has cost, from :meth:`remit.runtime.Conversation.cost`."""
    return "price unknown" if cost["cost_usd"] is None else dollars(cost["cost_usd"])


def _lines(output: Any) -> list[str]:
    """A tool's output for people: rows as a table, anything else as it is."""
    if isinstance(output, str):
        return output.splitlines()
    if not isinstance(output, Mapping):
        return [orjson.dumps(output).decode()]
    lines = []
    for key, value in output.items():
        if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            lines += _table(value)
        elif isinstance(value, str) and "\n" in value:
            lines += [f"{key}:", *(f"  {line}" for line in value.splitlines())]
        else:
            shown = value if isinstance(value, str) else orjson.dumps(value).decode()
            lines.append(f"{key}: {shown}")
    return lines


def _table(rows: list[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0])
    shown = [[_cell(row.get(name)) for name in names] for row in rows[:_MAX_ROWS]]
    widths = [max(len(text) for text in column) for column in zip(names, *shown, strict=True)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [names, *shown]
    ]
    if len(rows) > _MAX_ROWS:
        lines.append(f"… and {len(rows) - _MAX_ROWS} more")
    return lines


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return _cut(" ".join(text.split()), _CELL)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
