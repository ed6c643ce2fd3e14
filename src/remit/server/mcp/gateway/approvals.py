"""Approvals of tool calls, one for each exact call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from remit.agents import ApprovalQueue, Permit, arguments_hash
from remit.agents.tools import Tool
from remit.gateway.auth import Identity

_MAX_PENDING = 100


class WaitsError(Exception):
    """The call waits for a person, or was denied.

    Attributes:
        request_id: the request for approval.
        state: ``pending`` or ``denied``.
    """

    def __init__(self, request_id: str, state: str, said: str) -> None:
        super().__init__(said)
        self.request_id = request_id
        self.state = state


class Approving:
    """The approvals of one client's calls.

    Args:
        queue: the approvals of the root.
        identity: the client; the person behind its key may be barred from approving.
        session_id: the session that records the client's calls.
        agent_id: the agent that the client acts as.
        subject_id: the person whom the client named; may be empty.
    """

    def __init__(
        self,
        queue: ApprovalQueue,
        identity: Identity,
        session_id: str,
        agent_id: str,
        subject_id: str,
    ) -> None:
        self._queue = queue
        self._identity = identity
        self._session_id = session_id
        self._agent_id = agent_id
        self._subject_id = subject_id
        self._waiting: dict[tuple[str, str], str] = {}  # requests by tool and arguments

    async def permit(self, tool: Tool, arguments: Mapping[str, Any]) -> Permit:
        """Return the permit that lets a call begin once; request approval if there is none.

        Raises:
            WaitsError: nobody has decided yet, or the call was denied.
            InvalidInputError: the arguments cannot be recorded.
        """
        return await asyncio.to_thread(self._permit, tool, arguments)

    def _permit(self, tool: Tool, arguments: Mapping[str, Any]) -> Permit:
        key = tool.digest, arguments_hash(arguments)
        found = self._queue.get(self._waiting[key]) if key in self._waiting else None
        if found is not None and found.state == "denied":
            del self._waiting[key]  # said once; another call asks again
            why = f": {found.decision_reason}" if found.decision_reason else "."
            said = f"approval_denied: {found.decided_by} said no{why}"
            raise WaitsError(found.request_id, "denied", said)
        if found is None or not (found.state == "pending" or found.usable()):
            found = self._queue.request(
                tool,
                arguments,
                session_id=self._session_id,
                agent_id=self._agent_id,
                requested_by=self._queue.person_behind(self._identity),
                subject_id=self._subject_id,
            )
        if found.state == "granted":
            self._waiting.pop(key, None)
            return self._queue.permit(found.request_id)
        while len(self._waiting) >= _MAX_PENDING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[key] = found.request_id
        raise WaitsError(
            found.request_id,
            "pending",
            f"This call waits for a person's approval, as {found.request_id}; nothing was done "
            f"yet. Once it is approved (`remit approve {found.request_id}`), make the same call "
            "again.",
        )
