"""Routes made from operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse

from remit import operations
from remit.operations import Feed, Listing, Operation, RootPort, request_model
from remit.runtime.operations import all_operations
from remit.server.api.routes import Caller, Context, Routes, page_of, slice_of
from remit.server.replies import Receive, Scope, Send

_PAGE = ("cursor", "limit")


def operation_routes(root: RootPort) -> Iterator[Routes]:
    """Yield the routes of all operations, grouped by tag.

    Args:
        root: the open root in which the operations run.
    """
    groups: dict[str, Routes] = {}
    for kind in all_operations():
        if kind.route:
            tag = kind.tag or kind.route.split("/")[1]
            _add(groups.setdefault(tag, Routes(tag)), kind, root)
    yield from groups.values()


def _add(routes: Routes, kind: type[Operation], root: RootPort) -> None:
    method, path = kind.route.split(" ")
    in_path = frozenset(re.findall(r"{(\w+)", path))
    fields = kind.fields("route")
    rest = [item for item in fields if item.name not in in_path]
    is_query = method in {"GET", "DELETE"}
    model: Any = request_model(kind, "route", but=in_path, is_query=is_query)

    def answered(caller: Any, context: Any, request: Any = None, **named: str) -> Any:
        given = (
            {name: getattr(request, name) for name in request.model_fields_set} if request else {}
        )
        page = {name: getattr(request, name) for name in _PAGE} if kind.member else {}
        stated = {name: value for name, value in given.items() if name not in page}
        by = operations.Caller(caller, subject_id=context.subject_id)
        found = kind(**stated, **named).run(root, by)
        if isinstance(found, Feed):
            cursor, limit = page["cursor"], page["limit"]
            pairs = found.read(cursor, limit + 1)
            lists = found.lists or (kind.member,)
            listed = (
                (place, *(item if found.lists else (kind.member, item))) for place, item in pairs
            )
            return {**found.rest, **page_of(listed, limit, *lists)}
        if isinstance(found, Generator):
            return Streamed(found, kind.media_type, f"remit-{answered.__name__}")
        if not isinstance(found, Listing):
            return found
        items = [
            item for item in found.items
            if found.is_shown(item) or found.cursor_of(item) == page["cursor"]
        ]  # fmt: skip
        part, more = slice_of(items, map(found.cursor_of, items), **page)
        return {**found.rest, kind.member: list(found.describe(part)), "next_cursor": more}

    parameters: dict[str, tuple[Any, Any]] = {
        item.name: (item.type, ...) for item in fields if item.name in in_path
    }
    parameters |= {"caller": (Caller, ...), "context": (Context, ...)}
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
        **({"media_type": kind.media_type} if kind.media_type else {}),
        status=kind.status, fails=kind.fails,
    )(answered)  # fmt: skip


class Streamed(StreamingResponse):
    """A streamed file. Reading the ledger ends with the answer, even if the client is gone.

    Args:
        parts: yields the file; its first piece is made at once, and its error is raised then.
        media_type: the type of the file.
        name: name of the file, without its ending.
    """

    def __init__(self, parts: Generator[str], media_type: str, name: str) -> None:
        first = next(parts)  # a report that cannot be made is refused before the answer begins
        ending = media_type.partition("/")[2]
        headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}
        super().__init__(chain([first], parts), media_type=media_type, headers=headers)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file (ASGI 3)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._parts.close()
