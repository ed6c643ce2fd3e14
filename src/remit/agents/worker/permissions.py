"""What a tool call of an order needs a person for, and the permit that lets it begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from remit.agents.approvals import Permit, asked
from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.execution import Execution, WorkParkedError
from remit.agents.workorders import ApprovalNeeded
from remit.ledger import LedgerEntry


class Permissions:
    """Asks people about the tool calls of one order, and uses up what they granted."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._order = execution.order
        self._journal = execution.journal
        self._history = execution.history

    async def ask(
        self, tool: Tool, given: dict[str, Any], key: str, began: int
    ) -> tuple[ToolResult | None, Permit | None]:
        """What a person said to this action; undecided, the order is parked.

        Args:
            began: how often it began, when it is unknown whether it took effect. A yes is one to
                the attempt that was asked about, not to all.
        """
        kind = "unknown_outcome" if began else "approval"
        said = asked(tool, given)
        requests = [
            entry for entry in self._history.requests if _about(entry) == (key, kind, began)
        ]
        request = next((entry for entry in requests if _is_for(entry, tool, given)), None)
        if request is None:  # one that was granted for something else is refused on record
            granted = (entry for entry in requests if self._history.is_granted(entry.id))
            request = next(granted, None)
        decision = None if request is None else self._history.decisions.get(request.id)
        if request is None or decision is None:
            request_id = request.id if request is not None else ""
            if not request_id:
                request_id = await self._journal.write(
                    "APPROVAL_REQUESTED",
                    tool_id=tool.tool_id,
                    arguments=given,
                    idempotency_key=key,
                    kind=kind,
                    **({"attempt": began} if began else {}),
                    **said,
                )
                self._execution.services.on_request(request_id)
            self._execution.emit(
                ApprovalNeeded(request_id, self._order.wo_id, tool.tool_id, given, kind)
            )
            raise WorkParkedError((request_id,))
        if decision.event_type == "APPROVAL_GRANTED":
            return None, Permit(request, decision)
        if began:
            text = (
                f"{tool.tool_id} had begun when the process died, and it is unknown whether it "
                f"took effect. It was not run again: {_by_whom(decision)}"
            )
            return ToolResult("error", error=text), None
        return ToolResult("refused", error=f"approval_denied: {_by_whom(decision)}"), None

    def note_of_edit(self, key: str) -> str:
        """What a model is told of arguments that a person changed; empty where none were."""
        if (edit := self._history.edit(key)) is None:
            return ""
        shown = orjson.dumps(edit.metadata["arguments"]).decode()
        return f"{edit.metadata['decided_by']} changed the arguments; it ran with {shown}\n"

    async def begin(self, intent: LedgerEntry, permit: Permit | None, tool: Tool) -> str:
        """Put on record that a tool is about to run; why it must not, where its permit says so."""
        if permit is None:
            await self._journal.write_all([intent])
            return ""
        begin = permit.begin(intent, tool.digest, self._journal.ledger.prepare)
        return await self._journal.write_all([begin])


def _about(request: LedgerEntry) -> tuple[str, str, int]:
    data = request.metadata
    return data["idempotency_key"], data["kind"], data.get("attempt", 0)


def _is_for(request: LedgerEntry, tool: Tool, given: Mapping[str, Any]) -> bool:
    """Whether a request is for exactly this action; those of earlier versions name no digest."""
    data = request.metadata
    return (data["tool_id"], data["arguments"], data.get("tool_digest", tool.digest)) == (
        tool.tool_id, given, tool.digest
    )  # fmt: skip


def _by_whom(denied: LedgerEntry) -> str:
    why = denied.metadata.get("decision_reason")
    end = f": {why}" if isinstance(why, str) and why else "."
    return f"{denied.metadata['decided_by']} said no{end}"
