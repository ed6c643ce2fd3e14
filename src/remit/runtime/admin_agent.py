"""The ADMIN agent, and the tools of other agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from remit.agents import RECALL
from remit.agents.supervisor import PlanStep, thread_tools
from remit.agents.tools import Tool, ToolError, UnknownToolError, tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import ModelCapabilities
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient
from remit.packages import Registry
from remit.runtime.agent import Agent
from remit.runtime.agent_options import AgentShape, check_kind

if TYPE_CHECKING:
    from remit.agents.tools import McpServer
    from remit.runtime.runtime import Runtime


def admin_agent(
    runtime: Runtime, contracts: ContractLoader, own: Iterable[Tool], able: ModelCapabilities
) -> Agent[str]:
    """Return the ADMIN agent of a root. Nothing is recorded.

    The agent answers under ``PRC-SYNTHESIZE-001``. The agent's id comes from ``[chat]``, and its
    tools are ``[chat] tools_allowed`` and ``own``. A model with native tools also gets the tools
    for topics if ``[supervisor] threads`` is set. For a model without ``prose``, code chooses the
    tools: the agent gets the tool that repeats earlier messages, and does not classify messages.

    Args:
        runtime: the open root.
        contracts: the loader of the root's contracts.
        own: tools that the embedding program adds.
        able: capabilities of the agent's model.

    Raises:
        UnknownToolError: the configuration allows a tool that does not exist.
        ToolError: two tools have the same id.
        InvalidInputError: the configured id of the agent is blank or too long.
    """
    settings = runtime.settings
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
    return Agent(runtime, shape, contracts, added, shares_sessions=True)


def mcp_server(ledger: LedgerClient, settings: Settings, name: str) -> McpServer:
    """Return a configured MCP server, which starts at its first use.

    Args:
        ledger: contains the pins of its tools.
        settings: settings of the root.
        name: the server, as ``[mcp.NAME]``.

    Raises:
        ConfigError: there is no such server.
    """
    from remit.agents.tools import McpServer, Pins

    def permitted() -> list[str]:
        return Registry.from_ledger(ledger).permitted_tools()

    return McpServer.configured(name, settings.mcp, Pins(ledger, permitted))


def tools_of(
    tools: Iterable[Tool | Callable[..., Any] | str],
    mcp: Iterable[str],
    approve: Iterable[str],
    server: Callable[[str], McpServer],
) -> tuple[list[Tool], tuple[str, ...], tuple[str, ...]]:
    """Return the tools that an agent brings by value, the ids of all tools, and the ids to approve.

    A named MCP server is started to list its tools. Functions become tools by :func:`remit.tool`.
    The order is that of ``tools``, followed by the servers' tools.

    Args:
        tools: tool values, functions and ids. Ids are not looked up here.
        mcp: names of MCP servers, whose allowed tools are added.
        approve: ids that must each be among the tools.
        server: returns the MCP server of a name.

    Raises:
        ConfigError: there is no such MCP server.
        InvalidInputError: ``tools``, ``mcp`` or ``approve`` is a single text or tool or cannot be
            iterated, or an entry of ``mcp`` or ``approve`` is no text that can be recorded.
        ToolError: two tools have the same id, an item cannot be a tool, or an MCP server does not
            answer.
        UnknownToolError: an id in ``approve`` is not among the tools.
        LedgerError: the pins of a server's tools cannot be read or written.
    """
    for name, given in (("tools", tools), ("mcp", mcp), ("approve", approve)):
        if isinstance(given, (str, Tool)) or not isinstance(given, Iterable):
            raise InvalidInputError(
                f"{name} takes a list, and was given {given!r}.",
                next_step=f"Write {name}=[…].",
            )
    # An iterator would be empty when it is read again.
    mcp, approve = (tuple(each) if isinstance(each, Iterator) else each for each in (mcp, approve))
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
        offered = server(name).tools()
        own += offered
        ids += [tool.tool_id for tool in offered]
    if unknown := sorted(set(approve) - set(ids)):
        raise UnknownToolError(
            f"{unknown[0]!r} is to be approved, but is none of the agent's tools.",
            next_step=f"Its tools are {', '.join(ids) or 'none'}.",
        )
    return own, _unique(ids), tuple(approve)


def _unique(ids: list[str]) -> tuple[str, ...]:
    """Return the ids as a tuple.

    Raises:
        ToolError: an id occurs twice, so that an approval could mean either tool.
    """
    for tool_id in ids:
        if ids.count(tool_id) > 1:
            raise ToolError(f"Two tools have the id {tool_id!r}.", next_step="Rename one of them.")
    return tuple(ids)
