"""Tools of agents, made of operations: for ADMIN, and for MCP clients."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.message_text import count
from remit.operations.operation import Feed, Field, Operation
from remit.operations.ports import Caller, RootPort
from remit.operations.requests import argument_type
from remit.operations.text import Table, shown

if TYPE_CHECKING:
    from remit.agents import Redactor
    from remit.agents.tools import Tool
    from remit.kernel.settings import ToolSettings

_MAX_CUT = 10  # places of cuts that an output names


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of an operation's tool, for the functions of an :class:`AgentTool`.

    Attributes:
        root: the open root.
        given: the checked arguments, defaults included.
        redactor: hides secrets.
        settings: settings of tools.
    """

    root: RootPort
    given: Mapping[str, Any]
    redactor: Redactor
    settings: ToolSettings


def _same(call: ToolCall) -> dict[str, Any]:
    return dict(call.given)


def _unchanged(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool of agents as an operation declares it; :func:`make_tools` makes the tool.

    Attributes:
        name: id of the tool.
        label: a plain word for the tool, which a small model chooses more reliably than an id.
            ADMIN gets only tools with a label.
        title: a title for people. MCP clients get only tools with a title.
        returns: for MCP clients, the schema of each member of the output.
        about: description for models.
        examples: phrases of a user, each with the arguments that it means, if any.
        arguments: fields of the tool, by name. In a request, a name that begins with ``max_``
            bounds the number of items of a list.
        request: returns the values of the operation's fields; by default the arguments.
        shape: returns the output from the operation's result, whose list is complete; by default
            the result.
        describe: returns an output as sentences, for models that cannot read data; by default the
            lines of the command.
        note: added to an output that was cut to fit.
        has_status: True if an output begins with ``"status": "ok"``.
    """

    name: str
    about: str
    label: str = ""
    title: str = ""
    returns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    examples: tuple[str | tuple[str, Mapping[str, Any]], ...] = ()
    arguments: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    request: Callable[[ToolCall], dict[str, Any]] = _same
    shape: Callable[[ToolCall, dict[str, Any]], dict[str, Any]] = _unchanged
    describe: Callable[[dict[str, Any]], str] | None = None
    note: str = "Cut to fit. Ask for fewer items."
    has_status: bool = True


def argument(help: str, default: Any = None, **traits: Any) -> Field:
    """Return a field of a tool; by default an optional text.

    Args:
        help: description for models.
        default: value of an omitted argument.
        traits: further attributes of :class:`Field`.
    """
    return Field(help=help, default=default, **traits)


def list_schema(member: str) -> dict[str, Any]:
    """Return the schemas of a list's members: ``status``, ``count``, and the items, any objects.

    Args:
        member: name of the member that has the items.
    """
    return {"status": {"const": "ok"}, "count": {"type": "integer"},
            member: {"type": "array", "items": {"type": "object"}}}  # fmt: skip


def session_argument(help: str) -> Field:
    """Return the optional field of a tool that names a session, ``SES-…``; ``None`` if omitted.

    Args:
        help: description for models.
    """
    return argument(help, pattern="^SES-[A-Za-z0-9_.-]+$", examples=("SES-7K2M4QX9",))


def make_tools(
    kinds: Iterable[Operation],
    root: RootPort,
    caller: Callable[[], Caller],
    settings: ToolSettings,
    redactor: Redactor,
) -> Iterator[tuple[AgentTool, Tool]]:
    """Yield the tools of operations as declared and as made. Secrets are hidden, erased content is
    marked.

    The function of a tool raises ToolError if the operation raises InvalidInputError or
    NotFoundError; other errors are raised unchanged. An output that is cut names the places in
    ``cut``. A list that was bounded has ``more`` if further items exist.

    Args:
        kinds: the operations.
        root: the open root.
        caller: returns the caller of a tool, whose permission is not checked.
        settings: settings of tools; an output has at most half of ``max_output_bytes``.
        redactor: hides secrets in outputs.
    """

    def run(kind: Operation, tool: AgentTool, **given: Any) -> dict[str, Any]:
        defaults = {name: item.default for name, item in tool.arguments.items()}
        call = ToolCall(root, {**defaults, **given}, redactor, settings)
        return _output(kind, tool, call, caller())

    one: Any
    for one in kinds:
        for tool in one.agent_tools:
            function = functools.partial(run, one, tool)
            yield tool, dataclasses.replace(_form(one, tool.name), function=function)


@functools.cache
def _form(kind: Any, name: str) -> Tool:
    """Return a tool without its function: description, schema, checks and examples."""
    from remit.agents.tools import tool

    [stated] = (one for one in kind.agent_tools if one.name == name)

    def form(**given: Any) -> dict[str, Any]:
        raise NotImplementedError

    types = {name: argument_type(item) for name, item in stated.arguments.items()}
    form.__annotations__ = types
    form.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=(
            inspect.Parameter.empty if item.is_required else item.default
        ))
        for name, item in stated.arguments.items()
    ])  # fmt: skip
    helps = [f"    {name}: {item.help}" for name, item in stated.arguments.items()]
    form.__doc__ = "\n".join([stated.about, "", "Args:", *helps])
    return tool(
        tool_id=stated.name, label=stated.label, on_unknown="retry",
        examples=[(one, {}) if isinstance(one, str) else one for one in stated.examples],
        describe=functools.partial(_described, kind, stated),
    )(form)  # fmt: skip


def _output(kind: Operation, tool: AgentTool, call: ToolCall, caller: Caller) -> dict[str, Any]:
    """Return the result of an operation as a model reads it: redacted, and cut to fit.

    Raises:
        ToolError: the operation refuses the request, or finds nothing.
    """
    from remit.agents import cut_to_fit, plain_value
    from remit.agents.tools import ToolError

    try:
        values = tool.request(call)
        most = next((values.pop(name) for name in [*values] if name.startswith("max_")), None)
        found = kind.value(call.root, caller, **values)
        if isinstance(found, Feed):
            wanted = None if most is None else most + 1
            rows = [item for _, item in islice(found.read(None, wanted), wanted)]
            more = {"more": True} if most is not None and len(rows) > most else {}
            rows = rows[:most]
            found = {
                **found.rest,
                "count": len(rows),
                **more,
                kind.command_member or kind.member: rows,
            }
        status = {"status": "ok"} if tool.has_status else {}
        output = plain_value({**status, **tool.shape(call, found)})
    except (InvalidInputError, NotFoundError) as error:
        raise ToolError(error.message, next_step=error.next_step) from error
    fitted = cut_to_fit(call.redactor.value(output), call.settings.max_output_bytes // 2)
    if not fitted.cut:
        return dict(fitted.value)
    note = " ".join(filter(None, (output.get("note"), tool.note)))
    return {**fitted.value, "cut": list(fitted.cut[:_MAX_CUT]), "note": note}


def _described(kind: Operation, tool: AgentTool, output: dict[str, Any]) -> str:
    """Return an output as sentences; rows that were cut away are left out."""
    read = {
        name: [row for row in value if isinstance(row, dict)]
        if isinstance(value, list) and any(isinstance(row, dict) for row in value) else value
        for name, value in output.items()
    }  # fmt: skip
    if tool.describe is not None:
        return tool.describe(read)
    member = kind.command_member or kind.member
    if not member:
        lines = kind.lines_of(read)
        return "\n".join(line for line in lines if not isinstance(line, Table))
    cells = [one[1] if isinstance(one, tuple) else (lambda row, name=one: row[name])
             for one in kind.columns]  # fmt: skip
    more = " and more" if read.get("more") else ""
    heads = ", ".join(one if isinstance(one, str) else one[0] for one in kind.columns)
    rows = ["  ".join(shown(cell(row)) for cell in cells) for row in read[member]]
    return "\n".join([f"{count(len(rows), member.rstrip('s'))}{more}, by {heads}:", *rows])
