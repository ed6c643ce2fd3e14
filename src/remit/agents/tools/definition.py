"""The definition of a tool, and the context that a running tool may read."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from remit.agents.tools.canonical_arguments import canonical_arguments
from remit.agents.workorders import NOBODY, ApprovalNeeded, Effect, Principal
from remit.kernel.budget_values import nano_of
from remit.kernel.canonical import NotCanonicalError, canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.json_text import sound_text
from remit.kernel.schemas import first_problem, schema_problem

OnUnknown = Literal["retry", "ask", "fail"]
"""The policy for a call whose outcome is unknown."""


_TOOL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_id_of(name: str) -> str:
    """Return a name as a tool id: other characters than ``A-Za-z0-9_-`` become ``_``.

    The id is cut after 64 characters; an empty name stays empty.
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def is_tool_id(name: str) -> bool:
    """Return True if a name is a valid tool id: 1 to 64 letters, digits, ``_`` and ``-``."""
    return _TOOL_ID.fullmatch(name) is not None


class ToolError(RemitError):
    """A failure of a tool, or of its definition; a model is shown the message.

    A function of a tool raises this error to tell the model why it failed. The call is then
    recorded with the status ``error``. Making a tool that is not valid raises it, too.
    """


class ToolUnavailableError(ToolError):
    """A tool that is out of order, whatever its arguments; sessions may continue without the tool.

    A subclass of ToolError. A call that raises it counts as the tool's own fault.

    Attributes:
        is_outcome_unknown: True if the call was sent and may have taken effect; False by default.
            The raiser sets it on the error.
    """

    is_outcome_unknown = False


class ToolWaitingError(RemitError):
    """A tool cannot end before a person decides, because the turn of its sub-agent waits.

    Args:
        requests: the pending requests for approval.

    Attributes:
        requests: the same, as a tuple.
    """

    def __init__(self, requests: Sequence[ApprovalNeeded]) -> None:
        super().__init__("The tool waits for a person's decision.")
        self.requests = tuple(requests)


class UnknownToolError(RemitError):
    """No tool has the requested id.

    A model's wrong name is answered to the model; this error means a wrong configuration or
    program.
    """


class Successor(Protocol):
    """An agent to which a session can be handed over, as seen by the worker: only its id."""

    @property
    def agent_id(self) -> str:
        """The recorded id of the agent."""


class SubAgent(Protocol):
    """An agent that is used as a tool, as seen by the worker.

    Each call has a session of its own, found by the call's idempotency key. :attr:`is_repeatable`
    and :meth:`effects` tell what a repeated or interrupted call can have done, and :meth:`cancel`
    ends its work.
    """

    @property
    def is_repeatable(self) -> bool:
        """True if all tools of the agent may run twice without harm."""

    async def cancel(self, idempotency_key: str) -> None:
        """End the unfinished work of one call, which will not be continued.

        The end is recorded in the sub-agent's session. Does nothing if the call has no unfinished
        work.

        Args:
            idempotency_key: key of the tool call.
        """

    def effects(self, idempotency_key: str) -> Sequence[Effect]:
        """Return the effects of the agent's tools in a call, its sub-agents' included.

        Read from the ledger; empty if the call began no session.

        Args:
            idempotency_key: key of the tool call.
        """


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that agents may use. Calling the tool calls the function.

    Immutable. A lone surrogate in the description is replaced. On a class, a tool whose function's
    first parameter is ``self`` is bound to the object like a method.

    Attributes:
        tool_id: 1 to 64 letters, digits, ``_`` and ``-``.
        description: for the model: what the tool does and when to use it.
        input_schema: JSON Schema of the arguments, an object.
        function: called with the arguments by name; may be ``async``. Returns a JSON value, or a
            pydantic model, dataclass, enum, date or time.
        examples: phrases of a user, each with the arguments that they mean, for models that cannot
            choose tools.
        describe: returns an output as a plain sentence, for models that cannot read data; None to
            show the data.
        label: a plain word for the tool, which a small model chooses more reliably than an id.
        understand: returns the arguments that a user's phrase certainly means, or None. Models that
            cannot choose tools are not asked about such a phrase.
        on_unknown: policy for a call that began and whose outcome is unknown, after a crash, a
            cancellation or a timeout. ``retry`` runs it again, because a repetition changes
            nothing; ``ask`` asks a person; ``fail`` ends an order that would repeat it.
        timeout_s: time limit of a call, seconds; None for the setting ``tools.timeout_s``.
        price_usd: price of a call in US dollars. It is charged to the order's budgets when the call
            begins; the call is refused if they cannot pay it.
        max_calls: maximum number of calls in a work order; None for no limit.
        max_output_bytes: maximum size of an output as JSON; None for ``tools.max_output_bytes``.
        prepare: checks and converts arguments for the function; raises :class:`ToolError` if they
            do not fit. If None, the schema is checked.
        refusal: awaited before a call is recorded as begun; returns why the call must not be made,
            or an empty text. None for no check.
        context: name of the parameter that takes the call's :class:`Context`; empty if none does.
        deps: required class of the context's ``deps``; None for any.
        stated: everything else that an MCP server states of the tool, as sent: the whole
            ``inputSchema``, title and annotations. Pinned (:class:`remit.agents.tools.Pins`), but
            not shown to models.
        handoff: the agent that answers the rest of the session after a call; see
            :meth:`remit.runtime.Agent.as_handoff`.
        sub_agent: the agent that answers in a session of its own, which a repeated call continues;
            see :meth:`remit.runtime.Agent.as_tool`.
        behind: the tools of that agent, which are given the turn's ``deps`` too.

    Raises:
        ToolError: the id, the description, the schema, the function or a limit is not valid.
        InvalidInputError: the price is not a valid amount.
    """

    tool_id: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    describe: Callable[[Any], str] | None = None
    label: str = ""
    _: KW_ONLY
    understand: Callable[[str], Mapping[str, Any] | None] | None = None
    on_unknown: OnUnknown = "ask"
    timeout_s: float | None = None
    price_usd: float = 0.0
    max_calls: int | None = None
    max_output_bytes: int | None = None
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    refusal: Callable[[], Awaitable[str]] | None = None
    context: str = ""
    deps: type | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)
    handoff: Successor | None = None
    sub_agent: SubAgent | None = None
    behind: tuple[Tool, ...] = ()

    def __post_init__(self) -> None:
        if not is_tool_id(self.tool_id):
            raise ToolError(
                f"{self.tool_id!r} is not a valid tool id.",
                next_step="Pass tool_id=… with at most 64 letters, digits, '_' and '-'.",
            )
        if not isinstance(self.description, str):
            raise ToolError(f"The description of the tool {self.tool_id} is not a text.")
        object.__setattr__(self, "description", sound_text(self.description))
        if not isinstance(self.input_schema, Mapping):
            raise ToolError(
                f"input_schema of {self.tool_id} is a {type(self.input_schema).__name__}, not a "
                "dict with a JSON Schema."
            )
        # Schemas of MCP servers are relayed unchanged. Agents get only tools checked earlier.
        if not self.stated and (problem := schema_problem(self.input_schema)):
            raise ToolError(f"input_schema of {self.tool_id} is {problem}.")
        if not self.stated:
            try:
                json.dumps(dict(self.input_schema), allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ToolError(
                    f"input_schema of {self.tool_id} is not JSON: {error}.",
                    next_step="Check the defaults and constants of its parameters.",
                ) from error
        if not callable(self.function):
            raise ToolError(f"The function of the tool {self.tool_id} is not callable.")
        for name, value, least in (
            ("max_calls", self.max_calls, 0),
            ("max_output_bytes", self.max_output_bytes, 1),
        ):
            if value is not None and (type(value) is not int or value < least):
                raise ToolError(
                    f"{name} of {self.tool_id} is {value!r}, not a whole number from {least} up."
                )
        bound = self.timeout_s
        if bound is not None and not (type(bound) in (int, float) and 0 < bound < math.inf):
            raise ToolError(
                f"timeout_s of {self.tool_id} is {bound!r}, not a number above 0.",
                next_step="Omit it to use the setting tools.timeout_s.",
            )
        nano_of(self.price_usd)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function as written, without checks, limits or records."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """Return the tool bound to an object, if its function's first parameter is ``self``.

        Otherwise, and for lookup on a class, the tool itself is returned.
        """
        if (
            instance is None
            or next(iter(inspect.signature(self.function).parameters), "") != "self"
        ):
            return self
        return replace(self, function=functools.partial(self.function, instance))

    def prepared(self, arguments: Any) -> Mapping[str, Any]:
        """Return arguments ready for the function: checked, and converted by ``prepare``.

        Without ``prepare``, the schema is checked and the arguments are returned unchanged.

        Args:
            arguments: JSON values by name.

        Raises:
            ToolError: the arguments are not an object, do not fit, or are nested too deep; the
                message names the place. Other errors that ``prepare`` raises are let through.
        """
        if not isinstance(arguments, Mapping):
            raise ToolError(f"The arguments are a {type(arguments).__name__}, not an object.")
        try:
            if self.prepare is not None:
                return self.prepare(arguments)
            problem = first_problem(self.input_schema, dict(arguments))
        except RecursionError:
            problem = "The arguments are nested too deeply to be checked."
        if problem:
            raise ToolError(problem)
        return arguments

    @property
    def is_repeatable(self) -> bool:
        """True if the tool, or every tool of its sub-agent, may run twice without harm.

        ``on_unknown`` of a tool without a sub-agent decides.
        """
        if self.sub_agent is not None:
            return self.sub_agent.is_repeatable
        return self.on_unknown == "retry"

    def canonical(self, arguments: Any) -> Any:
        """Return arguments in canonical form: equal for calls with the same meaning.

        They are converted as for a call, and defaults are filled in. Arguments that do not fit are
        returned unchanged. No error is raised.

        Args:
            arguments: the arguments as the model gave them.
        """
        try:
            return canonical_arguments(
                self.prepared(arguments), arguments, self.function, self.input_schema
            )
        except (Exception, SystemExit):  # noqa: BLE001 - a type's own code can raise anything
            return arguments

    def lacks(self, deps: Any) -> str:
        """Return why ``deps`` does not fit the tool and the tools in ``behind``; empty if it fits.

        Tools in ``behind`` are checked first; the sentence names the tool.

        Args:
            deps: the turn's ``deps``; None if it has none.
        """
        if problem := next(filter(None, (tool.lacks(deps) for tool in self.behind)), ""):
            return problem
        if self.deps is None or isinstance(deps, self.deps):
            return ""
        given = "none" if deps is None else f"a {type(deps).__name__}"
        return (
            f"The tool {self.tool_id} needs deps of the type {self.deps.__name__}, but the turn "
            f"was given {given}."
        )

    def definition(self) -> dict[str, Any]:
        """Return ``name``, ``description`` and ``input_schema`` of the tool, for a provider."""
        return {
            "name": self.tool_id,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }

    @property
    def digest(self) -> str:
        """The SHA-256 of the definition that a model is shown, 64 lower-case hex digits.

        The hash covers the JCS encoding of ``{"description", "parameters", "tool_id"}``. A schema
        that JCS cannot express (with an integer beyond 2**53, for example) is hashed as Python's
        JSON text with sorted keys.
        """
        return definition_digest(self.tool_id, self.description, self.input_schema)


def definition_digest(tool_id: str, description: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a definition, the object of these three arguments.

    The hash covers the JCS encoding, or Python's JSON text with sorted keys for a schema that JCS
    cannot express.

    Args:
        tool_id: the tool's id.
        description: its description.
        parameters: JSON Schema of its arguments.

    Returns:
        64 hex digits; the order of keys in ``parameters`` does not matter.
    """
    definition = {"description": description, "parameters": dict(parameters), "tool_id": tool_id}
    return json_digest(definition)


def json_digest(value: Any) -> str:
    """Return the SHA-256 of the JCS encoding of a JSON value, 64 lower-case hex digits.

    A value that JCS cannot express, for example with an integer beyond 2**53, is hashed as Python's
    JSON text with sorted keys, without spaces.

    Args:
        value: any JSON value; another raises TypeError.
    """
    try:
        return sha256_hex(canonical_json(value))
    except NotCanonicalError:
        return sha256_hex(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


_Deps = TypeVar("_Deps")


@dataclass(frozen=True, slots=True)
class Context(Generic[_Deps]):
    """The context of one call, for a tool with a parameter of this type.

    ``Context[Shop]`` also requires that the turn's ``deps`` is a ``Shop``. Immutable.
    :func:`current_call` returns it inside a tool that does not take it as a parameter.

    Attributes:
        tool_id: the tool.
        idempotency_key: the same for every attempt of this call, and different for every other
            call. A service that receives it can tell a repetition from a second request.
        work_order_id: the calling work order.
        session_id: the order's session.
        agent_id: the order's agent.
        principal: the user, key and team on whose behalf the session works.
        deps: the turn's ``deps``; not recorded.
        progress: takes the progress, the total (None if unknown) and a short text; the turn's
            listeners receive them as ``ToolProgress``. May be None.
    """

    tool_id: str
    idempotency_key: str
    work_order_id: str
    session_id: str
    agent_id: str = ""
    principal: Principal = NOBODY
    deps: _Deps = None  # type: ignore[assignment]
    progress: Callable[[float, float | None, str], None] | None = None

    @property
    def user(self) -> str:
        """The user of the session; empty if none was named."""
        return self.principal.user_id


given_deps: ContextVar[Any] = ContextVar("remit_deps", default=None)
"""The ``deps`` of the turn for which the code runs."""

active_call: ContextVar[Context[Any] | None] = ContextVar("remit_tool_call", default=None)
"""The context of the running call, set by the dispatcher."""


def current_call() -> Context[Any] | None:
    """Return the context of the tool call that runs in this task or thread; None outside a call."""
    return active_call.get()


def refuse_inner_turn(session_id: str) -> None:
    """Raise InvalidInputError if the running tool call belongs to the session of a wanted turn.

    Does nothing outside of a tool call, and in a call of another session.

    Args:
        session_id: the session of the turn.
    """
    call = current_call()
    if call is not None and call.session_id == session_id:
        raise InvalidInputError(
            f"The tool {call.tool_id} may not start a turn in the session that it serves.",
            next_step="Return the result from the tool, or use a session of its own.",
        )


@contextmanager
def giving(tools: Iterable[Tool], deps: Any) -> Iterator[None]:
    """Give ``deps`` to tools during the block, by the context variable ``given_deps``.

    Code of other tasks does not see the value. The earlier value is restored at the end.

    Args:
        tools: the tools whose type of ``deps`` is checked.
        deps: the value.

    Raises:
        InvalidInputError: one of the tools takes ``deps`` of another type.
    """
    for tool in tools:
        if problem := tool.lacks(deps):
            raise InvalidInputError(problem, next_step="Pass deps=… to the turn.")
    token = given_deps.set(deps)
    try:
        yield
    finally:
        given_deps.reset(token)
