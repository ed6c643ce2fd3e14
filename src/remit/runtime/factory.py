"""The one way to assemble an agent: its tools, contracts and context."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from remit.agents.admin import admin_tools
from remit.agents.supervisor import PlanStep, thread_tools
from remit.agents.tools import Tool, ToolDispatcher, ToolError, tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.kernel.errors import ConfigError
from remit.runtime.agent import Agent, AgentShape, Resources
from remit.runtime.context import KernelContext
from remit.runtime.installation import gate_view

if TYPE_CHECKING:
    from remit.agents.tools.mcp import McpServer

__all__ = ["AgentFactory"]


class AgentFactory:
    """Makes the agents of one runtime, and keeps the MCP servers that they share.

    Args:
        shared: what all its agents work with.
        contracts: of the root.
    """

    def __init__(self, shared: Resources, contracts: ContractLoader) -> None:
        self._shared = shared
        self._contracts = contracts
        self._servers: dict[str, McpServer] = {}

    def admin(self, own: Iterable[Tool], *, native_tools: bool) -> Agent:
        """The ADMIN agent.

        Args:
            own: tools that the embedding program adds to it.
            native_tools: whether its model chooses tools by itself.

        Raises:
            UnknownToolError: the configuration allows a tool that does not exist.
        """
        settings = self._shared.settings
        added = [*own]
        if settings.supervisor.threads and native_tools:
            added += thread_tools()
        ids = _unique([*settings.chat.tools_allowed, *(one.tool_id for one in added)])
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
        root, loaded, ledger = self._shared.root, self._shared.loaded, self._shared.ledger
        settings = loaded.settings
        brought = list(own)
        names = {one.tool_id for one in brought}
        gates = gate_view(root, ledger, loaded)
        admin = admin_tools(ledger, root.path, settings.tools, loaded, gates=gates)
        wanted = set(shape.answer.tools) - names
        dispatcher = ToolDispatcher(
            [*(one for one in admin if one.tool_id in wanted), *brought], settings.tools
        )
        dispatcher.tools(shape.answer.tools)
        context = KernelContext(
            root, ledger, loader, settings, shape.agent_id, shares_sessions=shares_sessions
        )
        return Agent(self._shared, shape, loader, dispatcher, context)

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
        return own, _unique(ids)

    def _server(self, name: str) -> McpServer:
        """An MCP server of the configuration, started when it is first used."""
        if name not in self._servers:
            from remit.agents.tools.mcp import McpServer

            known = self._shared.settings.mcp
            if name not in known:
                raise ConfigError(
                    f"There is no MCP server {name!r} in the configuration.",
                    next_step=f"Add [mcp.{name}] to {self._shared.root.config}; there are "
                    f"{', '.join(sorted(known)) or 'none'}.",
                )
            self._servers[name] = McpServer(name, known[name])
        return self._servers[name]

    def close(self) -> None:
        """End the MCP servers."""
        for one in self._servers.values():
            one.close()


def _unique(ids: list[str]) -> tuple[str, ...]:
    """The ids, each once.

    Raises:
        ToolError: one is there twice: an approval could mean either.
    """
    for tool_id in ids:
        if ids.count(tool_id) > 1:
            raise ToolError(f"There are two tools {tool_id!r}.", next_step="Rename one of them.")
    return tuple(ids)
