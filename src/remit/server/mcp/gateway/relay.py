"""The relay between one client and one upstream server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, DispatchContext, Outbound
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.types import INTERNAL_ERROR

from remit.agents import ApprovalQueue
from remit.agents.tools import MCP_LISTS, PinnedTexts, Pins
from remit.gateway.budget import TokenBudgeter
from remit.kernel.errors import RemitError
from remit.kernel.secrets import ConfiguredSecrets, redact_secrets
from remit.kernel.settings import McpServerSettings
from remit.ledger import LedgerClient
from remit.server.mcp.callers import Caller, CallSlots
from remit.server.mcp.gateway.calls import ToolCalls
from remit.server.mcp.gateway.definitions import Definitions
from remit.server.mcp.gateway.entries import Record
from remit.server.mcp.gateway.rules import Rules
from remit.server.mcp.gateway.upstream import Upstream

_log = logging.getLogger("remit.mcp")
_MAX_CONCURRENT_CALLS = 16
"""Maximum number of requests of one server that wait for its client."""
_MAX_QUEUED_CALLS = 256
"""Maximum number of unread notifications of one server; further ones are dropped."""
# Requests whose answers carry content, beside tools/call.
_WITH_CONTENT = ("resources/read", "prompts/get", "completion/complete", "tasks/result")
# The SDK's dispatchers see to these on both sides: a request's id is another on each.
_OWN = ("notifications/cancelled", "notifications/progress")


@dataclass(frozen=True, slots=True)
class Served:
    """A server of ``[mcp.NAME]`` with everything the gateway needs to serve it.

    Attributes:
        name: the NAME of its table.
        settings: the settings of the server.
        rules: the rules that say which calls a key may make.
        timeout_s: timeout of a tool call, in seconds.
        ledger: ledger that calls are recorded in.
        budgeter: charges calls with a price.
        pins: accepted definitions of the server's tools.
        approvals: requests for approval of calls under ``ask``.
        slots: limits of concurrent and waiting calls.
        secrets: configured secrets, which are hidden from clients.
    """

    name: str
    settings: McpServerSettings
    rules: Rules
    timeout_s: float
    ledger: LedgerClient
    budgeter: TokenBudgeter
    pins: Pins
    approvals: ApprovalQueue
    slots: CallSlots
    secrets: ConfiguredSecrets


class Relay:
    """A relay of messages between one client and the server that is started for it.

    The first request starts the server.

    Args:
        served: the server.
        caller: the client.
        standalone: sends to the client outside its requests.
    """

    def __init__(self, served: Served, caller: Caller, standalone: Outbound) -> None:
        self._served = served
        self._standalone = standalone
        self._requests: list[DispatchContext[Any]] = []
        self._asked = self._waiting = 0
        self._record = Record(served.ledger, served.budgeter, served.name, caller)
        self.upstream = Upstream(
            served.name, served.settings, served.timeout_s, self._ask, self._tell,
            served.secrets.hidden,
        )  # fmt: skip
        # To ask a server that runs here costs next to nothing: so each call is checked.
        self._definitions = Definitions(
            served.name, self.upstream.origin, served.pins, always=bool(served.settings.command)
        )
        self._texts = PinnedTexts(served.name, self.upstream.origin, served.pins)
        self._calls = ToolCalls(served, caller, self._record, self._definitions, self.upstream)

    @property
    def busy(self) -> bool:
        """True while a request is being answered."""
        return bool(self._requests)

    async def request(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer one request of the client with the server's answer.

        A tool call is checked against rules and pins, recorded and charged. A list of tools shows
        only those that the client may call. A prompt or a resource that differs from its pin is
        refused. Requests for content, such as resources and prompts, are recorded with their
        answers or errors.

        Args:
            context: the dispatcher's context of the request.
            method: method of the request.
            params: its parameters; ``None`` for none.

        Raises:
            MCPError: the server reports an error or cannot be asked, or the call is refused.
            LedgerError: a request for content cannot be recorded.
        """
        options: CallOptions = {}
        if progress_token_from_params(params) is not None:
            options["on_progress"] = self._progress_to(context)

        async def ask(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            return await self.upstream.request(method, params, options)

        self._requests.append(context)
        try:
            if method == "tools/call":
                return await self._calls.answer(params or {}, ask)
            result = await ask(method, params)
            if method == "tools/list":
                return self._calls.visible(await self._definitions.checked(result))
            result = await asyncio.to_thread(self._accepted, method, params or {}, result)
        except MCPError as error:
            if method in _WITH_CONTENT:
                await self._record.message(method, params, error=error.error.message)
            raise
        except RemitError as error:
            if method in _WITH_CONTENT:
                await self._record.message(method, params, error=str(error))
            raise MCPError(INTERNAL_ERROR, redact_secrets(str(error))) from error
        except Exception as error:
            _log.error("%s through the gateway failed: %s", method, type(error).__name__)
            raise MCPError(
                INTERNAL_ERROR, f"The gateway failed: {type(error).__name__}."
            ) from error
        finally:
            self._requests.remove(context)
        if method == "initialize" and isinstance(result.get("protocolVersion"), str):
            self.upstream.version = result["protocolVersion"]
        if method in _WITH_CONTENT:
            await self._record.message(method, params, result)
        return result

    def _accepted(
        self, method: str, params: Mapping[str, Any], result: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a result whose texts are pinned or accepted by a person.

        Raises:
            ToolError: a prompt or a resource differs from its pin.
        """
        if method in ("initialize", "server/discover"):
            return self._texts.initialized(result)
        if method in MCP_LISTS:
            member = MCP_LISTS[method][0]
            return {**result, member: self._texts.listed(method, result.get(member))}
        if method == "resources/read":
            self._texts.require_resource(str(params.get("uri")))
        if method == "prompts/get" and "messages" in result:
            name, given = str(params.get("name")), params.get("arguments")
            self._texts.require_prompt(name, given, result)
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass one notification of the client on to the server.

        Cancellation and progress are left out, as the relay handles them itself. A notification is
        dropped if the server has not started or has ended; errors are ignored.

        Args:
            method: method of the notification.
            params: its parameters; ``None`` for none.
        """
        if method not in _OWN:
            await self.upstream.notify(method, params)

    async def close(self) -> None:
        """End the connection to the server, and a server that was started for it."""
        await self.upstream.close()

    # -- what the server sends -------------------------------------------------------------

    async def _ask(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Pass a request of the server to the client: sampling, elicitation, roots, ping.

        Raises:
            MCPError: the client reports an error, or too many requests wait for it.
        """
        if self._asked >= _MAX_CONCURRENT_CALLS:
            raise MCPError(INTERNAL_ERROR, f"{self._asked} requests wait for the client already.")
        options: CallOptions = {}
        if progress_token_from_params(params) is not None:
            options["on_progress"] = self._progress_to(context)
        self._asked += 1
        try:
            result = await self._channel().send_raw_request(method, params, options)
        except MCPError as error:
            await self._record.message(method, params, error=error.error.message)
            raise
        finally:
            self._asked -= 1
            self.upstream.alive()
        if method != "ping":
            await self._record.message(method, params, result)
        return result

    async def _tell(
        self, _: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> None:
        if method in _OWN:
            return
        if method == "notifications/tools/list_changed":
            self._definitions.changed()
        if self._waiting >= _MAX_QUEUED_CALLS:
            return
        self._waiting += 1
        try:
            if method == "notifications/message":
                await self._record.note(method, params)
                await self._channel().notify(method, params)
            else:
                await self._standalone.notify(method, params)
        finally:
            self._waiting -= 1

    def _channel(self) -> Outbound:
        """Return the channel of the client's latest open request, else the standalone one."""
        return next((one for one in reversed(self._requests)), self._standalone)

    def _progress_to(self, context: DispatchContext[Any]) -> Callable[..., Any]:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            self.upstream.alive()
            if self._waiting < _MAX_QUEUED_CALLS:
                self._waiting += 1
                try:
                    await context.progress(done, total, message)
                finally:
                    self._waiting -= 1

        return progress
