"""The entries of what passes between a client and an upstream server."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from remit.agents import ApprovalError, Permit
from remit.agents.tools import mcp_tool_id as tool_id_of
from remit.agents.workorders import Journal
from remit.gateway import default_session
from remit.gateway.auth import Identity
from remit.gateway.budget import TokenBudgeter, TokenUsage
from remit.kernel.budget_values import BudgetScope
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.secrets import redact_secrets
from remit.ledger import LedgerClient, LedgerEntry, Prepared, Transaction
from remit.server.mcp.callers import Caller

_MAX_NOTIFICATIONS = 200
"""Maximum number of recorded notifications per session: no server can flood the record."""

# A tool call is recorded as a worker's is; the rest in the tier whose part writes such entries.
_TIERS = {"MCP_MESSAGE": "hot", "SESSION_START": "ho2"}
_SESSION_START_SQL = (
    "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' LIMIT 1"
)
_LATEST = (
    "SELECT id FROM entries WHERE session_id = ? AND event_type = 'TOOL_INTENT' "
    "ORDER BY seq DESC LIMIT 1"
)


class Record:
    """The entries of one client's session with one upstream server.

    The first entry is preceded by ``SESSION_START``, unless the session has one.

    Args:
        ledger: records the entries.
        budgeter: charges calls.
        server: name of the upstream server.
        caller: the client.

    Attributes:
        session_id: the session of the client's key or token, else one for each key and day.
        subject_id: the person whom the client named; may be empty.
    """

    def __init__(
        self, ledger: LedgerClient, budgeter: TokenBudgeter, server: str, caller: Caller
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self._server = server
        self._identity: Identity = caller.identity
        self._noted = 0
        self._started = False
        self.session_id = caller.identity.session_id or default_session(
            caller.identity, f"{datetime.now(UTC):%Y%m%d}"
        )
        self.subject_id = caller.subject_id
        self._journal = Journal(
            ledger, "ho1", self.session_id, caller.agent_id(""), "MCP_CLIENT",
            subject_id=self.subject_id,
        )  # fmt: skip

    async def intend(
        self,
        name: str,
        arguments: Any,
        *,
        digest: str,
        price_nano: int = 0,
        permit: Permit | None = None,
    ) -> tuple[str, dict[str, Any]]:
        """Record durably that a tool is about to be called, and charge its price.

        Args:
            name: the server's name of the tool.
            arguments: the arguments of the call.
            digest: SHA-256 of the tool's definition.
            price_nano: the price in nano-dollars.
            permit: the approval that is used up in the same transaction; None if none is needed.

        Returns:
            The id of the ``TOOL_INTENT``, and the metadata that its ``TOOL_CALL`` repeats.

        Raises:
            BudgetRefusedError: a budget of the key has less left; nothing was written.
            ApprovalError: the approval is for another call, used, or expired; nothing was written.
            LedgerError: the entry cannot be written.
        """
        shown = self._call(name, arguments)
        if permit is not None:
            shown["idempotency_key"] = permit.request.metadata["idempotency_key"]
        entry, prepare = self._entry("TOOL_INTENT", **shown, tool_digest=digest), self._prepared
        begin = None if permit is None else permit.begin(entry, digest, prepare)
        prepared = prepare(entry) if begin is None else None
        scope = self._scope()

        def write(tx: Transaction) -> str:
            if price_nano:
                self._budgeter.debit(
                    scope,
                    TokenUsage(0, 0, cost_nano=price_nano),
                    enforce=True,
                    reason=f"A call of {shown['tool_id']}",
                    tx=tx,
                )
            self._start(tx)
            if begin is None:
                assert prepared is not None
                return tx.append(prepared)
            if problem := begin(tx):
                raise ApprovalError(f"approval_invalid: {problem}.")
            ((intent_id,),) = tx.execute(_LATEST, (self.session_id,))
            return str(intent_id)

        intent_id = await self._ledger.submit(write)
        self._started = True
        return intent_id, shown

    async def end(self, shown: Mapping[str, Any], status: str, result: Any, error: str = "") -> str:
        """Record a tool's result, or the reason for none; return the id of the ``TOOL_CALL``.

        Args:
            shown: the recorded call, as its ``TOOL_INTENT`` shows it.
            status: outcome of the call, such as ``ok`` or ``error``.
            result: the result; ``None`` for none.
            error: reason for a missing result; secrets are hidden.

        Raises:
            LedgerError: the entry cannot be written.
        """
        return await self._write(self._ended(shown, status, result, error))

    async def refuse(self, name: str, arguments: Any, error: str) -> str:
        """Record a refused call; return the id of its ``TOOL_CALL``.

        Args:
            name: the server's name of the tool.
            arguments: the arguments that the client sent.
            error: reason of the refusal.

        Raises:
            LedgerError: the entry cannot be written.
        """
        shown = self._call(redact_secrets(name), arguments)  # A client may have invented the name.
        return await self._write(self._ended(shown, "refused", None, error))

    async def message(self, method: str, sent: Any, result: Any = None, *, error: str = "") -> str:
        """Record any other request or notification with content; return the entry's id.

        The entry is an ``MCP_MESSAGE`` with the status ``error`` if ``error`` is given, else
        ``ok``.

        Args:
            method: method of the message.
            sent: its parameters.
            result: the server's answer; ``None`` for none.
            error: reason for a missing answer; secrets are hidden.

        Raises:
            LedgerError: the entry cannot be written.
        """
        entry = self._entry(
            "MCP_MESSAGE",
            server=self._server,
            method=method,
            status="error" if error else "ok",
            arguments=_recordable(sent),
            result=_recordable(result),
            tool_error=redact_secrets(error),
        )
        return await self._write(entry)

    async def note(self, method: str, params: Any) -> None:
        """Record a notification of the server, at most 200 in a session; the last entry says that
        later ones are not recorded.

        Args:
            method: method of the notification.
            params: its parameters.

        Raises:
            LedgerError: the entry cannot be written.
        """
        self._noted += 1
        if self._noted < _MAX_NOTIFICATIONS:
            await self.message(method, params)
        elif self._noted == _MAX_NOTIFICATIONS:
            sent = f"This server sent {_MAX_NOTIFICATIONS} notifications"
            why = f"{sent}; later ones are not on record."
            await self.message(method, params, error=why)

    def _entry(self, event_type: str, /, **metadata: Any) -> LedgerEntry:
        if self._identity.key_id:
            metadata["key_id"] = self._identity.key_id
        if tier := _TIERS.get(event_type):
            metadata["scope"] = {"tier": tier}
        return self._journal.entry(event_type, **metadata)

    def _call(self, name: str, arguments: Any) -> dict[str, Any]:
        return {
            "tool_id": tool_id_of(self._server, name),
            "arguments": _recordable(arguments),
            "idempotency_key": f"{self.session_id}/{secrets.token_hex(8)}",
        }

    def _ended(self, shown: Mapping[str, Any], status: str, result: Any, error: str) -> LedgerEntry:
        result = _recordable(result)
        return self._entry(
            "TOOL_CALL",
            **shown,
            status=status,
            result=result,
            arguments_bytes=len(exact_json(shown["arguments"])),
            result_bytes=len(exact_json(result)),
            tool_error=redact_secrets(error),
        )

    async def _write(self, entry: LedgerEntry) -> str:
        prepared = self._prepared(entry)

        def write(tx: Transaction) -> str:
            self._start(tx)
            return tx.append(prepared)

        written = self._ledger.submit(write)
        try:
            entry_id = await written
        except asyncio.CancelledError:  # the client left; this is on record all the same
            if not written.done():
                raise
            entry_id = written.result()
        self._started = True
        return entry_id

    def _start(self, tx: Transaction) -> None:
        if not self._started and not tx.execute(_SESSION_START_SQL, (self.session_id,)):
            tx.append(self._prepared(self._entry("SESSION_START")))

    def _prepared(self, entry: LedgerEntry) -> Prepared:
        """Return an encoded entry, with the person whom the client named."""
        return self._journal.prepared_entry(entry)

    def _scope(self) -> BudgetScope:
        who = self._identity
        return BudgetScope(
            self.session_id,
            agent_id=self._journal.agent_id,
            key_id=who.key_id or None,
            user_id=who.user_id or None,
            team_id=who.team_id or None,
            organisation_id=who.organisation_id or None,
        )


def _recordable(value: Any) -> Any:
    """Return ``value``, or its JSON text if the record cannot contain the value itself."""
    try:
        exact_json(value)
    except InvalidInputError:
        return json.dumps(value, default=str)
    return value
