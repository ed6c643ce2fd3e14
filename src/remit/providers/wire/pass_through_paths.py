"""Paths of the providers' APIs that call no model through Remit's own endpoints.

Remit passes these requests on. A row states what a request can cost, and which objects it makes, so
that each object belongs to the caller who made it. The id after a collection's path is an object of
that collection: in ``/vector_stores/{id}/files`` a ``vector_store``. Ids further right name parts
of it, which only its owner reaches.
"""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

from remit.providers.wire.endpoint_table import Endpoint

_ID = "{id}"
_IDS = re.compile(r"[A-Za-z0-9_.:@~+=-]{1,512}")
"""The form of ids. A slash or a percent sign could lead to another path of the provider."""

_REFUSED = (
    "/organization", "/organizations", "/projects", "/api_keys", "/invites", "/usage", "/costs",
    "/realtime", "/live", "/tunnels", "/webhook_endpoints", "/webhook_event_types", "/safety",
    "/chatkit", "/fine_tuning/checkpoints",
)  # fmt: skip
"""Paths of the account itself, paths that give out credentials of the provider, and realtime."""


class PassedPath(NamedTuple):
    """A request that Remit passes on.

    Attributes:
        dialect: ``openai`` or ``anthropic``.
        method: ``GET``, ``POST`` or ``DELETE``.
        template: the path without ``/v1``, with ``{id}`` in place of ids.
        is_free: True if the provider is known to bill nothing for it; otherwise the request has no
            price.
        changes: True if the request changes something at the provider.
        makes: the objects that the answer reports as new: pairs of kind and path of the member with
            the id.
        kind: kind of the object that the first id names, and of a list's objects.
        endpoint: the endpoint for the record.
    """

    dialect: Literal["openai", "anthropic"]
    method: str
    template: str
    is_free: bool
    changes: bool
    makes: tuple[tuple[str, tuple[str, ...]], ...]
    kind: str
    endpoint: Endpoint

    @property
    def name(self) -> str:
        """Method and template, such as ``POST /vector_stores/{id}/search``."""
        return f"{self.method} {self.template}"

    @property
    def is_list(self) -> bool:
        """True if the request lists a collection, of which the caller sees its own objects."""
        return self.method == "GET" and _ID not in self.template

    def upstream(self, ids: tuple[str, ...]) -> str:
        """Return the path after the provider's base URL for a request with these ids."""
        path = self.template
        for each in ids:
            path = path.replace(_ID, each, 1)
        return f"/v1{path}" if self.dialect == "anthropic" else path


def _kind_of(collection: str) -> str:
    return collection.removeprefix("/").removesuffix("s")


def _rows() -> list[PassedPath]:
    """Return the rows of ``passed_paths.txt``, whose head explains them."""
    found: list[PassedPath] = []
    dialect: Any = ""
    for line in Path(__file__).with_name("passed_paths.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            dialect = line.strip("[]")
        elif line.startswith("/"):
            template, *methods = line.split()
            found += [_row(dialect, template, method) for method in methods]
    return found


def _row(dialect: Literal["openai", "anthropic"], template: str, stated: str) -> PassedPath:
    """Return the row of a path and one of its methods, with the method's marks."""
    collection = template.partition(f"/{_ID}")[0]
    name = f"{dialect}.{collection.removeprefix('/').replace('/', '.')}"
    path = f"/v1{template}" if dialect == "anthropic" else template
    method, plus, made = stated.partition("+")
    makes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if plus:
        other, _, member = made.partition(":")
        makes = ((_kind_of(other or collection), tuple((member or "id").split("."))),)
    verb, is_free = method.rstrip("$!"), "$" not in stated
    endpoint = Endpoint(
        name, dialect, path, "", free=is_free, has_model=False, streams=True, verbatim=True
    )
    changes = verb != "GET" or "!" in method
    kind = _kind_of(collection)
    return PassedPath(dialect, verb, template, is_free, changes, makes, kind, endpoint)


PASSED_PATHS = tuple(_rows())
"""Every request that Remit passes on."""


def _templates() -> dict[tuple[str, int], list[tuple[list[str], dict[str, PassedPath]]]]:
    """Return the parts of each path with its rows by method, keyed by dialect and number of parts.

    A word stands before an id.
    """
    rows: dict[tuple[str, str], dict[str, PassedPath]] = {}
    for row in PASSED_PATHS:
        rows.setdefault((row.dialect, row.template.strip("/")), {})[row.method] = row
    listed = [(dialect, path.split("/"), each) for (dialect, path), each in rows.items()]
    listed.sort(key=lambda one: [part == _ID for part in one[1]])
    found: dict[tuple[str, int], list[tuple[list[str], dict[str, PassedPath]]]] = {}
    for dialect, parts, each in listed:
        found.setdefault((dialect, len(parts)), []).append((parts, each))
    return found


_TEMPLATES = _templates()


def find_passed(dialect: str, path: str) -> tuple[dict[str, PassedPath], tuple[str, ...]]:
    """Return the requests that a path stands for, keyed by method, and the ids in the path.

    A word of the table is preferred to an id: ``/threads/runs`` is never the thread ``runs``.

    Args:
        dialect: ``openai`` or ``anthropic``.
        path: the path without ``/v1``, as the client sent it.

    Returns:
        Empty if the dialect has no such path, or an id in the path has a form that no id has.
    """
    parts = path.strip("/").split("/")
    for template, rows in _TEMPLATES.get((dialect, len(parts)), ()):
        pairs = [*zip(template, parts, strict=True)]
        if all(_is_id(part) if name == _ID else name == part for name, part in pairs):
            return rows, tuple(part for name, part in pairs if name == _ID)
    return {}, ()


def _is_id(text: str) -> bool:
    return _IDS.fullmatch(text) is not None and text.strip(".") != ""


def is_refused(path: str) -> bool:
    """Return True if a path without ``/v1`` is one that Remit never passes on.

    Such paths manage the provider's account, give out its credentials, or are realtime.
    """
    return any(path == one or path.startswith(f"{one}/") for one in _REFUSED)


@functools.cache
def kinds_made(wire: str) -> frozenset[str]:
    """Return the kinds of objects that requests of an endpoint make; empty for an unknown endpoint.

    Args:
        wire: the endpoint's name in the record, such as ``openai.vector_stores``.
    """
    return frozenset(
        kind for row in PASSED_PATHS if row.endpoint.name == wire for kind, _ in row.makes
    )


def matches(pattern: str, row: PassedPath) -> bool:
    """Return True if a pattern of a key's allow-list covers a request.

    Args:
        pattern: a template such as ``/vector_stores/{id}/search``, in which ``*`` stands for any
            text, optionally after a method and a space: ``POST /vector_stores*``.
        row: the request.
    """
    method, space, path = pattern.rpartition(" ")
    return (not space or method == row.method) and fnmatchcase(row.template, path)
