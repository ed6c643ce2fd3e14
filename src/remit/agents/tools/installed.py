"""Tools of installed distributions: entry points of the group ``remit.tools``.

An entry point's name is the tool's id. One is imported only when an agent names that id:
importing whatever happens to be installed is how somebody else's code gets in.
"""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points

from remit.agents.tools.decorator import tool
from remit.agents.tools.definition import Tool, ToolError

TOOL_GROUP = "remit.tools"


def installed_tool(tool_id: str) -> Tool | None:
    """The tool that an installed distribution offers under this id; ``None`` when none does.

    Its code is imported here, for the first time.

    Raises:
        ToolError: two distributions offer it, it cannot be imported, or it is not a tool of
            that id.
    """
    found = list(entry_points(group=TOOL_GROUP, name=tool_id))
    if not found:
        return None
    if len({entry.value for entry in found}) > 1:
        raise ToolError(
            f"Several installed distributions offer a tool {tool_id!r}: "
            f"{', '.join(sorted(_whose(entry) for entry in found))}.",
            next_step="Uninstall all but one of them.",
        )
    return _loaded(found[0], tool_id)


def installed_ids() -> set[str]:
    """The ids of the tools that installed distributions offer."""
    return {entry.name for entry in entry_points(group=TOOL_GROUP)}


def _loaded(entry: EntryPoint, tool_id: str) -> Tool:
    where = f"The tool {tool_id!r} of {_whose(entry)} ({entry.value})"
    try:
        found = entry.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ToolError(
            f"{where} cannot be imported: {type(error).__name__}: {error}.",
            next_step="Fix or uninstall that distribution, or take the tool off the list.",
        ) from error
    if isinstance(found, Tool):
        if found.tool_id != tool_id:
            raise ToolError(
                f"{where} calls itself {found.tool_id!r}.",
                next_step="The entry point's name and the tool's id must be the same.",
            )
        return found
    if not inspect.isfunction(found):
        raise ToolError(
            f"{where} is a {type(found).__name__}, neither a Tool nor a function.",
            next_step="Point the entry point at a function, or at what @remit.tool made of it.",
        )
    return tool(tool_id=tool_id)(found)


def _whose(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"
