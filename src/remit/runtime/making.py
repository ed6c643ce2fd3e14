"""Puts agents together: their tools, contracts and context, out of what a root has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remit.agents.admin import admin_tools
from remit.agents.supervisor import PlanStep, thread_tools
from remit.agents.tools import Tool, ToolDispatcher, ToolError, tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.gateway.budget import TokenBudgeter
from remit.gateway.leases import LeaseManager
from remit.kernel.errors import ConfigError
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings
from remit.ledger import LedgerClient
from remit.runtime.agent import Agent, AgentParts, AgentShape
from remit.runtime.governing import gate_view
from remit.runtime.pushing import KernelContext

__all__ = ["AgentMaker"]


class AgentMaker:
    """Makes the agents of one runtime, and keeps the MCP servers that they share.

    Args:
        root: the installation.
        loaded: the settings of the root, and where each came from.
        ledger: the record.
        gateway: the one door to models.
        budgeter: holds the limits.
        leases: who works on what.
        contracts: of the root.
    """

    def __init__(
        self,
        root: Root,
        loaded: LoadedSettings,
        ledger: LedgerClient,
        gateway: LLMGateway,
        budgeter: TokenBudgeter,
        leases: LeaseManager,
        contracts: ContractLoader,
    ) -> None:
        self._root = root
        self._loaded = loaded
        self._settings = loaded.settings
        self._ledger = ledger
        self._gateway = gateway
        self._budgeter = budgeter
        self._leases = leases
        self._contracts = contracts
        self._servers: dict[str, Any] = {}

    def admin(self, own: Iterable[Tool], *, native_tools: bool) -> Agent:
        """The ADMIN agent.

        Args:
            own: tools that the embedding program adds to it.
            native_tools: whether its model chooses tools by itself.

        Raises:
            UnknownToolError: the configuration allows a tool that does not exist.
        """
        settings = self._settings
        added = [*own]
        if settings.supervisor.threads and native_tools:
            added += thread_tools()
        ids = _without_doubles([*settings.chat.tools_allowed, *(one.tool_id for one in added)])
        step = PlanStep("answer", "PRC-SYNTHESIZE-001", WorkOrderType.SYNTHESIZE, tools=ids)
        shape = AgentShape(settings.chat.agent_id, "ADMIN", step, settings.supervisor)
        return self.assemble(shape, added, self._contracts, shares_sessions=True)

    def assemble(
        self,
        shape: AgentShape,
        own: Iterable[Tool],
        loader: ContractLoader,
        *,
        shares_sessions: bool,
    ) -> Agent:
        """An agent of that shape.

        Args:
            shape: what its author decided.
            own: tools that it brings.
            loader: where its contracts are.
            shares_sessions: see :meth:`remit.Runtime.agent`.

        Raises:
            UnknownToolError: it may use a tool that does not exist.
        """
        settings = self._settings
        brought = list(own)
        names = {one.tool_id for one in brought}
        looking = [
            one
            for one in admin_tools(
                self._ledger,
                self._root.path,
                settings.tools,
                self._loaded,
                gates=gate_view(self._root, self._ledger, self._loaded),
            )
            if one.tool_id in shape.answer.tools and one.tool_id not in names
        ]
        dispatcher = ToolDispatcher([*looking, *brought], settings.tools)
        dispatcher.tools(shape.answer.tools)
        context = KernelContext(
            self._root, self._ledger, loader, settings, shape.agent_id,
            shares_sessions=shares_sessions,
        )  # fmt: skip
        parts = AgentParts(
            settings, self._ledger, self._gateway, self._budgeter, self._leases, loader, dispatcher,
            context,
        )  # fmt: skip
        return Agent(parts, shape)

    def tools_of(
        self, tools: Iterable[Tool | Callable[..., Any] | str], mcp: Iterable[str]
    ) -> tuple[list[Tool], tuple[str, ...]]:
        """Tools that an agent brings, and the ids of all that it may use.

        Raises:
            ConfigError: there is no such MCP server.
            ToolError: two tools have one id.
        """
        own: list[Tool] = []
        ids: list[str] = []
        for one in tools:
            if isinstance(one, str):
                ids.append(one)
                continue
            own.append(one if isinstance(one, Tool) else tool(one))
            ids.append(own[-1].tool_id)
        for name in mcp:
            offered = self._server(name).tools()
            own += offered
            ids += [one.tool_id for one in offered]
        return own, _without_doubles(ids)

    def _server(self, name: str) -> Any:
        """An MCP server of the configuration, started when it is first used."""
        if name not in self._servers:
            from remit.agents.tools.mcp import McpServer

            known = self._settings.mcp
            if name not in known:
                raise ConfigError(
                    f"There is no MCP server {name!r} in the configuration.",
                    next_step=f"Add [mcp.{name}] to {self._root.config}; there are "
                    f"{', '.join(sorted(known)) or 'none'}.",
                )
            self._servers[name] = McpServer(name, known[name])
        return self._servers[name]

    def close(self) -> None:
        """End the MCP servers."""
        for one in self._servers.values():
            one.close()


def _without_doubles(ids: list[str]) -> tuple[str, ...]:
    """The ids, each once.

    Raises:
        ToolError: one is there twice: nobody could tell which of the two an approval means.
    """
    for tool_id in ids:
        if ids.count(tool_id) > 1:
            raise ToolError(f"There are two tools {tool_id!r}.", next_step="Rename one of them.")
    return tuple(ids)
