"""The routes of all operations: permissions, failures, and answers page by page."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from itertools import chain
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from remit import operations
from remit.gateway.auth import Identity
from remit.kernel.json_text import dump
from remit.operations import Feed, Operation, json_data, request_model, result_form
from remit.operations.results import Error
from remit.runtime.operations import all_operations
from remit.server.api_guard import CONTEXT, IDENTITY
from remit.server.asgi import Receive, Scope, Send
from remit.server.refusals import HttpError

_PAGE = ("cursor", "limit")
_FULL_BYTES = 8 * 1024 * 1024
_MEANINGS = {
    400: "The request is invalid.",
    401: "The key is missing, unknown, expired or revoked.",
    403: "The role of the key lacks the permission.",
    404: "The object does not exist.",
    409: "The request conflicts with the present state, such as a name that is taken.",
}
_FORMATS = {"text/plain": {"type": "string"}, "text/html": {"type": "string"},
            "application/json": {"type": ["object", "array"]},
            "application/octet-stream": {"type": "string", "format": "binary"}}  # fmt: skip


@cache
def operation_routes() -> list[APIRoute]:
    """Return the routes of all operations, grouped by their tag in the OpenAPI document.

    Their paths begin with ``/api``; an operation without a route is left out. All applications of
    a process share the routes, as each is slow to make: an operation runs in the open root
    ``app.state.root`` of the application that got the request.
    """
    kinds: dict[str, list[Operation]] = {}
    for kind in all_operations():
        if kind.route:
            kinds.setdefault(kind.tag or kind.route.split("/")[1], []).append(kind)
    router = APIRouter(prefix="/api")
    for tag, group in kinds.items():
        for kind in group:
            _add(router, kind, tag)
    return [route for route in router.routes if isinstance(route, APIRoute)]


def _add(router: APIRouter, kind: Operation, tag: str) -> None:
    method, path = kind.route.split(" ")
    name = kind.endpoint or kind.command.split(" ")[-1]

    def answered(http: Request, request: Any = None, **named: str) -> Response:
        given = (
            {name: getattr(request, name) for name in request.model_fields_set} if request else {}
        )
        page = {name: getattr(request, name) for name in _PAGE} if kind.member else {}
        stated = {name: value for name, value in given.items() if name not in page}
        by = operations.Caller(http.scope[IDENTITY], subject_id=http.scope[CONTEXT].subject_id)
        found = kind.value(http.app.state.root, by, **stated, **named)
        if isinstance(found, Generator):
            return Streamed(found, kind.media_type, f"remit-{name}")
        if kind.media_type:
            return Response(found, kind.status, media_type=kind.media_type)
        return answer(
            _page_of(found, kind.member, **page) if isinstance(found, Feed) else found, kind.status
        )

    answered.__signature__ = _signature(kind)  # type: ignore[attr-defined]
    answered.__name__, answered.__doc__ = name, kind.doc
    router.add_api_route(
        path, answered, methods=[method], tags=[tag], summary=kind.summary, status_code=kind.status,
        response_model=result_form(kind.result) if kind.result else None,
        # The document shows the form only where the class names a media type.
        response_class=JSONResponse if kind.result else Response,
        responses=_responses(kind), dependencies=[Depends(_allowing(kind.needs))],
    )  # fmt: skip


def _signature(kind: Operation) -> inspect.Signature:
    """Return the parameters of a route, from which FastAPI reads and checks a request."""
    method, path = kind.route.split(" ")
    in_path = frozenset(re.findall(r"{(\w+)", path))
    fields = kind.fields("route")
    rest = [item for item in fields if item.name not in in_path]
    is_query = method in {"GET", "DELETE"}
    model: Any = request_model(kind, "route", but=in_path, is_query=is_query)
    parameters: dict[str, tuple[Any, Any]] = {
        item.name: (item.type, ...) for item in fields if item.name in in_path
    }
    parameters["http"] = Request, ...
    if is_query and (rest or kind.member):
        parameters["request"] = Annotated[model, Query()], ...
    elif rest:
        is_optional = not any(item.is_required for item in rest) and bool(in_path)
        parameters["request"] = (model | None, None) if is_optional else (model, ...)
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
                default=inspect.Parameter.empty if default is ... else default,
            )
            for name, (annotation, default) in parameters.items()
        ]
    )  # fmt: skip


def _responses(kind: Operation) -> dict[int | str, dict[str, Any]]:
    """Return the failures of a route, and the format of a body that is not JSON."""
    statuses = {400, 401, 403, *kind.fails, *([404] if "{" in kind.route else [])}
    found: dict[int | str, dict[str, Any]] = {
        code: {"model": Error, "description": _MEANINGS[code]} for code in sorted(statuses)
    }
    # For example, a body is too large or too slow, or the database does not answer.
    found["default"] = {"model": Error, "description": "Any other failure."}
    if kind.media_type:
        found[kind.status] = {
            "description": "The exact bytes of the record or document.",
            "content": {kind.media_type: {"schema": _FORMATS[kind.media_type]}},
        }
    return found


def _allowing(needs: str) -> Callable[..., Any]:
    async def check(request: Request) -> None:
        caller: Identity = request.scope[IDENTITY]
        if not any(map(caller.may, needs.split(" or "))):
            why = f"The role {caller.role} may not {needs.replace('_', ' ')}."
            raise HttpError(403, "forbidden", why)
        given = Counter(name for name, _ in request.query_params.multi_items())
        if twice := next((name for name in given if given[name] > 1), ""):
            raise HttpError(400, "invalid_input", f"{twice} is given twice.", param=twice)

    return check


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON answer; entries and erased content have the form of the command line.

    Args:
        value: JSON values, entries, or erased content.
        status: the HTTP status.
    """
    return Response(_dump(value), status, media_type="application/json")


def _page_of(found: Feed, member: str, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return a page of at most ``limit`` items, which are encoded, and the next page's cursor.

    A page of large items ends earlier but has at least one item. ``next_cursor`` is the cursor of
    the last item of the page, or None on the last page.
    """
    page: dict[str, Any] = {name: [] for name in found.lists or (member,)}
    size, last, number = 0, "", 0
    for place, item in found.read(cursor, limit + 1):
        if number == limit or size >= _FULL_BYTES:
            return {**found.rest, **page, "next_cursor": last}
        name, value = item if found.lists else (member, item)
        encoded = _dump(value)
        page[name].append(orjson.Fragment(encoded))
        size, last, number = size + len(encoded), place, number + 1
    return {**found.rest, **page, "next_cursor": None}


def _dump(value: Any) -> bytes:
    return dump(value, json_data, orjson.OPT_PASSTHROUGH_DATACLASS)


class Streamed(StreamingResponse):
    """A streamed file. Reading the ledger ends with the answer, even if the client is gone.

    Args:
        parts: yields the file; its first piece is made at once, and its error is raised then.
        media_type: the type of the file.
        name: name under which browsers save the file, without its ending.
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
