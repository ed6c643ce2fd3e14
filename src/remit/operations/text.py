"""Results as lines for people: facts, tables and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from remit.kernel.message_text import fixed

_NOTHING: tuple[Any, ...] = ("", None, [], (), {})
_IN_CELL = 3  # items of a list
_INTERVAL = ("value", "low", "high")
_SMALL = 0.01  # Smaller estimates, such as US dollars a call, have more decimals.


class Note(str):
    """A line of a command's output for people only, which goes to standard error."""


class Drawn(str):
    """A line of a command's output with colours, and with control characters written out."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table among the lines of a command, which the command line lays out and prints.

    Attributes:
        heads: heads of the columns.
        rows: the cells of each row.
        limit: largest number of lines to print; None for all.
        indent: number of spaces before each line.
    """

    heads: Sequence[str]
    rows: Iterable[Sequence[str]]
    limit: int | None = None
    indent: int = 0


def json_data(value: Any) -> Any:
    """Return a value of a result that is no JSON data as such data.

    Erased content becomes ``{"$erased": id}``, an entry and a dataclass an object with their
    fields, a path its text, and bytes, which a damaged ledger can hold, a text that shows them.

    Raises:
        TypeError: the value has another type.
    """
    from remit.ledger import Erased, LedgerEntry

    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, LedgerEntry):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return repr(value)
    raise TypeError(type(value).__name__)


def facts(found: Mapping[str, Any], *omitted: str, indent: int = 0) -> Iterator[str | Table]:
    """Yield the lines of a JSON object, under the names of its members.

    A member without a value is left out. A list of objects becomes a table, or, if they contain
    objects, a numbered part for each. An object and a text of several lines follow their name,
    indented.

    Args:
        found: the JSON object.
        omitted: members to leave out; those of inner objects stay.
        indent: number of spaces before each line.
    """
    before = " " * indent
    for name, value in found.items():
        if name in omitted or value in _NOTHING:
            continue
        if isinstance(value, list | tuple) and all(map(_is_object, value)):
            rows = [one if isinstance(one, Mapping) else asdict(one) for one in value]
            if not any(_is_part(one) for row in rows for one in row.values()):
                yield f"{before}{name}:"
                yield table_of(rows, indent=indent + 2)
                continue
            for number, row in enumerate(rows, 1):
                yield f"{before}{name} {number}:"
                yield from facts(row, indent=indent + 2)
        elif _is_part(value):
            yield f"{before}{name}:"
            yield from facts(value, indent=indent + 2)
        elif isinstance(value, str) and "\n" in value:
            yield from (f"{before}{name}:", *(f"{before}  {one}" for one in value.splitlines()))
        else:
            yield f"{before}{name}: {shown(value)}"


def table_of(items: Iterable[Mapping[str, Any]], *members: str, indent: int = 0) -> Table:
    """Return a table of objects, with a column for each member and the values as :func:`shown`.

    A list in a cell has at most three items. A missing member is ``-``.

    Args:
        items: JSON objects.
        members: names of the columns; by default all members that have a value in some row.
        indent: number of spaces before each line.
    """
    rows = list(items)
    names = members or dict.fromkeys(
        name for row in rows for name, one in row.items() if one not in _NOTHING
    )
    cells = [[shown(row.get(name), _IN_CELL) for name in names] for row in rows]
    return Table([*names], cells, indent=indent)


def shown(value: Any, most: int = 20) -> str:
    """Return a JSON value as people read it.

    Nothing is ``-``, a truth value ``yes`` or ``no``, and an estimate its value with the interval.
    A float has six decimals at most, or nine if six would be zero. The values of lists and objects
    are separated by commas; a value of an object follows its name.

    Args:
        value: the value.
        most: largest number of items of a list, 20 for inner lists; further items are counted.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return fixed(value).rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - most} more"] if len(value) > most else []
        return ", ".join([*map(shown, value[:most]), *more]) or "-"
    if isinstance(value, Mapping):
        rest = [f"{name} {shown(one)}" for name, one in value.items()
                if not (_is_interval(value) and name in _INTERVAL)]  # fmt: skip
        if _is_interval(value):
            digits = 4 if max(abs(value["low"]), abs(value["high"])) >= _SMALL else 6
            estimate, low, high = (fixed(value[name], digits, "+") for name in _INTERVAL)
            rest.insert(0, f"{estimate} [{low}, {high}]")
        return ", ".join(rest) or "-"
    return "-" if value in _NOTHING else str(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) or is_dataclass(value)


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and not _is_interval(value)


def _is_interval(value: Mapping[str, Any]) -> bool:
    return all(isinstance(value.get(name), int | float) for name in _INTERVAL)
