"""Tool calls of one client: checked, charged, and recorded before and after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.types import INVALID_PARAMS, REQUEST_TIMEOUT

from remit.agents import ApprovalError, Permit, arguments_hash
from remit.agents.tools import Tool, ToolError
from remit.gateway.budget import BudgetRefusedError
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.secrets import redact_secrets
from remit.server.mcp.callers import Caller, CallerError
from remit.server.mcp.gateway.definitions import Ask, Definition, Definitions
from remit.server.mcp.gateway.entries import Record

if TYPE_CHECKING:
    from remit.server.mcp.gateway.relay import Served
    from remit.server.mcp.gateway.upstream import Upstream

RECEIPT = "remit/receipt"
"""Key of a result's ``_meta``: ids of the entries that prove the call (`remit ledger prove`)."""

APPROVAL = "remit/approval"
"""Key of a result's ``_meta`` if the call waits for approval or was denied."""

_KEY = "remit/idempotency_key"
_MAX_PENDING = 100


class ToolCalls:
    """The ``tools/call`` requests of one client at one server.

    Each call is checked against rules, pins and budgets, and recorded. Calls under ``ask`` wait for
    a person's approval; the client repeats the call afterwards.

    Args:
        served: the server.
        caller: the client.
        record: writes the entries.
        definitions: checked definitions of the server's tools.
        upstream: the connection to the server.
    """

    def __init__(
        self,
        served: Served,
        caller: Caller,
        record: Record,
        definitions: Definitions,
        upstream: Upstream,
    ) -> None:
        self._served = served
        self._caller = caller
        self._record = record
        self._definitions = definitions
        self._upstream = upstream
        self._agent_id = caller.agent_id("")
        self._pending: dict[tuple[str, str], str] = {}  # Requests, keyed by tool and arguments.

    def visible(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return a page of ``tools/list`` without tools that the client may not call.

        Args:
            page: a checked page; its other members stay.
        """
        who, shows = self._caller.identity, self._served.rules.shows
        return {**page, "tools": [tool for tool in page["tools"] if shows(who, tool["name"])]}

    async def answer(self, params: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        """Return the result of one call; a refusal is a result that a model can read.

        Calls and refusals are recorded, but not unusable parameters. A call waits for a slot of its
        client. A call that needs approval is not run: the request for approval is recorded, the
        result says so, and the client repeats the call. A result that does not fit the tool's
        output schema is replaced by an error result.

        Args:
            params: the parameters of the request.
            ask: sends a request to the server.

        Raises:
            MCPError: the parameters have no name or unusable arguments; the server reports an
                error, does not answer or breaks the protocol; or the client may not see the tool.
            LedgerError: an entry cannot be written.
        """
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(
                INVALID_PARAMS, "tools/call requires a name, and arguments as an object."
            )
        try:
            async with self._served.slots.of(self._caller.owner):
                return await self._answer(name, arguments, params, ask)
        except (
            CallerError, BudgetRefusedError, ApprovalError, InvalidInputError, ToolError,
        ) as error:  # fmt: skip
            return await self._refused(name, arguments, str(error))

    async def _answer(
        self, name: str, arguments: dict[str, Any], params: Mapping[str, Any], ask: Ask
    ) -> dict[str, Any]:
        definition = await self._definitions.find(name, ask, params.get("_meta"))
        if definition is None or not self._served.rules.shows(self._caller.identity, name):
            why = f"This server has no tool {name[:64]!r}."
            await self._record.refuse(name, arguments, why)
            raise MCPError(INVALID_PARAMS, why)  # MCP prescribes this code.
        rules, who = self._served.rules, self._caller.identity
        verdict = await asyncio.to_thread(rules.decide, who, name, arguments)
        if why := definition.refusal or verdict.reason:
            return await self._refused(name, arguments, why)
        permit = None
        if verdict.effect == "ask":
            found = await asyncio.to_thread(self._permit, definition.tool, arguments)
            if isinstance(found, dict):
                return found
            permit, arguments = found, found.instead_of(arguments)
        self._served.rules.count(verdict, self._caller.owner)
        intent_id, shown = await self._record.intend(
            name,
            arguments,
            digest=definition.tool.digest,
            price_nano=verdict.price_nano,
            permit=permit,
        )
        meta = params.get("_meta")
        sent = {
            **params,
            **({"arguments": arguments} if permit is not None else {}),
            "_meta": {**(meta if isinstance(meta, dict) else {}),
                      _KEY: shown["idempotency_key"]},
        }  # fmt: skip
        try:
            result = await ask("tools/call", sent)
        except asyncio.CancelledError:
            why = "The client cancelled the call or disconnected; the call may have taken effect."
            await self._record.end(shown, "unknown", None, why)
            raise
        except MCPError as error:
            # The request had reached a server that ended without an answer.
            status = "unknown" if self._upstream.over else "error"
            if error.error.code == REQUEST_TIMEOUT:
                status = "timeout"
            await self._record.end(shown, status, None, error.error.message)
            raise
        except Exception as error:
            why = f"The gateway failed: {type(error).__name__}. The call may have taken effect."
            await self._record.end(shown, "unknown", None, why)
            raise
        result = _with_content(result)
        if permit is not None and arguments != params.get("arguments", {}):
            result = _with_note(result, f"A person changed the arguments to {arguments}.")
        # A result may be large: other clients are served while it is checked.
        problem = await asyncio.to_thread(_problem, definition, result)
        failed = bool(problem) or result.get("isError") is True
        call_id = await self._record.end(shown, "error" if failed else "ok", result, problem)
        if problem:
            result = _failed(f"{name}: {problem}")
        return self._receipted(result, intent_id, call_id)

    def _permit(self, tool: Tool, arguments: Mapping[str, Any]) -> Permit | dict[str, Any]:
        """Return the permit that lets a call begin once, or a result that says why there is none.

        Requests approval if nobody was asked about this exact call. A denial is reported once;
        the next equal call requests approval again. Blocks.

        Raises:
            InvalidInputError: the arguments cannot be recorded.
            ToolError: the arguments do not fit the tool, so nobody is asked.
        """
        queue, key = self._served.approvals, (tool.digest, arguments_hash(arguments))
        found = queue.get(self._pending[key]) if key in self._pending else None
        if found is not None and found.state == "denied":
            del self._pending[key]
            why = f": {found.decision_reason}" if found.decision_reason else "."
            said = f"approval_denied: denied by {found.decided_by}{why}"
            return _awaiting(found.request_id, "denied", said)
        if found is None or not (
            found.state == "pending" or found.usable(self._served.ledger.wall_time)
        ):
            tool.prepared(arguments)
            caller = self._caller.identity
            found = queue.request(
                tool,
                arguments,
                session_id=self._record.session_id,
                agent_id=self._agent_id,
                requested_by=queue.person_behind(caller.key_id, caller.user_id, caller.name),
                subject_id=self._record.subject_id,
            )
        if found.state == "granted":
            self._pending.pop(key, None)
            return queue.permit(found.request_id)
        while len(self._pending) >= _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = found.request_id
        said = (
            f"This call waits for a person's approval, as {found.request_id}; the tool has not "
            f"run. Once the call is approved (`remit approve {found.request_id}`), make the "
            f"same call "
            "again."
        )
        return _awaiting(found.request_id, "pending", said)

    async def _refused(self, name: str, arguments: Any, why: str) -> dict[str, Any]:
        call_id = await self._record.refuse(name, arguments, why)
        return self._receipted(_failed(f"Refused, and nothing was done: {why}"), "", call_id)

    def _receipted(self, result: dict[str, Any], intent_id: str, call_id: str) -> dict[str, Any]:
        meta = result.get("_meta")
        receipt = {"session": self._record.session_id, "call": call_id}
        if intent_id:
            receipt["intent"] = intent_id
        return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), RECEIPT: receipt}}


def _problem(definition: Definition, result: dict[str, Any]) -> str:
    """Return why a result is invalid; empty if it is valid."""
    if "task" in result or result.get("resultType") not in (None, "complete"):
        return ""  # not the end of the call
    blocks = result.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return "its server sent an invalid tool result."
    schema = definition.output_schema
    if schema is None or result.get("isError") is True or schema_problem(schema):
        return ""
    problem = first_problem(schema, result.get("structuredContent"))
    return f"its result does not match its output schema: {problem[:500]}." if problem else ""


def _with_content(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of data alone with its data as a text, without which clients read no result.

    The protocol asks servers for both.
    """
    data = result.get("structuredContent")
    if data is None or result.get("content") is not None:
        return result
    text = json.dumps(data, ensure_ascii=False)
    return {**result, "content": [{"type": "text", "text": text}]}


def _with_note(result: dict[str, Any], text: str) -> dict[str, Any]:
    blocks = result.get("content")
    note = {"type": "text", "text": text}
    return {**result, "content": [*blocks, note]} if isinstance(blocks, list) else result


def _awaiting(request_id: str, state: str, said: str) -> dict[str, Any]:
    return {**_failed(said), "_meta": {APPROVAL: {"request": request_id, "state": state}}}


def _failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": redact_secrets(text)}], "isError": True}
