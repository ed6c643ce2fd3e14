"""Tools of installed distributions: entry points of the group ``remit.tools``.

An entry point's name is the tool's id. A distribution is imported only when an agent names one of
its ids; otherwise installing a package would run its code.
"""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points

from remit.agents.tools.decorator import tool
from remit.agents.tools.definition import Tool, ToolError

TOOL_GROUP = "remit.tools"


def load_tool(tool_id: str) -> Tool | None:
    """Import and return the installed tool with an id; None if no distribution offers it.

    Runs the distribution's code. A plain function becomes a tool with the id.

    Args:
        tool_id: the id, which is the entry point's name.

    Raises:
        ToolError: two distributions offer the id, the import fails, or the object is not a tool
            with that id.
    """
    found = list(entry_points(group=TOOL_GROUP, name=tool_id))
    if not found:
        return None
    if len({entry.value for entry in found}) > 1:
        raise ToolError(
            f"Several installed distributions offer a tool {tool_id!r}: "
            f"{', '.join(sorted(_distribution(entry) for entry in found))}.",
            next_step="Uninstall all but one of them.",
        )
    return _load(found[0], tool_id)


def offered_ids() -> set[str]:
    """Return the ids of the tools that installed distributions offer, without importing them."""
    return {entry.name for entry in entry_points(group=TOOL_GROUP)}


def _load(entry: EntryPoint, tool_id: str) -> Tool:
    name = f"The tool {tool_id!r} of {_distribution(entry)} ({entry.value})"
    try:
        found = entry.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ToolError(
            f"{name} cannot be imported: {type(error).__name__}: {error}.",
            next_step="Fix or uninstall that distribution, or take the tool off the list.",
        ) from error
    if isinstance(found, Tool):
        if found.tool_id != tool_id:
            raise ToolError(
                f"{name} has the id {found.tool_id!r}.",
                next_step="Give the entry point and the tool the same name.",
            )
        return found
    if not inspect.isfunction(found):
        raise ToolError(
            f"{name} is a {type(found).__name__}, neither a Tool nor a function.",
            next_step="Point the entry point at a function, or at a result of @remit.tool.",
        )
    return tool(tool_id=tool_id)(found)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"
