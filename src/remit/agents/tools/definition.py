"""What a tool is, and what a running one may ask about its own call."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from remit.agents.tools.canonical import canonical_arguments
from remit.agents.workorders import NOBODY, ApprovalNeeded, Effect, Principal
from remit.kernel.budget import nano_of
from remit.kernel.canonical import NotCanonicalError, canonical_json, sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.json_text import sound_text
from remit.kernel.schemas import first_problem, schema_problem

OnUnknown = Literal["retry", "ask", "fail"]
"""What becomes of a call whose outcome is unknown."""


_TOOL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_id_of(name: str) -> str:
    """A name as a tool's id, with all that an id cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def is_tool_id(name: str) -> bool:
    """Whether a tool could have this id: up to 64 letters, digits, ``_`` and ``-``."""
    return _TOOL_ID.fullmatch(name) is not None


class ToolError(RemitError):
    """A tool cannot do what was asked, or cannot be made; the message goes to the model."""


class ToolUnavailableError(ToolError):
    """A tool is out of order, whatever it was asked; where it stays so, sessions go on without."""


class OutcomeUnknownError(ToolUnavailableError):
    """A tool was called and does not know whether the call took effect."""


class ToolWaitingError(RemitError):
    """A tool cannot end before a person decides: a sub-agent whose turn waits.

    Attributes:
        requests: what is to be decided.
    """

    def __init__(self, requests: Sequence[ApprovalNeeded]) -> None:
        super().__init__("It waits for a person.")
        self.requests = tuple(requests)


class UnknownToolError(RemitError):
    """No tool has that id."""


class Successor(Protocol):
    """What the worker has to know of an agent to whom a session can be handed over."""

    @property
    def agent_id(self) -> str:
        """Its name on the record."""
        ...


class SubAgent(Protocol):
    """What the worker has to know of an agent that is a tool."""

    @property
    def is_repeatable(self) -> bool:
        """True if all tools of the agent may run twice without harm."""
        ...

    async def cancel(self, idempotency_key: str) -> None:
        """End what a call of it began and will not be continued."""
        ...

    def effects(self, idempotency_key: str) -> Sequence[Effect]:
        """Return what the tools of the agent did in one call, those of its own agents included."""
        ...


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable that agents may use. Called itself, it is its function.

    Attributes:
        tool_id: letters, digits, ``_`` and ``-``.
        description: for the model: what it does and when to use it.
        input_schema: JSON Schema of its arguments, an object.
        function: called with the arguments by name; may be ``async``; returns a JSON value, or
            what has one form as JSON: pydantic models, dataclasses, enums, dates and times.
        examples: phrases of a user that call for it, with the arguments they mean: for models
            that cannot choose tools by themselves.
        label: one plain word for it, which a small model picks more surely than an id.
        describe: says an output in one plain sentence, for models that cannot read data.
        understand: returns the arguments that a user's phrase surely means, or ``None``: for models
            that cannot choose tools by themselves, which are not asked about such a phrase.
        on_unknown: what becomes of a call that began and whose outcome is unknown, after a crash,
            a cancellation or ``timeout_s``: ``retry`` runs it again, because doing it twice
            changes nothing; ``ask`` leaves it to a person; ``fail`` ends an order that repeats it.
        timeout_s: longest run, seconds; the setting ``tools.timeout_s`` when left out.
        price_usd: what a call costs beside models, in US dollars: charged to the order's budgets
            as it begins, and refused where they cannot pay it.
        max_calls: most calls in one work order.
        max_output_bytes: longest output as JSON; ``tools.max_output_bytes`` when left out.
        prepare: checks arguments and turns them into what the function takes; raises
            :class:`ToolError` if it cannot. Left out, they are checked against the schema and
            passed as they are.
        refusal: asked before each call, before it is on record as begun: why it must not be
            made now; empty when it may.
        context: the parameter that takes the call's :class:`Context`; empty: none does.
        deps: what the context's ``deps`` must be an instance of; anything when left out.
        stated: what an MCP server states of it beside its name and description, as it was sent:
            its whole ``inputSchema``, title, annotations and the like. It is pinned
            (:class:`remit.agents.tools.Pins`), and no model is shown it.
        handoff: who answers the rest of the session once it was called; see
            :meth:`remit.runtime.Agent.as_handoff`.
        sub_agent: the agent that answers, in a session of its own that the same call finds again;
            see :meth:`remit.runtime.Agent.as_tool`.
        behind: tools of the agent behind it, which are given the turn's ``deps`` too.
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
                f"{self.tool_id!r} cannot be a tool's id.",
                next_step="Give tool_id=…: up to 64 letters, digits, '_' and '-'.",
            )
        if not isinstance(self.description, str):
            raise ToolError(f"The description of {self.tool_id} is not a text.")
        object.__setattr__(self, "description", sound_text(self.description))
        if not isinstance(self.input_schema, Mapping):
            raise ToolError(
                f"input_schema of {self.tool_id} is a {type(self.input_schema).__name__}; it takes "
                "a JSON Schema as a dict."
            )
        # What an MCP server states is relayed as it is; whoever uses it for agents checks it first.
        if not self.stated and (problem := schema_problem(self.input_schema)):
            raise ToolError(f"input_schema of {self.tool_id} is {problem}.")
        if not self.stated:
            try:
                json.dumps(dict(self.input_schema), allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ToolError(
                    f"input_schema of {self.tool_id} is no JSON: {error}.",
                    next_step="Look at the defaults and constants of its parameters.",
                ) from error
        if not callable(self.function):
            raise ToolError(f"The function of {self.tool_id} cannot be called.")
        most = self.max_calls
        if most is not None and (type(most) is not int or most < 0):
            raise ToolError(f"max_calls of {self.tool_id} is {most!r}; it takes 0 or more.")
        longest = self.max_output_bytes
        if longest is not None and (type(longest) is not int or longest < 1):
            raise ToolError(
                f"max_output_bytes of {self.tool_id} is {longest!r}; it takes 1 or more."
            )
        bound = self.timeout_s
        if bound is not None and not (type(bound) in (int, float) and 0 < bound < math.inf):
            raise ToolError(
                f"timeout_s of {self.tool_id} is {bound!r}; it takes a number above 0.",
                next_step="Leave it out to have the setting tools.timeout_s.",
            )
        nano_of(self.price_usd)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it was written: no check, no limit, no record."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """The tool that a class made of one of its methods, bound to the object."""
        if (
            instance is None
            or next(iter(inspect.signature(self.function).parameters), "") != "self"
        ):
            return self
        return replace(self, function=functools.partial(self.function, instance))

    def prepared(self, arguments: Any) -> Mapping[str, Any]:
        """Return arguments as the function takes them.

        Args:
            arguments: by name, as JSON values.

        Raises:
            ToolError: they do not fit; the message says where.
        """
        if not isinstance(arguments, Mapping):
            raise ToolError(f"The arguments are a {type(arguments).__name__}, not an object.")
        try:
            if self.prepare is not None:
                return self.prepare(arguments)
            problem = first_problem(self.input_schema, dict(arguments))
        except RecursionError:
            problem = "The arguments cannot be checked: they are nested too deep."
        if problem:
            raise ToolError(problem)
        return arguments

    @property
    def is_repeatable(self) -> bool:
        """True if the tool may run twice without harm; of a sub-agent, if all its tools may."""
        if self.sub_agent is not None:
            return self.sub_agent.is_repeatable
        return self.on_unknown == "retry"

    def canonical(self, arguments: Any) -> Any:
        """Return arguments in one form: equal for calls that mean the same to the function.

        Arguments are converted as for a call and defaults are written out. Arguments that do not
        fit are returned as they are.
        """
        try:
            return canonical_arguments(
                self.prepared(arguments), arguments, self.function, self.input_schema
            )
        except Exception:  # noqa: BLE001 - a type of the tool's own can raise anything
            return arguments

    def lacks(self, deps: Any) -> str:
        """What is wrong with ``deps`` for it and those behind it; empty where nothing is."""
        if problem := next(filter(None, (tool.lacks(deps) for tool in self.behind)), ""):
            return problem
        if self.deps is None or isinstance(deps, self.deps):
            return ""
        given = "none" if deps is None else f"a {type(deps).__name__}"
        return (
            f"The tool {self.tool_id} takes deps of the type {self.deps.__name__}, and the turn "
            f"was given {given}."
        )

    def definition(self) -> dict[str, Any]:
        """What a provider is offered."""
        return {
            "name": self.tool_id,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }

    @property
    def digest(self) -> str:
        """SHA-256, 64 lower-case hex digits, of the definition that a model is shown.

        It is over the JCS encoding of ``{"description", "parameters", "tool_id"}``; a schema that
        JCS cannot carry (an integer beyond 2**53, say) is hashed as Python's JSON text instead,
        with sorted keys.
        """
        return definition_digest(self.tool_id, self.description, self.input_schema)


def definition_digest(tool_id: str, description: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a definition, see :attr:`Tool.digest`."""
    definition = {
        "description": description,
        "parameters": dict(parameters),
        "tool_id": tool_id,
    }
    try:
        return sha256_hex(canonical_json(definition))
    except NotCanonicalError:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        return sha256_hex(text.encode())


_Deps = TypeVar("_Deps")


@dataclass(frozen=True, slots=True)
class Context(Generic[_Deps]):
    """One call of one tool, as the tool may know it: annotate a parameter with it.

    ``Context[Shop]`` also says that ``deps`` is a ``Shop``, which a turn must be given then.

    Attributes:
        tool_id: the tool.
        idempotency_key: the same for every attempt of this call and for no other one: a
            service that is given it can distinguish a repetition from a second request.
        work_order_id: the order that calls.
        session_id: its session.
        agent_id: the agent whose order it is.
        principal: for whom the session works.
        deps: what the turn was given as ``deps=``; on no record.
        progress: takes how much is done, of how much where that is known, and a word about it;
            listeners of the turn get it as ``ToolProgress``.
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
        """The user whose session it is; empty where none was named."""
        return self.principal.user_id


given_deps: ContextVar[Any] = ContextVar("remit_deps", default=None)
"""What the turn was given that this code runs for."""

calling: ContextVar[Context[Any] | None] = ContextVar("remit_tool_call", default=None)
"""Set by the dispatcher in the context that a tool runs in."""


def current_call() -> Context[Any] | None:
    """The call that this code runs for; ``None`` outside one, or when its caller named none."""
    return calling.get()
