"""``/v1/batches`` and ``/v1/messages/batches``.

The gateway reserves a batch's cost when it is created, and records its results when the batch has
ended and somebody reads it.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import orjson

from remit.gateway import BatchPlan, BatchRefusedError, entries_of_batch, owner_of
from remit.gateway.provider_objects import KeptObject
from remit.kernel.errors import RemitError
from remit.kernel.exchange import RouteOutcome
from remit.kernel.json_splice import elements, set_member, spans, value_at
from remit.kernel.json_text import JsonTextError, RepeatedNameError, load
from remit.providers import ProviderError
from remit.providers.wire import BATCHES, FILES, BodyError, Dialect, Endpoint, ObjectBody
from remit.server.answers import reply_upstream
from remit.server.asgi import Receive, Scope, Send, reply_raw
from remit.server.object_lists import list_own
from remit.server.paths import Handler, ObjectHandler, paths_of
from remit.server.provider_objects import ProviderDoor, refused, with_query
from remit.server.refusals import HttpError, invalid
from remit.server.request_context import AuthenticatedRequest

_STATUS = {"MODEL_NOT_ALLOWED": 403, "FILE_NOT_FOUND": 404, "PROVIDER_NOT_FOUND": 404}
_LINE = re.compile(rb"[^\r\n]+")
_PATHS: dict[Dialect, str] = {"openai": "/batches", "anthropic": "/messages/batches"}


class Batches:
    """The endpoints of batches, in both dialects.

    Creations, cancellations and deletions are recorded as calls. The results of an ended batch are
    recorded before a client sees the batch or its results. The handlers raise HttpError for
    refusals, which the application answers. The object holds no state of batches.

    Args:
        door: passes requests to providers, and knows the owners.
    """

    def __init__(self, door: ProviderDoor) -> None:
        self._door = door

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the handlers that create and list batches, keyed by (method, path).

        Each dialect has its own paths.
        """
        return {
            (method, path): partial(handler, dialect)
            for dialect, tail in _PATHS.items()
            for path in paths_of(tail, dialect)
            for method, handler in (("POST", self._create), ("GET", self._list))
        }

    def templates(self) -> dict[tuple[str, str], ObjectHandler]:
        """Return the handlers of single batches, keyed by (method, path template).

        A batch can be shown and cancelled. In the dialect of Anthropic its results can also be
        read, and the batch deleted. Paths with all prefixes of the dialect are included.
        """
        found: dict[tuple[str, str], ObjectHandler] = {}
        for dialect, tail in _PATHS.items():
            for path in paths_of(tail, dialect):
                found["GET", f"{path}/{{id}}"] = partial(self._show, dialect)
                found["POST", f"{path}/{{id}}/cancel"] = partial(self._cancel, dialect)
                if dialect == "anthropic":
                    found["GET", f"{path}/{{id}}/results"] = self._results
                    found["DELETE", f"{path}/{{id}}"] = self._delete
        return found

    async def _create(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._door.caller(scope)
        endpoint = BATCHES[dialect]
        provider_id = self._door.provider_for(endpoint)
        raw = await self._door.read(caller, receive)
        try:
            body = await asyncio.to_thread(_read, endpoint, raw)
        except BodyError as error:
            raise refused(error) from error
        if dialect == "anthropic":
            texts = await asyncio.to_thread(_requests_in, raw)
        else:
            texts = await self._lines(body, caller)
            body.lines = list(texts.values())
        path = body.value.get("endpoint")
        plan = partial(
            self._door.batches.plan, self._door.request(caller, body), caller.identity,
            provider_id, dialect, texts, path if isinstance(path, str) else "",
        )  # fmt: skip
        try:
            batch: BatchPlan = await asyncio.to_thread(plan)
        except BatchRefusedError as error:
            status = _STATUS.get(error.code, 400)
            raise HttpError(status, error.code, error.message, param=error.param) from error
        try:
            response = await self._door.change(
                caller, provider_id, body,
                path=with_query(endpoint.path, scope), amount=batch.amount, on_record=batch,
            )  # fmt: skip
        except HttpError as error:
            if error.code == "UNPRICED" and batch.unpriced:
                error.message = f"{batch.unpriced}. {error.message}"
            raise
        await reply_upstream(send, response)

    async def _lines(self, body: ObjectBody, caller: AuthenticatedRequest) -> dict[int, bytes]:
        """Return the requests of a batch from its input file at the provider.

        The requests are the lines that are not blank, keyed by their place in the file from 0.

        Raises:
            HttpError: 400, the body names no file, or the provider does not return it; 404, the
                caller does not own the file.
        """
        file_id = body.value.get("input_file_id")
        if not isinstance(file_id, str):
            raise invalid("input_file_id", "input_file_id is missing.")
        found = await self._door.find(
            file_id, "file", caller, FILES["openai"], param="input_file_id"
        )
        path = f"{FILES['openai'].path}/{quote(file_id, safe='')}/content"
        status, _, data = await self._door.fetch(found.provider_id, path, caller)
        if status != 200:
            raise invalid("input_file_id", "The provider did not return the input file.")
        return await asyncio.to_thread(_lines_in, data)

    async def _list(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._door.caller(scope)
        # A batch is shown as ended when its results are on record.
        await self._door.batches.poll(owner_of(caller.identity))
        endpoint = BATCHES[dialect]
        await list_own(self._door, endpoint, "batch", scope, send, partial(_own_url, scope))

    async def _show(
        self, dialect: Dialect, batch_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        caller = await self._door.caller(scope)
        found = await self._door.find(batch_id, "batch", caller, BATCHES[dialect])
        path = f"{BATCHES[dialect].path}/{quote(batch_id, safe='')}"
        status, headers, body = await self._door.fetch(
            found.provider_id, with_query(path, scope), caller
        )
        await self._settle(found.object_id)
        await reply_raw(send, status, headers, _own_url(scope, body))

    async def _results(self, batch_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._door.caller(scope)
        found = await self._door.find(batch_id, "batch", caller, BATCHES["anthropic"])
        await self._settle(found.object_id)
        path = f"{BATCHES['anthropic'].path}/{quote(batch_id, safe='')}/results"
        await self._door.relay(found.provider_id, with_query(path, scope), caller, send)

    async def _cancel(
        self, dialect: Dialect, batch_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        caller, found, body, path = await self._about(
            dialect, batch_id, scope, receive, "POST", "/cancel"
        )
        response = await self._door.change(caller, found.provider_id, body, path=path)
        with suppress(HttpError):  # The next request for the batch settles it.
            await self._settle(found.object_id)
        await reply_upstream(send, response)

    async def _delete(self, batch_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        caller, found, body, path = await self._about(
            "anthropic", batch_id, scope, receive, "DELETE", ""
        )
        await self._settle(found.object_id)
        response = await self._door.delete(caller, found, body, path=path, entries=entries_of_batch)
        if response.outcome is RouteOutcome.SUCCESS:
            await self._settle(found.object_id, gone=True)
        await reply_upstream(send, response)

    async def _about(
        self, dialect: Dialect, batch_id: str, scope: Scope, receive: Receive, method: str,
        tail: str,
    ) -> tuple[AuthenticatedRequest, KeptObject, ObjectBody, str]:  # fmt: skip
        """Return the caller of a request for a batch, the batch, and the body and path to send.

        The client's body is read and dropped.

        Raises:
            HttpError: 403, the caller may not call; 404, the caller owns no such batch.
        """
        caller = await self._door.caller(scope)
        found = await self._door.find(batch_id, "batch", caller, BATCHES[dialect])
        await self._door.read(caller, receive)
        path = f"{BATCHES[dialect].path}/{quote(batch_id, safe='')}{tail}"
        body = ObjectBody.without_text(BATCHES[dialect], {"method": method, "path": path})
        return caller, found, body, with_query(path, scope)

    async def _settle(self, batch_id: str, *, gone: bool = False) -> None:
        """Record the results of an ended batch, before a client sees the results.

        Args:
            batch_id: id of the batch.
            gone: True if the batch was deleted.

        Raises:
            HttpError: the results cannot be read (502) or recorded (503).
        """
        try:
            await self._door.batches.settle(batch_id, gone=gone)
        except ProviderError as error:
            raise HttpError(
                502, error.code, "The results cannot be read now; try again later."
            ) from error
        except RemitError as error:
            said = "The results cannot be recorded now; try again later."
            raise HttpError(503, "record_unavailable", said, retry_after_s=1) from error


def _own_url(scope: Scope, text: bytes) -> bytes:
    """A batch whose ``results_url`` leads here: clients send their key there."""
    try:
        value = load(text)
    except JsonTextError:
        return text
    if not isinstance(value, dict) or not isinstance(value.get("results_url"), str):
        return text
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    scheme = headers.get(b"x-forwarded-proto", b"").decode("latin-1")
    scheme = scheme if scheme in ("http", "https") else scope.get("scheme", "http")
    before, _, _ = scope["path"].partition("/messages/batches")
    batch_id = quote(str(value.get("id")), safe="")
    url = f"{scheme}://{host}{before}/messages/batches/{batch_id}/results"
    return set_member(text, ("results_url",), orjson.dumps(url))


def _read(endpoint: Endpoint, raw: bytes) -> ObjectBody:
    """Return the parsed body that creates a batch.

    Raises:
        BodyError: the body is not a JSON object, or a member that decides what runs occurs twice,
            since servers differ which of the two counts.
    """
    body = ObjectBody.read_object(endpoint, raw)
    try:
        spans(raw, ("input_file_id", "endpoint", "requests"), unique=True)
    except RepeatedNameError as error:
        raise BodyError(error.message, error.message.partition(" ")[0]) from error
    return body


def _requests_in(raw: bytes) -> dict[int, bytes]:
    """Return the text of each request in the body of Anthropic's batches, keyed by its place;
    empty without a list.
    """
    listed = value_at(raw, ("requests",)) or b""
    return dict(enumerate(elements(listed))) if listed[:1] == b"[" else {}


def _lines_in(data: bytes) -> dict[int, bytes]:
    """Return the lines of a file that are not blank, keyed by their place from 0."""
    lines: dict[int, bytes] = {}
    number = end = 0
    for found in _LINE.finditer(data):
        gap = data[end : found.start()]
        number += gap.count(b"\n") + gap.count(b"\r") - gap.count(b"\r\n")
        end = found.end()
        if found[0].strip():
            lines[number] = found[0]
    return lines
