"""Routes made from operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query

from remit import operations
from remit.operations import OPERATIONS, Listing, Operation, RootPort, request_model
from remit.server.api.routes import Caller, Routes, slice_of


def operation_routes(root: RootPort) -> Iterator[Routes]:
    """Yield the routes of all operations, grouped by tag.

    Args:
        root: the open root in which the operations run.
    """
    groups: dict[str, Routes] = {}
    for kind in OPERATIONS:
        if kind.route:
            _add(groups.setdefault(kind.tag, Routes(kind.tag)), kind, root)
    yield from groups.values()


def _add(routes: Routes, kind: type[Operation], root: RootPort) -> None:
    method, path = kind.route.split(" ")
    in_path = frozenset(re.findall(r"{(\w+)", path))
    rest = [item for item in kind.fields("route") if item.name not in in_path]
    is_query = method in {"GET", "DELETE"}
    model: Any = request_model(kind, "route", but=in_path, is_query=is_query)

    def answered(caller: Any, request: Any = None, **named: str) -> Any:
        given: dict[str, Any] = {} if request is None else dict(request)
        page = {name: given.pop(name) for name in ("cursor", "limit") if kind.member}
        found = kind(**given, **named).run(root, operations.Caller(caller))
        if not isinstance(found, Listing):
            return found
        items = [
            item for item in found.items
            if found.is_shown(item) or found.cursor_of(item) == page["cursor"]
        ]  # fmt: skip
        part, more = slice_of(items, map(found.cursor_of, items), **page)
        return {kind.member: list(found.describe(part)), "next_cursor": more}

    parameters: dict[str, tuple[Any, Any]] = dict.fromkeys(sorted(in_path), (str, ...))
    parameters["caller"] = (Caller, ...)
    if is_query and (rest or kind.member):
        parameters["request"] = Annotated[model, Query()], ...
    elif rest:
        is_optional = not any(item.is_required for item in rest) and bool(in_path)
        parameters["request"] = (model | None, None) if is_optional else (model, ...)
    answered.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
                default=inspect.Parameter.empty if default is ... else default,
            )
            for name, (annotation, default) in parameters.items()
        ]
    )  # fmt: skip
    answered.__name__ = kind.endpoint or kind.command.split(" ")[-1]
    answered.__doc__ = kind.__doc__
    routes.add(
        method, path, kind.summary, needs=kind.needs, shape=kind.result,
        status=kind.status, fails=kind.fails,
    )(answered)  # fmt: skip
