"""Construction of agents: ADMIN, and the tools of other agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from remit.agents import RECALL
from remit.agents.supervisor import PlanStep, thread_tools
from remit.agents.tools import Tool, ToolError, UnknownToolError, tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import ModelCapabilities
from remit.packages import Registry
from remit.runtime.agent import Agent
from remit.runtime.agent_shape import AgentShape, check_kind
from remit.runtime.resources import Resources

if TYPE_CHECKING:
    from remit.agents.tools import McpServer


class AgentFactory:
    """Makes the agents of a runtime and holds the MCP servers that they share.

    Args:
        shared: the parts that all agents share.
        contracts: the loader of the root's contracts.
    """

    def __init__(self, shared: Resources, contracts: ContractLoader) -> None:
        self._shared = shared
        self._contracts = contracts
        self._servers: dict[str, McpServer] = {}

    def admin(self, own: Iterable[Tool], able: ModelCapabilities) -> Agent[str]:
        """Return the ADMIN agent.

        A model without ``prose`` gets a tool that repeats earlier messages, and its messages are
        not classified: code chooses its tools.

        Args:
            own: tools that the embedding program adds.
            able: capabilities of the agent's model.

        Raises:
            UnknownToolError: the configuration allows a tool that does not exist.
        """
        settings = self._shared.settings
        added = [*own]
        supervisor, allowed = settings.supervisor, [*settings.chat.tools_allowed]
        if supervisor.threads and able.native_tools:
            added += thread_tools()
        if not able.prose:
            allowed.append(RECALL)
            supervisor = supervisor.model_copy(update={"classify": False})
        ids = _unique([*allowed, *(tool.tool_id for tool in added)])
        step = PlanStep("answer", "PRC-SYNTHESIZE-001", WorkOrderType.SYNTHESIZE, tools=ids)
        shape = AgentShape(settings.chat.agent_id, "ADMIN", step, None, supervisor)
        return Agent(self._shared, shape, self._contracts, added, shares_sessions=True)

    def tools_of(
        self,
        tools: Iterable[Tool | Callable[..., Any] | str],
        mcp: Iterable[str],
        approve: Iterable[str],
    ) -> tuple[list[Tool], tuple[str, ...]]:
        """Return the tools that an agent brings, and the ids of all tools that it may use.

        Args:
            tools: tool values, functions and ids.
            mcp: names of MCP servers.
            approve: ids that must each be among the tools.

        Raises:
            ConfigError: there is no such MCP server.
            InvalidInputError: an argument is not a list.
            ToolError: two tools have the same id.
            UnknownToolError: a tool that needs approval is not among the tools.
        """
        for name, given in (("tools", tools), ("mcp", mcp), ("approve", approve)):
            if isinstance(given, (str, Tool)) or not isinstance(given, Iterable):
                raise InvalidInputError(
                    f"{name} must be a list, not {given!r}.",
                    next_step=f"Write {name}=[…].",
                )
        for name, names in (("mcp", mcp), ("approve", approve)):
            for each in names:
                check_kind(f"An entry of {name}", each, str)
        own: list[Tool] = []
        ids: list[str] = []
        for item in tools:
            if isinstance(item, str):
                ids.append(item)
                continue
            if item is None:
                raise ToolError("None is not a function, so it cannot be a tool.")
            own.append(item if isinstance(item, Tool) else tool(item))
            ids.append(own[-1].tool_id)
        for name in mcp:
            offered = self._server(name).tools()
            own += offered
            ids += [tool.tool_id for tool in offered]
        if unknown := sorted(set(approve) - set(ids)):
            raise UnknownToolError(
                f"{unknown[0]!r} requires approval, but is not a tool of the agent.",
                next_step=f"Its tools are {', '.join(ids) or 'none'}.",
            )
        return own, _unique(ids)

    def _server(self, name: str) -> McpServer:
        """Return a configured MCP server, which starts at its first use."""
        if name not in self._servers:
            from remit.agents.tools import McpServer, Pins

            pins = Pins(self._shared.ledger, self._permitted)
            self._servers[name] = McpServer.configured(name, self._shared.settings.mcp, pins)
        return self._servers[name]

    def _permitted(self) -> list[str]:
        """Return the tools that installed packages permit, in the packages' spelling."""
        return Registry.from_ledger(self._shared.ledger).permitted_tools()

    def close(self) -> None:
        """Stop the MCP servers and the notifications of approvals."""
        self._shared.approvals.close()
        for server in self._servers.values():
            server.close()


def _unique(ids: list[str]) -> tuple[str, ...]:
    """Return the ids as a tuple.

    Raises:
        ToolError: an id occurs twice, so that an approval could mean either tool.
    """
    for tool_id in ids:
        if ids.count(tool_id) > 1:
            raise ToolError(f"Two tools have the id {tool_id!r}.", next_step="Rename one of them.")
    return tuple(ids)
