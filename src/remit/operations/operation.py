"""The declaration of an operation, and the ports between operations and doors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.gateway.auth import Directory, Identity, KeyStore
    from remit.gateway.budget import TokenBudgeter
    from remit.kernel.settings import Settings
    from remit.ledger import LedgerClient

_T = TypeVar("_T")


class ForbiddenError(RemitError):
    """The caller lacks the right to make this change.

    Args:
        message: sentence for people.
        param: the field at fault.
    """

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param


class RootPort(Protocol):
    """An open root, as operations use it. The runtime implements the port."""

    @property
    def ledger(self) -> LedgerClient:
        """The ledger; operations that change something need its signing key."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...

    @property
    def keys(self) -> KeyStore:
        """The virtual keys."""
        ...

    @property
    def budgeter(self) -> TokenBudgeter:
        """The limits and the spending."""
        ...

    @property
    def directory(self) -> Directory:
        """The names of users, teams and organisations."""
        ...

    def progress(self, label: str) -> Callable[[int, int], None]:
        """Return a function that reports the number of done and of all items of a long work."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation.

    Attributes:
        identity: name and permissions.
        is_local: True for the person at the command line, whose permissions are those of the
            files.
    """

    identity: Identity
    is_local: bool = False

    @property
    def id(self) -> str:
        """The id of the caller's key, or the caller's name without a key."""
        return self.identity.key_id or self.identity.name

    @property
    def name(self) -> str:
        """Name and key id, for the record; the name of a revoked key may be used again."""
        found = self.identity
        return f"{found.name} ({found.key_id})" if found.key_id else found.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a request.

    Attributes:
        name: name of the field in JSON and in the operation.
        type: type of the value, such as ``str``, ``list[str]`` or ``int | None``.
        help: description for people.
        default: value of an omitted field; ``dataclasses.MISSING`` if the field is required.
        least: the smallest number.
        is_name: True for a printable text of 1 to 512 characters, without spaces at its ends.
        flag: name of the command's option, if it is not derived from ``name``; empty for an
            argument.
        metavar: name of the value in the command's help.
        separator: ``,`` if one option holds the whole list; else the option is repeatable.
        read: function from the option's text to the value.
        flag_default: text of an omitted option that ``read`` converts.
        flag_help: description of the option, if it differs from ``help``.
        door: ``command`` or ``route`` if only that door offers the field; empty for all.
    """

    name: str = ""
    type: Any = str
    help: str = ""
    default: Any = MISSING
    least: float | None = None
    is_name: bool = False
    flag: str | None = None
    metavar: str | None = None
    separator: str = ""
    read: Callable[[str], Any] | None = None
    flag_default: str | None = None
    flag_help: str = ""
    door: str = ""

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


def field(help: str, default: Any = MISSING, **traits: Any) -> Any:  # noqa: A002
    """Declare a field of an operation.

    Args:
        help: description for people.
        default: value of an omitted field; without a default, the field is required.
        traits: further attributes of :class:`Field`.
    """
    return Field(help=help, default=default, **traits)


class Note(str):
    """A line of a command's output for people only, which goes to standard error."""


Column = tuple[str, Callable[[dict[str, Any]], str]]
"""Head of a table's column, and the function from an item to the cell."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[_T]):
    """A list whose items are described page by page.

    Attributes:
        items: all items, in order.
        cursor_of: returns a unique text of an item, from which the next page continues.
        describe: returns the JSON objects of some items.
        is_shown: False for items that only mark the place of a cursor.
    """

    items: Sequence[_T]
    cursor_of: Callable[[_T], str]
    describe: Callable[[list[_T]], Iterable[dict[str, Any]]]
    is_shown: Callable[[_T], bool] = lambda item: True


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Operation:
    """The base of all verbs. An instance is a checked request.

    The docstring is the description on all doors.

    Attributes:
        command: words of the command, such as ``key list``; empty without a command.
        route: method and path below ``/api``; empty without a route.
        endpoint: first word of the route's ``operationId``; by default the command's last word.
        summary: title of the route.
        tag: group of the route in the OpenAPI document.
        needs: the needed permission of a route's caller.
        changes: whether the operation writes to the ledger.
        form: name of the request in the OpenAPI document.
        result: name of the result's form in :mod:`remit.operations.results`.
        status: HTTP status of success.
        fails: HTTP statuses of failure in addition to those of every route.
        member: for a list, the member of the route's answer that contains the items.
        command_member: for a list, the member of the command's JSON; ``member`` if empty.
        is_limited: whether the command of a list has ``--limit``.
        columns: for a list, the columns of the command's table.
    """

    command: ClassVar[str] = ""
    route: ClassVar[str] = ""
    endpoint: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    tag: ClassVar[str] = ""
    needs: ClassVar[str] = "read"
    changes: ClassVar[bool] = False
    form: ClassVar[str] = ""
    result: ClassVar[str] = ""
    status: ClassVar[int] = 200
    fails: ClassVar[tuple[int, ...]] = ()
    member: ClassVar[str] = ""
    command_member: ClassVar[str] = ""
    is_limited: ClassVar[bool] = False
    columns: ClassVar[tuple[Column, ...]] = ()

    # A dataclass would take a millisecond of the start of every command for each operation.
    def __init__(self, **values: Any) -> None:
        for name, item in self._declared().items():
            value = values.pop(name, item.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            vars(self)[name] = list(value) if isinstance(value, list) else value
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    @classmethod
    def _declared(cls) -> dict[str, Field]:
        """Return the fields by name, those of a base class after the others."""
        found: dict[str, Field] = {}
        for base in cls.__mro__:
            own = {name: item for name, item in vars(base).items() if isinstance(item, Field)}
            found |= {name: item for name, item in own.items() if name not in found}
        return found

    @classmethod
    def fields(cls, door: str) -> list[Field]:
        """Return the fields of the request on a door, those of a base class after the others.

        Args:
            door: ``command`` or ``route``.
        """
        types = get_type_hints(cls)
        return [
            dataclasses.replace(item, name=name, type=types[name])
            for name, item in cls._declared().items()
            if item.door in {"", door}
        ]

    def writes(self) -> bool:
        """Return True if this request writes to the ledger; by default ``changes``."""
        return self.changes

    def run(self, root: RootPort, caller: Caller) -> Any:
        """Carry out the operation.

        Args:
            root: the open root.
            caller: the caller, whose permission ``needs`` has been checked.

        Returns:
            JSON data in the form ``result``, or a :class:`Listing`.

        Raises:
            RemitError: the operation is refused.
        """
        raise NotImplementedError

    def has_failed(self, found: dict[str, Any]) -> bool:
        """Return True if the command exits with 1 after it prints the result.

        Args:
            found: the result.
        """
        return False

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the lines that the command prints for people; a :class:`Note` goes to stderr.

        Args:
            found: the result.
        """
        raise NotImplementedError
