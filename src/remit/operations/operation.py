"""The declaration of an operation: its fields, its attributes, and the forms of its output."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar, get_args, get_type_hints

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
        value: the JSON object; a :class:`Feed`, whose items can be read once; or a
            :class:`Document`.
        lines: the lines for people, which are computed only if they are printed; by default
            :meth:`Operation.lines_of`.
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
    """

    content: str | bytes | Callable[[IO[bytes]], Any]
    out: Path | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """A verb, as :func:`verb` declares it; immutable.

    Values are checked before, by :func:`remit.operations.requests.checked`, a route or a tool.

    Attributes:
        function: carries out the operation; it takes the root, the caller, and the fields by name.
        declared: the fields of all doors, by name. Their types are the function's annotations.
        doc: description on all doors.
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
        form_doc: description of the request there.
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
        lines: yields the lines that the command prints for people, from the result; by default
            :meth:`lines_of` makes them. A :class:`Note` goes to standard error.
        line: returns the line of an item of a list without columns.
        has_failed: True if the command exits with 1 after it prints the result.
        writes: whether a request writes to the ledger, which the function may read from the open
            root, whose ledger is not used yet; by default as ``changes`` and ``writes_with`` say.
        writes_with: names of fields; only a request that sets one of them writes to the ledger.
            Empty if ``changes`` says so for all requests.
    """

    function: Callable[..., Any]
    declared: Mapping[str, Field]
    doc: str
    command: str = ""
    route: str = ""
    endpoint: str = ""
    summary: str = ""
    tag: str = ""
    tools: tuple[str, ...] = ()
    agent_tools: tuple[Any, ...] = ()
    needs: str = "read"
    changes: bool = False
    form: str = ""
    form_doc: str = ""
    result: str = ""
    media_type: str = ""
    status: int = 200
    fails: tuple[int, ...] = ()
    member: str = ""
    command_member: str = ""
    repairs: bool = False
    instead_of_json: tuple[str, ...] = ()
    has_root: bool = True
    columns: tuple[Column, ...] = ()
    nothing: str = ""
    prints: str = ""
    then: str = ""
    lines: Callable[[Any], Iterable[str | Table]] | None = None
    line: Callable[[Any], str] = str
    has_failed: Callable[[Any], bool] = lambda found: False
    writes: Callable[[RootPort], bool] | None = None
    writes_with: tuple[str, ...] = ()

    def fields(self, door: str) -> list[Field]:
        """Return the fields of the request on a door, with name and type, as declared in order.

        Args:
            door: ``command`` or ``route``.
        """
        stated = self.function.__annotations__
        own = {name: stated[name] for name in self.declared if name in stated}
        types = get_type_hints(SimpleNamespace(__annotations__=own), self.function.__globals__)
        return [
            dataclasses.replace(item, name=name, type=types.get(name, item.type))
            for name, item in self.declared.items()
            if item.door in {"", door}
        ]

    def does_write(self, root: RootPort, values: Mapping[str, Any]) -> bool:
        """Return True if a request writes to the ledger.

        With ``writes_with``, a request writes if one of these fields differs from its default.

        Args:
            root: the open root, whose ledger is not used yet.
            values: the given values of the request.
        """
        if self.writes is not None:
            return self.writes(root)
        if not self.writes_with:
            return self.changes
        known = self.declared
        return any(values.get(one, known[one].default) != known[one].default
                   for one in self.writes_with)  # fmt: skip

    def run(self, root: RootPort, caller: Caller, /, **values: Any) -> Any:
        """Carry out the operation.

        Args:
            root: the open root.
            caller: the caller, whose permission ``needs`` has been checked.
            values: the fields of the request; omitted ones have their defaults.

        Returns:
            JSON data in the form ``result``, an :class:`Answer` with them, a :class:`Feed`, a
            :class:`Document`, a ledger entry; or with ``media_type`` a text, bytes, or a generator
            of the pieces of a text.

        Raises:
            RemitError: the operation is refused.
            TypeError: a required field is missing, or there is no such field.
        """
        defaults = {name: item.default for name, item in self.declared.items()}
        whole = {**defaults, **values}
        if wrong := [name for name, value in whole.items()
                     if value is MISSING or name not in defaults]:  # fmt: skip
            raise TypeError(f"{self.function.__name__} misses or lacks {', '.join(wrong)}")
        if "given" in (self.function.__kwdefaults__ or {}):
            whole["given"] = frozenset(values)
        return self.function(root, caller, **whole)

    def value(self, root: RootPort, caller: Caller, /, **values: Any) -> Any:
        """Carry out the operation, and return the result as :meth:`run`, without lines for people.

        Args:
            root: the open root.
            caller: the caller, whose permission ``needs`` has been checked.
            values: the fields of the request.

        Raises:
            RemitError: the operation is refused.
        """
        found = self.run(root, caller, **values)
        return found.value if isinstance(found, Answer) else found

    def lines_of(self, found: dict[str, Any]) -> Iterable[str | Table]:
        """Return the lines that the command prints for people.

        By default these are ``prints`` with the members filled in, or else a line for each member,
        or else ``nothing``.

        Args:
            found: the result, a JSON object.
        """
        if self.lines is not None:
            return self.lines(found)
        lines = [self.prints.format_map(found)] if self.prints else [*facts(found)]
        return lines or [self.nothing or "nothing"]


_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_SECTION = re.compile(r"\n\s*(?:Raises|Returns|Yields):\n")


def verb(
    command: str = "", route: str = "", *, doc: str = "", more: Mapping[str, Field] | None = None,
    **traits: Any,
) -> Callable[[_Verb], _Verb]:  # fmt: skip
    """Return the decorator that declares an operation by a function, and returns the function.

    The function takes the root, the caller, and the fields by name, whose defaults :func:`field`
    declares; with an argument ``given``, also the names of the fields that the caller stated. The
    operation is added to :data:`DECLARED`.

    Args:
        command: words of the command.
        route: method and path below ``/api``.
        doc: description on all doors; by default the docstring up to its first section, which
            then only describes the form of the request.
        more: fields that several verbs share, each with its type. They follow the other fields, and
            the function takes them as ``**`` arguments.
        traits: further attributes of :class:`Operation`.
    """
    tools = (*traits.pop("tools", ()), *(tool.name for tool in traits.get("agent_tools", ())))
    changes = traits.pop("changes", bool(route) and not route.startswith("GET "))

    def declared(function: _Verb) -> _Verb:
        defaults = (function.__kwdefaults__ or {}).items()
        own = {name: item for name, item in defaults if isinstance(item, Field)}
        text = _SECTION.split(function.__doc__ or "")[0]
        DECLARED.append(Operation(
            function=function, declared={**own, **(more or {})}, doc=doc or text, form_doc=text,
            command=command, route=route, tools=tools, changes=changes, **traits,
        ))  # fmt: skip
        return function

    return declared


DECLARED: list[Operation] = []
"""All operations of the imported modules, in the order of their declaration."""
