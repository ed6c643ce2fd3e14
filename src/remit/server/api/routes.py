"""The declaration of routes: permissions, failures, and answers page by page."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import dump
from remit.ledger import Erased, LedgerEntry
from remit.operations import result_form
from remit.operations.results import Error
from remit.server.guard import CONTEXT, IDENTITY
from remit.server.refusals import HttpError
from remit.server.request_context import RequestContext

_FULL_BYTES = 8 * 1024 * 1024
_MEANINGS = {
    400: "The request is invalid.",
    401: "The key is missing, unknown, expired or revoked.",
    403: "The role of the key lacks the permission.",
    404: "The object does not exist.",
    409: "The request conflicts with the present state, such as a name that is taken.",
}
_FORMATS = {"text/plain": {"type": "string"}, "text/html": {"type": "string"},
            "application/octet-stream": {"type": "string", "format": "binary"}}  # fmt: skip

_T = TypeVar("_T")
_Route = TypeVar("_Route", bound=Callable[..., Any])

Listed = tuple[str, str, Any]
"""A cursor, the list that the item belongs to, and the item."""


async def _caller(request: Request) -> Identity:
    identity: Identity = request.scope[IDENTITY]
    return identity


Caller = Annotated[Identity, Depends(_caller)]
"""The authenticated caller."""


async def _context(request: Request) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    return context


Context = Annotated[RequestContext, Depends(_context)]
"""The session and the person that the request's headers name."""


class Routes(APIRouter):
    """Routes under ``/api`` with a common tag in the OpenAPI document.

    Args:
        tag: name of the group in the OpenAPI document.
    """

    def __init__(self, tag: str) -> None:
        super().__init__(prefix="/api", tags=[tag])

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        needs: str,
        shape: str = "",
        media_type: str = "text/plain",
        status: int = 200,
        fails: Iterable[int] = (),
    ) -> Callable[[_Route], _Route]:
        """Return a decorator that adds a function as a route; its result is the answer's body.

        A caller without the permission is answered 403 before the function runs. The decorator
        returns the function unchanged.

        Args:
            method: the HTTP method.
            path: path below ``/api``.
            summary: text for the OpenAPI document.
            needs: the needed permission of :data:`remit.gateway.auth.PERMISSIONS`; of several
                joined with " or ", one is enough.
            shape: name of the form of a JSON body; empty for text or bytes of ``media_type``, or
                for a response that streams it.
            media_type: the type of a body without a shape.
            status: the status of success.
            fails: statuses of failure in addition to those of every route, and 404 of a path with
                parameters.
        """
        statuses = {400, 401, 403, *fails, *([404] if "{" in path else [])}
        responses: dict[int | str, dict[str, Any]] = {
            code: {"model": Error, "description": _MEANINGS[code]} for code in sorted(statuses)
        }
        # For example, a body is too large or too slow, or the database does not answer.
        responses["default"] = {"model": Error, "description": "Any other failure."}
        if not shape:
            content = {media_type: {"schema": _FORMATS[media_type]}}
            responses[status] = {
                "description": "The exact bytes of the record or document.",
                "content": content,
            }

        def decorate(function: _Route) -> _Route:
            @functools.wraps(function)
            def answered(*args: Any, **kwargs: Any) -> Response:
                value = function(*args, **kwargs)
                if isinstance(value, Response):  # a stream
                    return value
                if not shape:
                    return Response(value, status, media_type=media_type)
                return answer(value, status)

            self.add_api_route(
                path,
                answered,
                methods=[method],
                summary=summary,
                status_code=status,
                response_model=result_form(shape) if shape else None,
                # The document shows the shape only where the class names a media type.
                response_class=JSONResponse if shape else Response,
                responses=responses,
                dependencies=[Depends(_allowing(needs))],
            )
            return function

        return decorate


def _allowing(needs: str) -> Callable[..., Any]:
    async def check(request: Request, caller: Caller) -> None:
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


def page_of(found: Iterable[Listed], limit: int, *lists: str) -> dict[str, Any]:
    """Return the first ``limit`` items in their lists, and the cursor of the next page.

    A page of large items ends earlier but has at least one item.

    Args:
        found: cursor, list name and value of each item; each name is one of ``lists``.
        limit: most items.
        lists: names of the lists.

    Returns:
        An object with each list, whose items are encoded, and ``next_cursor``: the cursor of the
        last item of the page, after which the next page begins, or None on the last page.
    """
    page: dict[str, Any] = {name: [] for name in lists}
    size, last, number = 0, "", 0
    for cursor, name, item in found:
        if number == limit or size >= _FULL_BYTES:
            return {**page, "next_cursor": last}
        encoded = _dump(item)
        page[name].append(orjson.Fragment(encoded))
        size, last, number = size + len(encoded), cursor, number + 1
    return {**page, "next_cursor": None}


def slice_of(
    items: Sequence[_T], cursors: Iterable[str], cursor: str | None, limit: int
) -> tuple[list[_T], str | None]:
    """Return the items after ``cursor``, and the cursor of the next page; None at the end.

    Args:
        items: all items of the list.
        cursors: a unique text for each item, in the same order.
        cursor: the cursor of the last item of the previous page; ``None`` for the first page.
        limit: largest number of items.

    Raises:
        InvalidInputError: the list has no such cursor.
    """
    places = list(cursors)
    first = 0
    if cursor is not None:
        if cursor not in places:
            raise InvalidInputError(
                "The cursor is unknown.", next_step="Request the first page without a cursor."
            )
        first = places.index(cursor) + 1
    end = first + limit
    more = places[end - 1] if end < len(places) else None
    return list(islice(items, first, end)), more


def _dump(value: Any) -> bytes:
    return dump(value, _plain, orjson.OPT_PASSTHROUGH_DATACLASS)


def _plain(value: Any) -> Any:
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, LedgerEntry):
        return value.to_dict()
    raise TypeError(type(value).__name__)
