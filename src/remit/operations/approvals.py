"""Operations on requests for approval, and on pins of MCP servers' tools."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import ConflictError, NotFoundError
from remit.operations.operation import Answer, Feed, feed_of, field, verb
from remit.operations.orders import by
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note

if TYPE_CHECKING:
    from remit.agents.tools import PinnedTool

_log = logging.getLogger("remit.approvals")

_MAX_REASON = 2000


def _reason(text: str = "Reason (recorded permanently).") -> Any:
    return field(text, "", most=_MAX_REASON)


def _person(root: RootPort, caller: Caller) -> str:
    own = caller.identity
    return root.approvals.person_behind(own.key_id, own.user_id, own.name)


@verb(
    route="GET /approvals", summary="List approvals", form="ApprovalQuery", result="ApprovalPage",
    member="approvals", endpoint="approvals",
)  # fmt: skip
def list_approvals(
    root: RootPort, caller: Caller, *,
    state: Literal["pending", "granted", "denied", "void", "all"] = field(
        "State of the requests; `void` means that the order ended before a decision.", "pending"
    ),
) -> Feed:  # fmt: skip
    """Return tool calls that wait for a person, oldest first; others with `state`.

    A malformed request is left out, and a warning in the log names its entry.

    Returns:
        A list, page by page; requests that are not pending come newest first.

    Raises:
        InvalidInputError: the cursor is no entry id. This and all below are raised when the list is
            read.
        LedgerError: the ledger cannot be read.
    """
    from remit.agents import ApprovalError

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        order: Literal["asc", "desc"] = "asc" if state == "pending" else "desc"
        for entry in root.ledger.query(
            event_type="APPROVAL_REQUESTED", order=order, after=cursor, with_content=False
        ):
            try:
                found = root.approvals.get(entry.id)
            except ApprovalError:
                _log.warning("%s is malformed and not among the listed approvals", entry.id)
                continue
            if state in ("all", found.state):
                yield entry.id, found.to_dict()

    return Feed(read)


_REQUEST_ID: Any = field("Id of the request.", flag="")


def _request(root: RootPort, request_id: str) -> dict[str, Any]:
    """Return a request for approval.

    Raises:
        NotFoundError: no such request exists.
    """
    from remit.agents import ApprovalError

    try:
        return root.approvals.get(request_id).to_dict()
    except ApprovalError as error:
        raise NotFoundError(
            error.message, next_step="GET /api/approvals lists the waiting requests."
        ) from error


@verb(
    route="GET /approvals/{request_id}", summary="One approval", result="ApprovalShape",
    endpoint="approval",
)  # fmt: skip
def show_approval(
    root: RootPort, caller: Caller, *, request_id: str = _REQUEST_ID
) -> dict[str, Any]:
    """Return a request with its state and decision.

    Returns:
        The request with its tool, arguments, order, session, state and decisions.

    Raises:
        NotFoundError: no such request exists.
        LedgerError: the ledger cannot be read.
    """
    return _request(root, request_id)


@verb(
    route="POST /approvals/{request_id}", summary="Decide an approval", needs="approve",
    form="Decision", result="ApprovalShape", fails=(409,), endpoint="decide",
)  # fmt: skip
def decide_approval(
    root: RootPort, caller: Caller, *,
    grant: bool = field("True to let the tool run, false to deny it."),
    reason: str = _reason("Reason (recorded permanently); the model sees the reason of a denial."),
    arguments: dict[str, Any] | None = field(
        "Arguments to run the tool with instead of the requested ones, valid under the tool's "
        "schema.", None,
    ),
    until: str = field(
        "End of the approval if it is not used: a duration such as `2h`, or a time. By default "
        "`[approvals] valid_s` applies.", "", most=64,
    ),
    request_id: str = _REQUEST_ID,
) -> dict[str, Any]:  # fmt: skip
    """Grant or deny a request for good. The key that decides is recorded.

    The order continues when its session is resumed. A tool that needs several people stays
    pending until the last of them grants the same arguments. A key counts as the person who
    received its secret: a key that your key made or renewed over the network counts as you.

    Returns:
        The request after the decision; it is still pending if other people have to grant it too. A
        denial by one person is final, and ignores ``arguments`` and ``until``.

    Raises:
        NotFoundError: no such request exists.
        ApprovalError: the request is decided or void. For a grant also: the caller may not grant
            it, or already did; or its arguments were erased or changed by an earlier grant.
        InvalidInputError: ``until`` is not a time. For a grant also: ``until`` is past or too late,
            or the arguments do not fit the tool's schema.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.gateway.auth import expiry_of

    _request(root, request_id)
    root.approvals.decide(
        request_id, granted=grant, by=caller.name, reason=reason, arguments=arguments,
        until=expiry_of(until, root.ledger.wall_time) if until else None,
        person=_person(root, caller), subject_id=caller.subject_id,
    )  # fmt: skip
    return _request(root, request_id)


@verb(
    "mcp pins", "GET /pins", summary="List pinned tools", form="PinQuery", result="PinPage",
    command_member="pins", endpoint="listed",
    columns=(
        "state", "tool_id",
        ("definition", lambda one: one["pin"]["digest"][:16] if one["pin"] else "none"),
        ("since", lambda one: one["pin"] and f"{one['pin']['at'][:19]} UTC".replace("T", " ")),
        ("by", lambda one: one["pin"] and (one["pin"]["by"] or "first use")),
        ("from", lambda one: one["pin"] and one["pin"]["origin"]),
    ),
    nothing="No tool is pinned yet. Tools are pinned when an agent first uses their server.",
)  # fmt: skip
def list_pins(
    root: RootPort, caller: Caller, *,
    server: str = field("Name of a server; empty for all.", "", flag="", metavar="[SERVER]"),
) -> Any:  # fmt: skip
    """List the pinned tools of one MCP server, or of all, with their changes.

    Returns:
        A list for a command, and all pins in one object for a route: ``server``, ``tool_id``,
        ``state`` (``pinned`` or ``changed``), ``pin`` and ``change`` (each None if there is none)
        and ``diff`` of each tool.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read.
    """
    from remit.agents.tools import Pins

    found = [one.to_dict() for one in Pins(root.ledger).tools(server)]
    if not caller.is_local:
        return {"pins": found}
    return feed_of(found, lambda one: str(one["tool_id"]), lambda part: part)


@verb(
    route="POST /pins/{tool_id}", summary="Accept a changed tool", needs="approve",
    form="Acceptance", result="PinnedToolShape", fails=(409,), endpoint="accept",
)  # fmt: skip
def accept_pin(
    root: RootPort, caller: Caller, *,
    tool_id: str = field("Id of the tool."),
    digest: str = field(
        "SHA-256 of the changed definition, in hex, as in `change.digest`.",
        pattern="^[0-9a-f]{64}$",
    ),
) -> dict[str, Any]:  # fmt: skip
    """Accept a changed definition, so that the tool can be called. The key is recorded.

    Returns:
        The tool with its new pin. The ledger records it as TOOL_PINNED in the caller's name.

    Raises:
        NotFoundError: no such tool is pinned.
        ConflictError: no change to this definition waits, or the definition changed meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.agents.tools import Pins

    pins = Pins(root.ledger)
    found = _pinned(pins.tools(), tool_id)
    if found.change is None or found.change.digest != digest:
        raise ConflictError(
            f"No change of {tool_id} to this definition waits for acceptance.",
            next_step="GET /api/pins lists the waiting changes.",
        )
    pins.accept([found], by=caller.name)
    return _pinned(pins.tools(), tool_id).to_dict()


def _pinned(tools: list[PinnedTool], tool_id: str) -> PinnedTool:
    for tool in tools:
        if tool.tool_id == tool_id:
            return tool
    raise NotFoundError(f"No tool {tool_id!r} is pinned.")


_SERVER: Any = field("Name of the server.", flag="")


def _diffs(changed: list[PinnedTool]) -> Iterator[str]:
    for tool in changed:
        yield tool.tool_id
        yield from (f"  {line}" for line in tool.diff())


def _compare_tools_lines(changed: list[PinnedTool], server: str) -> Iterator[str]:
    """Yield the differences, and a note on the next command."""
    if not changed:
        yield f"The tools of {server} match their pins."
        return
    yield from _diffs(changed)
    yield Note(f"\nAccept the changes with `remit mcp accept {server} [TOOL]`.")


@verb("mcp diff", changes=True)
def compare_tools(root: RootPort, caller: Caller, *, server: str = _SERVER) -> Answer:
    """List the tools of a server that differ from their pins. Exit 1 if any do.

    The command starts the server as an agent would, and pins tools that are new.

    Returns:
        ``changed``, the tools with the pinned and the present definition.

    Raises:
        RemitError: the server is not configured, or does not start.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.agents.tools import McpServer, Pins
    from remit.packages import Registry

    own = Pins(root.ledger, Registry.from_ledger(root.ledger).permitted_tools)
    with McpServer.configured(server, root.settings.mcp, own) as running:
        refused = running.refused()
    changed = [tool for tool in own.tools(server) if tool.tool_id in refused]
    found = {"changed": [tool.to_dict() for tool in changed]}
    return Answer(found, _compare_tools_lines(changed, server), bool(changed))


@verb(
    "mcp accept", changes=True,
    lines=lambda found: [f"accepted {one['tool_id']}" for one in found["accepted"]],
)  # fmt: skip
def accept_tools(
    root: RootPort, caller: Caller, *,
    server: str = _SERVER,
    tool: str = field("Name of the tool.", "", flag="", metavar="[TOOL]"),
    by: str | None = by(),
    yes: bool = field("Do not ask for confirmation.", False),
) -> dict[str, Any]:  # fmt: skip
    """Show and accept changed tools of a server, or one changed TOOL.

    Returns:
        ``accepted``, the tools with their new pins, which the ledger records as TOOL_PINNED.

    Raises:
        ConflictError: no such tool of the server has a change that waits.
        Exception: the confirmation was declined; nothing is accepted.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.agents.tools import Pins

    own = Pins(root.ledger)
    changed = own.changed(server, tool)
    for line in _diffs(changed):
        root.note(line)
    caller.confirm("Accept these changes?")
    own.accept(changed, by=caller.name)
    return {"accepted": [found.to_dict() for found in changed]}
