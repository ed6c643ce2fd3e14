"""Mutants of exports, archives and proofs: each changes a parsed field, its order or its presence.

A mutant is a copy of a genuine artefact with one edit. No mutant differs from its artefact in white
space or in the order of an object's members alone: these are no change.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Mutant", "bundle_mutants", "line_mutants", "note_mutants", "object_mutants", "same"]

Path = tuple[str | int, ...]

_MANY = 24

_MEMBERS: dict[str, Any] = {
    "erased": "LED-00000001", "leaf": base64.b64encode(bytes(32)).decode(), "kept": True,
    "record": "{}", "subjects": ["mallory"], "json": '"x"', "jcs": '"x"', "since": 0,
    "unknown": 1, "": None, "commitment": "ab" * 32, "usage": [], "seq": 0, "tier": "hot",
}  # fmt: skip


class Mutant(NamedTuple):
    """One edit of an artefact.

    Attributes:
        kind: of the edit.
        where: the line and the members that lead to the edited part.
        new: the edited text, in the place of the lines from ``start`` to before ``end``.
        lines: the lines of the artefact; none if ``new`` is all of it.
    """

    kind: str
    where: str
    new: bytes
    lines: Sequence[bytes] = ()
    start: int = 0
    end: int = 0

    @property
    def data(self) -> bytes:
        """The artefact with the edit."""
        before, after = self.lines[: self.start], self.lines[self.end :]
        return b"".join([*(b"%b\n" % one for one in before), self.new,
                         *(b"%b\n" % one for one in after)])  # fmt: skip


def same(one: bytes, other: bytes) -> bool:
    """Return True if every JSON reader gives the same values for two texts."""

    def parsed(data: bytes) -> Any:
        return json.loads(data, object_pairs_hook=lambda pairs: ("object", sorted(pairs, key=repr)))

    try:
        return repr(parsed(one)) == repr(parsed(other))
    except ValueError:
        return False


def line_mutants(lines: Sequence[bytes], chosen: Sequence[int]) -> Iterator[Mutant]:
    """Yield mutants of JSON lines: of the lines at ``chosen`` every edit of their members, and
    edits of the order and presence of these lines."""

    values = {at: json.loads(lines[at]) for at in chosen}
    pool = list(values.values())
    for at in chosen:
        where, line = f"line {at + 1}", lines[at]

        def edit(
            kind: str, *new: bytes, note: str = "", end: int = at + 1, start: int = at
        ) -> Mutant:
            text = b"".join(one + b"\n" for one in new)
            return Mutant(kind, f"{where} {note}", text, lines, start, end)  # noqa: B023

        for mutant in object_mutants(values[at], pool):
            if not same(mutant.new, line):
                yield edit(mutant.kind, mutant.new, note=mutant.where)
        yield edit("drop a line")
        yield edit("duplicate a line", line, line)
        yield edit("nest a line", b"[" + line + b"]")
        yield edit("add a line", b"{}", line)
        yield edit("add a line", b"", line, note="empty")
        yield edit("extend", line + b"}")
        yield edit("extend", line + b"\0", note="NUL")
        yield edit("truncate", end=len(lines))._replace(new=line[: len(line) // 2])
        if at + 1 < len(lines):
            yield edit("move a line", *lines[at + 1 :], line, end=len(lines))
            if line != lines[at + 1]:
                yield edit("swap lines", lines[at + 1], line, end=at + 2)
        else:
            yield edit("move a line", line, *lines[:at], start=0)
        for other in chosen:
            if values[other].keys() != values[at].keys():
                yield edit("another line's", lines[other])
                break


def object_mutants(value: Any, pool: Sequence[Any] = ()) -> Iterator[Mutant]:
    """Yield edits of one JSON value, as text. ``pool`` has values of the same kind, from which
    members are exchanged."""
    for path, item in _walk(value, ()):
        where = "/".join(map(str, path))
        for kind, new in _replacements(item):
            yield Mutant(kind, where, _dump(_with(value, path, new)))
        if path:
            yield Mutant("drop", where, _dump(_without(value, path)))
            for other in pool:
                found = _at(other, path)
                if found is not None and found != item:
                    yield Mutant("another item's", where, _dump(_with(value, path, found)))
                    break
        if isinstance(item, dict):
            for name, extra in _MEMBERS.items():
                if name not in item:
                    yield Mutant("add a member", f"{where}/{name}",
                                 _dump(_with(value, path, {**item, name: extra})))  # fmt: skip
            for name in item:
                yield Mutant("duplicate a key", f"{where}/{name}", _twice(value, path, name, True))
                yield Mutant("duplicate a key", f"{where}/{name}", _twice(value, path, name, False))
                renamed = {(f"{key}s" if key == name else key): one for key, one in item.items()}
                yield Mutant("rename", f"{where}/{name}", _dump(_with(value, path, renamed)))
            for one, two in (("jcs", "json"), ("json", "jcs")):
                if one in item:
                    renamed = {(two if key == one else key): x for key, x in item.items()}
                    yield Mutant("rename", f"{where}/{one}", _dump(_with(value, path, renamed)))
            if "commitment" in item and path:
                yield from _second_items(value, path, item)
        if isinstance(item, list):
            yield from _list_edits(value, path, item)


def _second_items(value: Any, path: Path, item: dict[str, Any]) -> Iterator[Mutant]:
    """Yield a list with a further item of the same commitment, before and after the true one."""
    rest, place = path[:-1], path[-1]
    assert isinstance(place, int)
    whole = _at(value, rest)
    nonce = base64.b64encode(bytes(32)).decode()
    mac = item["commitment"]
    forged = [
        {"commitment": mac, "nonce": nonce, "jcs": '"forged"'},
        {"commitment": mac, "nonce": item.get("nonce", nonce), "json": '"forged"'},
        {"commitment": mac, "erased": "LED-00000001"},
        {**item, "jcs": '"forged"'},
    ]
    for one in forged:
        for at in (place, place + 1):
            new = [*whole[:at], one, *whole[at:]]
            yield Mutant("a second item", "/".join(map(str, path)), _dump(_with(value, rest, new)))
    for one in forged:
        new = [*whole[:place], one, *whole[place + 1 :]]
        yield Mutant("another item", "/".join(map(str, path)), _dump(_with(value, rest, new)))


def _list_edits(value: Any, path: Path, item: list[Any]) -> Iterator[Mutant]:
    where = "/".join(map(str, path))
    for at, one in enumerate(item if len(item) <= _MANY else item[:3]):
        new = [*item[: at + 1], one, *item[at + 1 :]]
        yield Mutant("duplicate", f"{where}/{at}", _dump(_with(value, path, new)))
        if at and item[at - 1] != one:
            new = [*item[: at - 1], one, item[at - 1], *item[at + 1 :]]
            yield Mutant("swap", f"{where}/{at}", _dump(_with(value, path, new)))
    if item != item[::-1]:
        yield Mutant("reorder", where, _dump(_with(value, path, item[::-1])))
    for extra in (None, {}, [], 0, "x"):
        yield Mutant("add an item", where, _dump(_with(value, path, [*item, extra])))


def _replacements(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield other values for one."""
    for kind, new in (
        ("null", None), ("nest", [item]), ("nest", {"value": item}), ("retype", True),
        ("retype", []), ("retype", {}), ("retype", ""), ("retype", 0),
    ):  # fmt: skip
        if type(new) is not type(item) or new != item:
            yield kind, new
    if isinstance(item, bool):
        yield "retype", int(item)
    elif isinstance(item, int):
        yield from (("number spelling", float(item)), ("number spelling", str(item)))
        yield from (("number", item + 1), ("number", item - 1), ("number", -item - 1))
        yield from (("number", item + (1 << 40)), ("number", 1 << 70))
    elif isinstance(item, str):
        yield from _texts(item)


def _texts(item: str) -> Iterator[tuple[str, str]]:
    yield from (("extend", item + " "), ("extend", " " + item), ("extend", item + "\n"))
    yield from (("extend", item + "0"), ("extend", item + "\0"), ("surrogate", item + "\ud800"))
    if item:
        middle = len(item) // 2
        other = "1" if item[middle] != "1" else "2"
        yield "one character", item[:middle] + other + item[middle + 1 :]
        yield from (("truncate", item[:-1]), ("truncate", item[1:]))
    for changed in (item.upper(), item.lower()):
        if changed != item:
            yield "case", changed
    if item[::-1] != item:
        yield "reverse", item[::-1]
    if stray := _stray_bits(item):
        yield "base64 bits", stray
    if item.endswith("="):
        yield "base64 padding", item.rstrip("=")
    if item.startswith('{"'):
        yield "record space", item.replace(":", ": ", 1)
        yield "record key twice", '{"decision":"x",' + item[1:]
    if item.startswith('"'):
        yield "escape", '"\\u0061' + item[1:]


def _stray_bits(item: str) -> str:
    """The same base64 with bits after its last byte."""
    digits = item.rstrip("=")
    if digits == item or not digits:
        return ""
    try:
        data = base64.b64decode(item, validate=True)
    except ValueError:
        return ""
    changed = f"{digits[:-1]}{chr(ord(digits[-1]) + 1)}{item[len(digits) :]}"
    try:
        return changed if base64.b64decode(changed, validate=True) == data else ""
    except ValueError:
        return ""


# -- proofs and notes ----------------------------------------------------------------------------


def note_mutants(text: str) -> Iterator[Mutant]:
    """Yield edits of a signed note or a proof, line by line.

    None adds a signature of an unknown key or a line ``extra``: C2SP has readers pass over both.
    """
    lines = text.split("\n")
    for at, line in enumerate(lines):
        where = f"line {at + 1}"

        def put(*new: str, at: int = at) -> bytes:
            return "\n".join([*lines[:at], *new, *lines[at + 1 :]]).encode("utf-8", "surrogatepass")

        if at < len(lines) - 1:
            yield Mutant("drop a line", where, put())
            yield Mutant("duplicate a line", where, put(line, line))
            yield Mutant("add a line", where, put("", line))
            yield Mutant("add a line", where, put("AAAA", line))
            yield Mutant("carriage return", where, put(f"{line}\r"))
        if line:
            for kind, new in _texts(line):
                if new != line:
                    yield Mutant(kind, where, put(new))
            if number := re.search(r"\d+$", line):
                for new in (f"0{number[0]}", str(int(number[0]) + 1), f"+{number[0]}", "-1"):
                    yield Mutant("number", where, put(line[: number.start()] + new))
            words = line.split(" ")
            if len(words) > 1 and (stray := _stray_bits(words[-1])):
                yield Mutant("base64 bits", where, put(" ".join([*words[:-1], stray])))
        if at and lines[at - 1] != line:
            new = [*lines[: at - 1], line, lines[at - 1], *lines[at + 1 :]]
            yield Mutant("swap lines", where, "\n".join(new).encode())
    yield Mutant("truncate", "", text[: len(text) // 2].encode())
    yield Mutant("truncate", "", text[:-1].encode())
    yield Mutant("extend", "", f"{text}\n".encode())
    yield Mutant("extend", "", f"\ufeff{text}".encode())
    yield Mutant("empty", "", b"")


def bundle_mutants(bundle: dict[str, Any], others: Sequence[dict[str, Any]]) -> Iterator[Mutant]:
    """Yield edits of what a browser is given for one entry, but for keys given twice: the page
    parses the bundle before the script sees it."""
    whole = _dump(bundle)
    for mutant in object_mutants(bundle, others):
        if mutant.kind not in ("duplicate a key", "surrogate") and not same(mutant.new, whole):
            yield mutant


# -- JSON by path --------------------------------------------------------------------------------


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
        if len(value) > _MANY:  # rows of usage: they are alike
            pairs = [(at, value[at]) for at in (0, 1, len(value) - 1)]
    for key, item in pairs:
        yield from _walk(item, (*path, key))


def _at(value: Any, path: Path) -> Any:
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return None
    return value


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    made = copy.deepcopy(value)
    _at(made, path[:-1])[path[-1]] = new
    return made


def _without(value: Any, path: Path) -> Any:
    made = copy.deepcopy(value)
    del _at(made, path[:-1])[path[-1]]
    return made


_MARK = "\ue000mark"


def _twice(value: Any, path: Path, name: str, is_first: bool) -> bytes:
    """``value`` as text, with a member given twice: a foreign value first, or last."""
    item = _at(value, path)
    marked = {(key if key != name else _MARK): one for key, one in item.items()}
    text = json.dumps(_with(value, path, marked))
    member = json.dumps(_MARK) + ": " + json.dumps(item[name])
    forged = "7" if item[name] != 7 else "8"
    pair = [f"{json.dumps(name)}: {forged}", f"{json.dumps(name)}: {json.dumps(item[name])}"]
    return text.replace(member, ", ".join(pair if is_first else pair[::-1])).encode()
