"""Tools in the form that MCP clients see, made from methods."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from mcp.types import Tool as Definition, ToolAnnotations
from pydantic import Field

from remit.agents.tools import Tool, ToolError, tool
from remit.kernel.errors import NotFoundError, RemitError
from remit.kernel.loops import call_in_thread
from remit.kernel.settings import McpEndpointSettings, Settings
from remit.runtime.operations import all_operations
from remit.server.mcp.callers import Caller

Name = Annotated[str, Field(min_length=1, pattern=r"^[^\u0000-\u001f\u007f-\u009f]+$")]
"""A name that callers choose: no line breaks, no other control characters."""

SessionId = Annotated[str, Field(pattern="^SES-[A-Za-z0-9_.-]+$", examples=["SES-7K2M4QX9"])]

_log = logging.getLogger("remit.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of the MCP server.

    Attributes:
        tool: id, description, schema of the arguments, and function.
        title: a title for people.
        needs: permissions (:data:`remit.gateway.auth.PERMISSIONS`) joined with " or ", any one of
            which is enough.
        output_schema: JSON Schema of the result.
        writes: whether the tool adds to the record; no tool changes or removes anything.
        calls_model: whether the tool calls a model.
    """

    tool: Tool
    title: str
    needs: str
    output_schema: Mapping[str, Any]
    writes: bool = False
    calls_model: bool = False

    def allows(self, caller: Caller) -> bool:
        """Return True if ``caller`` has one of the permissions in ``needs``.

        Args:
            caller: the caller.
        """
        return any(map(caller.identity.may, self.needs.split(" or ")))

    def definition(self) -> Definition:
        """Return the tool in the form of ``tools/list``.

        Its hints: read-only and idempotent unless ``writes``, open-world if ``calls_model``, never
        destructive.
        """
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
                open_world_hint=self.calls_model,
            ),
        )

    def contained(self) -> McpTool:
        """Return a copy whose function raises only errors that a client may see."""
        return replace(self, tool=replace(self.tool, function=_contained(self.tool)))


def rights_of(name: str) -> dict[str, Any]:
    """Return ``needs`` and ``writes`` of the operation that names a tool.

    Args:
        name: id of the tool.

    Raises:
        NotFoundError: no operation names the tool.
    """
    for kind in all_operations():
        if name in kind.tools:
            return {"needs": kind.needs, "writes": kind.changes}
    raise NotFoundError(f"No operation names the tool {name!r}.")


def made_tool(
    method: Callable[..., Any], title: str, settings: Settings, *, returns: Mapping[str, Any],
    **marks: Any,
) -> McpTool:  # fmt: skip
    """Return a method as a tool.

    The tool's id is the method's name, its description the docstring's first paragraph, its
    arguments the parameters. An argument whose default is ``""`` or ``None`` may be left out. Time
    limits, size limits and the longest text come from the settings.

    Args:
        method: the method.
        title: name for people.
        settings: settings of the root.
        returns: JSON Schema of the result.
        marks: ``needs``, ``writes`` and ``calls_model`` of :class:`McpTool`; by default those of
            the operation that names the tool.
    """
    own, marks = settings.mcp_server, marks or rights_of(method.__name__)
    made = tool(
        on_unknown="ask" if marks["writes"] else "retry",
        timeout_s=own.route_timeout_s if marks.get("calls_model") else own.timeout_s,
        max_output_bytes=own.max_output_bytes,
    )(method)
    return McpTool(tool=replace(bounded(made, own), prepare=None), title=title,
                   output_schema=returns, **marks)  # fmt: skip


def object_schema(properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON Schema of an object whose properties are required except ``optional``.

    Args:
        properties: schema of each property.
        optional: names of properties that may be missing.
    """
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def bounded(tool: Tool, limits: McpEndpointSettings) -> Tool:
    """Return a tool whose schema limits every text, and has no defaults that mean "left out".

    Args:
        tool: the tool, which stays unchanged; texts with a limit or a list of values keep these.
        limits: settings of the MCP server.
    """
    properties = {}
    for name, value in tool.input_schema["properties"].items():
        shown = {key: item for key, item in value.items() if (key, item) not in _LEFT_OUT}
        if shown["type"] == "string" and not {"maxLength", "enum"} & shown.keys():
            shown["maxLength"] = limits.max_text_chars
        properties[name] = shown
    schema = {"required": [], **tool.input_schema, "properties": properties}
    return replace(tool, input_schema=schema)


_LEFT_OUT = (("default", ""), ("default", None))


def _contained(tool: Tool) -> Callable[..., Any]:
    function = tool.function

    async def contained(**arguments: Any) -> Any:
        try:
            if inspect.iscoroutinefunction(function):
                return await function(**arguments)
            call = functools.partial(function, **arguments)
            return await call_in_thread(f"remit-mcp-{tool.tool_id}", call)
        except RemitError:
            raise
        except Exception as error:  # noqa: BLE001 - its text may hold anything: not shown
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
            _log.error("the tool %s failed: %s at %s", tool.tool_id, type(error).__name__, where)
            raise ToolError(
                f"Remit failed internally in {tool.tool_id}.",
                next_step="Try again; if the call fails again, the operator finds the cause in the "
                "server's log.",
            ) from None

    return contained
