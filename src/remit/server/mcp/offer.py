"""A tool as MCP clients see it."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp.types import Tool as Definition
from mcp.types import ToolAnnotations

from remit.agents.tools import Tool, ToolError
from remit.kernel.errors import RemitError
from remit.server.mcp.caller import Caller

__all__ = ["NAME_PATTERN", "Offer"]

NAME_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f]+$"
"""Of names that callers choose: no line breaks, no other control characters."""

_log = logging.getLogger("remit.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One tool that is offered.

    Attributes:
        tool: what runs: id, description for a model, schema of the arguments, function.
        title: for people.
        needs: permissions (:data:`remit.gateway.auth.PERMISSIONS`), any one of which is enough.
        output_schema: JSON Schema of the result.
        writes: whether it adds to the record; nothing that is offered changes or removes.
        outside: whether it asks what is not Remit, such as a model.
    """

    tool: Tool
    title: str
    needs: tuple[str, ...]
    output_schema: Mapping[str, Any]
    writes: bool = False
    outside: bool = False

    def allows(self, caller: Caller) -> bool:
        """Whether ``caller`` may use it."""
        return any(caller.may(permission) for permission in self.needs)

    def definition(self) -> Definition:
        """What ``tools/list`` tells of it."""
        return Definition(
            name=self.tool.tool_id,
            title=self.title,
            description=self.tool.description,
            input_schema=dict(self.tool.input_schema),
            output_schema=dict(self.output_schema),
            annotations=ToolAnnotations(
                title=self.title,
                read_only_hint=not self.writes,
                destructive_hint=False,
                idempotent_hint=not self.writes,
                open_world_hint=self.outside,
            ),
        )

    def contained(self) -> Offer:
        """The same, with a function that raises nothing but what may be told to a client."""
        return replace(self, tool=replace(self.tool, function=_contained(self.tool)))


def _contained(tool: Tool) -> Callable[..., Any]:
    function = tool.function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(**arguments: Any) -> Any:
            try:
                return await function(**arguments)
            except RemitError:
                raise
            except Exception as error:  # noqa: BLE001 - told below
                raise _unforeseen(tool, error) from None

        return asynchronous

    @functools.wraps(function)
    def plain(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except RemitError:
            raise
        except Exception as error:  # noqa: BLE001 - told below
            raise _unforeseen(tool, error) from None

    return plain


def _unforeseen(tool: Tool, error: Exception) -> ToolError:
    """What is told where nobody foresaw an error: its words may hold anything."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
    _log.error("the tool %s failed: %s at %s", tool.tool_id, type(error).__name__, where)
    return ToolError(
        f"Remit itself failed in {tool.tool_id}.",
        next_step="Try once more; if it fails again, its operator finds more in its log.",
    )
