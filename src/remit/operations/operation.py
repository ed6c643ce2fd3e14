"""The declaration of an operation: its fields, its attributes, and the forms of its output."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import islice
from pathlib import Path
from typing import (
    IO,
    Any,
    ClassVar,
    TypeVar,
    get_args,
    get_type_hints,
)

from remit.kernel.errors import InvalidInputError
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Table, facts

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a request, declared by :func:`field`; immutable. The class checks no value.

    Attributes:
        name: name of the field in JSON and in the operation.
        type: type of the value, such as ``str``, ``list[str]`` or ``int | None``.
        help: description for people.
        default: value of an omitted field; ``dataclasses.MISSING`` if the field is required.
        least: the smallest number, or the smallest number of characters.
        most: the largest number, or the largest number of characters.
        is_open: True if ``least`` and ``most`` themselves are refused.
        pattern: a regular expression that a part of the text must match.
        is_name: True for a printable text of 1 to 512 characters, without spaces at its ends.
        flag: names of the command's option, separated by spaces, if they are not derived from
            ``name``; empty for an argument.
        metavar: name of the value in the command's help.
        separator: ``,`` if one option holds the whole list; else the option is repeatable.
        read: function from the option's text to the value.
        flag_default: text of an omitted option that ``read`` converts.
        flag_help: description of the option, if it differs from ``help``.
        place: kind of a path: ``file``, ``folder``, or ``path`` for both; ``input`` or ``input
            folder`` if the file or folder must exist.
        is_hidden: True if the command's help omits the option.
        door: ``command`` or ``route`` if only that door offers the field; empty for all.
        examples: values that the schema of a tool shows.
        known: returns the values that the schema of a tool lists; others are not refused.
    """

    name: str = ""
    type: Any = str
    help: str = ""
    default: Any = MISSING
    least: float | None = None
    most: float | None = None
    is_open: bool = False
    pattern: str | None = None
    is_name: bool = False
    flag: str | None = None
    metavar: str | None = None
    separator: str = ""
    read: Callable[[str], Any] | None = None
    flag_default: str | None = None
    flag_help: str = ""
    place: str = "file"
    is_hidden: bool = False
    door: str = ""
    examples: tuple[Any, ...] = ()
    known: Callable[[], Iterable[str]] | None = None

    @property
    def is_required(self) -> bool:
        """True if the field has no default."""
        return self.default is MISSING

    @property
    def option(self) -> str:
        """The command's option, such as ``--time-zone``; the name of an argument in capitals."""
        if self.flag == "":
            return self.metavar or self.name.upper()
        return self.flag or f"--{self.name.replace('_', '-')}"

    @property
    def inner(self) -> Any:
        """The type without ``None``."""
        if type(None) not in get_args(self.type):
            return self.type
        return next(each for each in get_args(self.type) if each is not type(None))


def field(help: str, default: Any = MISSING, **traits: Any) -> Any:
    """Declare a field of an operation.

    Args:
        help: description for people.
        default: value of an omitted field; without a default, the field is required.
        traits: further attributes of :class:`Field`.
    """
    return Field(help=help, default=default, **traits)


def limit() -> Any:
    """Declare the option that bounds the number of shown items."""
    return field(
        "Largest number to show (default: 50; all with --json).", None, least=1, door="command"
    )


Column = str | tuple[str, Callable[[dict[str, Any]], Any]]
"""A column of a table: a member of the items, or a head and the function from an item to its value.
"""


@dataclass(frozen=True, slots=True)
class Feed:
    """A list that is read in order, as far as it is shown; see also :func:`feed_of`.

    Attributes:
        read: yields the cursor and the JSON object of each item after a cursor. The arguments are
            the cursor (None for the beginning) and the largest number of items (None for all).
        rest: further members of the JSON object.
        note: a message after the lines for people, or the function that returns it; empty for none.
        shown: returns an item with what only the lines for people show.
        lists: names of the lists of one page, if there are several; an item is then the name of
            its list and the JSON object.
        is_endless: True if the list waits for further items; its JSON has one item a line.
    """

    read: Callable[[str | None, int | None], Iterable[tuple[str, Any]]]
    rest: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str | Callable[[], str] = ""
    shown: Callable[[Any], Any] = lambda item: item
    lists: tuple[str, ...] = ()
    is_endless: bool = False


def feed_of(
    items: Sequence[_T],
    cursor_of: Callable[[_T], str],
    describe: Callable[[list[_T]], Iterable[dict[str, Any]]],
    is_shown: Callable[[_T], bool] = lambda item: True,
    **more: Any,
) -> Feed:
    """Return a list of known items. Reading it raises InvalidInputError if no item has the cursor.

    Args:
        items: all items, in order.
        cursor_of: returns a unique text of an item, from which the next page continues.
        describe: returns the JSON objects of the items of a page, one each; called for each page.
        is_shown: False for items that only mark the place of a cursor.
        more: ``rest`` and ``note`` of the :class:`Feed`.
    """

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        first = 0
        if cursor is not None:
            places = list(map(cursor_of, items))
            if cursor not in places:
                raise InvalidInputError(
                    "The cursor is unknown.", next_step="Request the first page without a cursor."
                )
            first = places.index(cursor) + 1
        part = list(islice(filter(is_shown, islice(items, first, None)), most))
        yield from zip(map(cursor_of, part), describe(part), strict=True)

    return Feed(read, **more)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result of a command with its lines for people, if these need more than the result.

    Attributes:
        value: the JSON object; or a :class:`Feed`, whose items can be read once.
        lines: the lines for people, which are computed only if they are printed; by default
            :meth:`Operation.lines`.
        has_failed: True if the command exits with 1.
    """

    value: Any
    lines: Iterable[str | Table] | None = None
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A result that a command prints or writes to a file.

    Attributes:
        content: the content, or the function that writes the content to an open file.
        out: the file; None for standard output.
        note: a message for people.
        has_failed: True if the command exits with 1.
    """

    content: str | bytes | Callable[[IO[bytes]], Any]
    out: Path | None = None
    note: str = ""
    has_failed: bool = False


class Operation:
    """The base of all verbs, which :func:`verb` derives. An instance is a request.

    The constructor takes the fields by name and fills in defaults. A missing or unknown field
    raises TypeError; values are checked before, by :func:`remit.operations.requests.checked`, a
    route or a tool. The docstring is the description on all doors. A class with a command, a route
    or tools of agents is added to :data:`DECLARED`.

    Attributes:
        given: names of the fields that the caller stated.
        command: words of the command, such as ``key list``; empty without a command.
        route: method and path below ``/api``; empty without a route.
        endpoint: first word of the route's ``operationId``; by default the command's last word.
        summary: title of the route.
        tag: group of the route in the OpenAPI document; by default the first part of its path.
        tools: names of the tools of MCP clients and of ADMIN that do the same; those in
            ``agent_tools`` are added.
        agent_tools: each :class:`remit.operations.AgentTool` that is made of the operation.
        needs: the needed permission of a caller over HTTP or MCP; of several joined with " or ",
            one.
        changes: whether the operation writes to the ledger; by default, True for a route that is
            not a GET.
        form: name of the request in the OpenAPI document.
        form_doc: description of the request there; by default that of the operation.
        result: name of the result's form in :mod:`remit.operations.results`.
        media_type: type of a result that is a text or bytes; empty for JSON.
        status: HTTP status of success.
        fails: HTTP statuses of failure in addition to those of every route.
        member: for a list, the member of the route's answer that contains the items.
        command_member: for a list, the member of the command's JSON; ``member`` if empty.
        repairs: whether the command works with the shipped settings if the installed ones were
            changed.
        instead_of_json: names of fields whose command cannot also have ``--json``.
        has_root: False if the command uses no root, and so has no ``--root``.
        columns: for a list, the columns of the command's table.
        nothing: for a list, the line that the command prints if there is no item.
        prints: the line that the command prints, with the members of the result in braces; by
            default a line for each member.
        then: a note that the command prints afterwards, with members of the result in braces, such
            as the next command.
        writes_with: names of fields; only a request that sets one of them writes to the ledger.
            Empty if ``changes`` says so for all requests.
    """

    command: ClassVar[str] = ""
    route: ClassVar[str] = ""
    endpoint: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    tag: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ()
    agent_tools: ClassVar[tuple[Any, ...]] = ()
    needs: ClassVar[str] = "read"
    changes: ClassVar[bool] = False
    form: ClassVar[str] = ""
    form_doc: ClassVar[str] = ""
    result: ClassVar[str] = ""
    media_type: ClassVar[str] = ""
    status: ClassVar[int] = 200
    fails: ClassVar[tuple[int, ...]] = ()
    member: ClassVar[str] = ""
    command_member: ClassVar[str] = ""
    repairs: ClassVar[bool] = False
    instead_of_json: ClassVar[tuple[str, ...]] = ()
    has_root: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = ()
    nothing: ClassVar[str] = ""
    prints: ClassVar[str] = ""
    then: ClassVar[str] = ""
    writes_with: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if own.get("route") and "changes" not in own:
            cls.changes = not cls.route.startswith("GET ")
        if "agent_tools" in own:
            cls.tools = (*own.get("tools", ()), *(tool.name for tool in cls.agent_tools))
        if {"command", "route", "agent_tools"} & own.keys():
            DECLARED.append(cls)

    def __init__(self, **values: Any) -> None:
        self.given = frozenset(values)
        for name, item in self._declared().items():
            value = values.pop(name, item.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            vars(self)[name] = list(value) if isinstance(value, list) else value
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    @classmethod
    def _declared(cls) -> dict[str, Field]:
        return {name: item for name, item in vars(cls).items() if isinstance(item, Field)}

    @classmethod
    def fields(cls, door: str) -> list[Field]:
        """Return the fields of the request on a door, with name and type, as declared in order.

        Args:
            door: ``command`` or ``route``.
        """
        types = get_type_hints(cls)
        return [
            dataclasses.replace(item, name=name, type=types[name])
            for name, item in cls._declared().items()
            if item.door in {"", door}
        ]

    def writes(self, root: RootPort) -> bool:
        """Return True if this request writes to the ledger.

        With ``writes_with``, a request writes if one of these fields differs from its default.

        Args:
            root: the open root, whose ledger is not used yet.
        """
        if not self.writes_with:
            return self.changes
        fields = self._declared()
        return any(getattr(self, name) != fields[name].default for name in self.writes_with)

    def run(self, root: RootPort, caller: Caller) -> Any:
        """Carry out the operation.

        Args:
            root: the open root.
            caller: the caller, whose permission ``needs`` has been checked.

        Returns:
            JSON data in the form ``result``, an :class:`Answer` with them, a :class:`Feed`, a
            :class:`Document`, a ledger entry; or with ``media_type`` a text, bytes, or a generator
            of the pieces of a text.

        Raises:
            RemitError: the operation is refused.
            NotImplementedError: the class is the base.
        """
        raise NotImplementedError

    def value(self, root: RootPort, caller: Caller) -> Any:
        """Carry out the operation, and return the result as :meth:`run`, without lines for people.

        Args:
            root: the open root.
            caller: the caller, whose permission ``needs`` has been checked.

        Raises:
            RemitError: the operation is refused.
        """
        found = self.run(root, caller)
        return found.value if isinstance(found, Answer) else found

    def has_failed(self, found: dict[str, Any]) -> bool:
        """Return True if the command exits with 1 after it prints the result; by default False.

        Args:
            found: the result.
        """
        return False

    def lines(self, found: dict[str, Any]) -> Iterator[str | Table]:
        """Yield the lines that the command prints for people; a :class:`Note` goes to stderr.

        By default these are ``prints`` with the members filled in, or else a line for each member,
        or else ``nothing``.

        Args:
            found: the result, a JSON object.
        """
        lines = [self.prints.format_map(found)] if self.prints else [*facts(found)]
        yield from lines or [self.nothing or "nothing"]

    def line(self, item: dict[str, Any]) -> str:
        """Return the line of an item of a list without columns, which must replace this method.

        Args:
            item: the item as the :class:`Feed` yields it.
        """
        raise NotImplementedError


_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_METHODS = ("lines", "line", "has_failed", "writes")
_SECTION = re.compile(r"\n\s*(?:Raises|Returns|Yields):\n")


def verb(
    command: str = "", route: str = "", *, doc: str = "", more: Mapping[str, Field] | None = None,
    **traits: Any,
) -> Callable[[_Verb], _Verb]:  # fmt: skip
    """Return the decorator that declares an operation by a function, and returns the function.

    The function takes the root, the caller, and the fields by name, whose defaults :func:`field`
    declares; with an argument ``given``, also the names of the fields that the caller stated. The
    class, named after the function, is added to :data:`DECLARED`.

    Args:
        command: words of the command.
        route: method and path below ``/api``.
        doc: description on all doors; by default the docstring up to its first section, which
            then only describes the form of the request.
        more: fields that several verbs share, each with its type. They follow the other fields, and
            the function takes them as ``**`` arguments.
        traits: further attributes of :class:`Operation`; its methods as functions without ``self``.

    Raises:
        TypeError: a field has the name of an attribute of :class:`Operation` (when decorating).
    """
    shared = more or {}

    def declared(function: _Verb) -> _Verb:
        defaults: dict[str, Any] = function.__kwdefaults__ or {}
        own = {name: item for name, item in defaults.items() if isinstance(item, Field)}
        fields = {**own, **shared}
        if taken := fields.keys() & dir(Operation):
            raise TypeError(f"Fields of {function.__name__} hide attributes: {sorted(taken)}.")
        wanted = [*fields, *(["given"] if "given" in defaults else [])]

        def run(self: Operation, root: RootPort, caller: Caller) -> Any:
            return function(root, caller, **{name: getattr(self, name) for name in wanted})

        name = "".join(map(str.capitalize, function.__name__.split("_")))
        stated = {"command": command, "route": route}
        text = _SECTION.split(function.__doc__ or "")[0]
        type(name, (Operation,), {
            "__doc__": doc or text,
            "form_doc": text,
            "__module__": function.__module__,
            "__annotations__": {
                **{name: function.__annotations__[name] for name in own},
                **{name: item.type for name, item in shared.items()},
            },
            "run": run,
            **fields,
            **{name: words for name, words in stated.items() if words},
            **{name: staticmethod(one) if name in _METHODS else one
               for name, one in traits.items()},
        })  # fmt: skip
        return function

    return declared


DECLARED: list[type[Operation]] = []
"""All operations of the imported modules, in the order of their declaration."""
