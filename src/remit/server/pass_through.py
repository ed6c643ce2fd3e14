"""Requests that call no model, passed on to the provider of the client's own dialect.

:data:`remit.providers.wire.PASSED_PATHS` lists the requests. The steps of one:

1. Authenticate the caller, and check the key's allow-list if the request changes something.
2. Check that the caller owns the objects that the path names, and that no text of the request is
   the id of another caller's object.
3. Relay a read without recording it; a list shows the caller's own objects.
4. Record a change as a call: ``DISPATCH``, request, ``EXCHANGE``. New objects get their owner in
   the transaction of the ``EXCHANGE``.
5. After the deletion of an object, erase the content of the entry that made it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from remit.gateway import owner_of
from remit.gateway.provider_objects import KeptObject, keep, texts_in
from remit.kernel.budget_values import Amount
from remit.kernel.json_text import JsonTextError, load, load_unique
from remit.ledger import Content, LedgerClient, LedgerEntry, Transaction
from remit.providers import Body, ProviderResponse
from remit.providers.wire import (
    BodyError,
    Endpoint,
    ObjectBody,
    PassedPath,
    find_passed,
    is_refused,
)
from remit.server.answers import upstream_answer
from remit.server.asgi import Receive, Scope, Send, shape_of
from remit.server.object_lists import list_own
from remit.server.paths import Handler, split_prefix
from remit.server.provider_objects import ObjectChange, ProviderDoor, refused, with_query
from remit.server.refusals import HttpError
from remit.server.relay import Relay
from remit.server.request import AsgiRequest
from remit.server.request_context import AuthenticatedRequest
from remit.server.upload import FormUpload, read_form


class PassThrough:
    """The endpoints of requests that call no model.

    :meth:`find` gives the handlers; these raise HttpError for refusals, which the application
    answers.

    Args:
        door: passes requests to providers, and knows the owners.
    """

    def __init__(self, door: ProviderDoor) -> None:
        self._door = door

    def find(self, scope: Scope) -> dict[str, Handler]:
        """Return the handlers of a request's path, keyed by method; empty if none is passed on.

        A path of both dialects belongs to the dialect that path and headers of the request show.
        Authentication and ownership are checked by the handlers, not here.

        Args:
            scope: ASGI's scope of the request.

        Raises:
            HttpError: 403, the path manages the provider's account, gives out its credentials, or
                is realtime.
        """
        dialects, path = split_prefix(scope["path"])
        if is_refused(path):
            raise HttpError(
                403, "path_refused", f"Remit does not pass on {scope['path'][:200]}: paths that "
                "manage the provider's account, and realtime, are for the operator's own key."
            )  # fmt: skip
        shape = shape_of(scope)
        for dialect in sorted(dialects, key=lambda one: one != shape):
            rows, ids = find_passed(dialect, path)
            if rows:
                return {method: partial(self._serve, row, ids) for method, row in rows.items()}
        return {}

    async def _serve(
        self, row: PassedPath, ids: tuple[str, ...], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request: relay a read, or record a change as a call.

        Raises:
            HttpError: 403, the key's allow-list does not have the request; 404, the request names
                an object that the caller does not own; 402, a limit in US dollars refuses a request
                without a price; 400, 413 or 415, the body cannot be passed on; and as
                :meth:`ProviderDoor.change`.
        """
        door = self._door
        caller = await door.caller(scope)
        if not caller.identity.may_pass(row):
            raise _not_listed(row)
        found = await door.find(ids[0], row.kind, caller, row.endpoint) if ids else None
        query = unquote_plus(scope.get("query_string", b"").decode("latin-1"))
        await door.require_own(texts_in([*ids[1:], query]), caller)
        path = with_query(row.upstream(ids), scope)
        if row.is_list and not row.changes:
            await list_own(door, row.endpoint, row.kind, scope, send)
            return
        provider_id = found.provider_id if found is not None else door.provider_for(row.endpoint)
        if not row.changes:
            await door.relay(provider_id, path, caller, send, receive)
            return
        body, upload = await self._body(row, path, caller, receive)
        request = AsgiRequest(scope, receive, send)
        relay = Relay(body, request)
        if row.method == "DELETE" and found is not None and row.template.count("{") == 1:
            response = await door.delete(
                caller, found, body, path=path, entries=partial(_entries_of, row.endpoint)
            )
        else:
            response = await door.change(
                caller, provider_id, body, method=row.method, path=path, upload=upload, sink=relay,
                amount=_amount(row, caller), on_record=_note(row, provider_id, path, caller),
            )  # fmt: skip
        if relay.started:
            relay.finish(response)
        else:
            request.answer(upstream_answer(response))
        await request.drain()

    async def _body(
        self, row: PassedPath, path: str, caller: AuthenticatedRequest, receive: Receive
    ) -> tuple[Body, FormUpload | None]:
        """Return the body of a change; a long form with the upload that is still to be read."""
        if caller.headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data"):
            allow = partial(self._allow, caller)
            return await read_form(self._door.settings, row.endpoint, caller, receive, allow)
        raw = await self._door.read(caller, receive)
        if not raw.strip():
            return ObjectBody.without_text(row.endpoint, {"method": row.method, "path": path}), None
        try:
            body = await asyncio.to_thread(_read, row.endpoint, raw)
        except BodyError as error:
            raise refused(error) from error
        texts = await asyncio.to_thread(texts_in, body.value)
        await self._door.require_own(texts, caller, body)
        _check_models(_models_in(body.value), caller)
        return body, None

    async def _allow(self, caller: AuthenticatedRequest, fields: list[tuple[str, str]]) -> None:
        """Raise HttpError if a form names an object or a model that is not the caller's."""
        await self._door.require_own(texts_in([text for field in fields for text in field]), caller)
        _check_models([text for name, text in fields if name == "model"], caller)


def _read(endpoint: Endpoint, raw: bytes) -> ObjectBody:
    """Return the parsed object of a body.

    Raises:
        BodyError: the body is not a JSON object, or a member of an object in it occurs twice, since
            servers differ which of the two counts.
    """
    body = ObjectBody.read_object(endpoint, raw)
    try:
        load_unique(raw, repair=True)
    except JsonTextError as error:
        raise BodyError(error.message) from error
    body.model = ""  # Nothing of the request is a model call.
    return body


def _check_models(models: list[str], caller: AuthenticatedRequest) -> None:
    """Raise HttpError 403 if a request names a model that the key may not use."""
    for model in models:
        if not caller.identity.may_use_model(model):
            said = f"This key may not use the model {model[:100]}; `GET /v1/models` lists its own."
            raise HttpError(403, "model_not_allowed", said, param="model")


def _models_in(value: Any) -> list[str]:
    """Return the models that a body names, at any depth, as text or as an object with an id."""
    found: list[Any] = []
    left = [value]
    while left:
        value = left.pop()
        if type(value) is list:
            left += value
        elif type(value) is dict:
            left += value.values()
            model = value.get("model")
            named = model.get("id") if type(model) is dict else model
            found += named if type(named) is list else [named]
    return [model for model in found if isinstance(model, str)]


def _amount(row: PassedPath, caller: AuthenticatedRequest) -> Amount:
    """Return the amount to reserve: nothing, or an unknown cost that a limit in USD refuses."""
    if row.is_free or caller.identity.may_pass(row, unpriced=True):
        return Amount(0, 0)
    step = f"`remit key set KEY --pass-through-unpriced '{row.name}'` lets it pass"
    return Amount(0, None, unbounded=step)


def _note(
    row: PassedPath, provider_id: str, path: str, caller: AuthenticatedRequest
) -> ObjectChange:
    """Return the hook that records the request line, and the owners of the new objects."""
    owner = owner_of(caller.identity)

    def keep_new(tx: Transaction, exchange_id: str, answer: ProviderResponse) -> None:
        body = answer.reply.body if answer.reply is not None else b""
        new = [(_text_at(body, member), kind) for kind, member in row.makes]
        keep(tx, [KeptObject(name, kind, provider_id, owner, exchange_id) for name, kind in new])

    return ObjectChange(keep_new, {"request_line": Content(f"{row.method} {path}")})


def _text_at(answer: bytes, member: tuple[str, ...]) -> str:
    """Return a member's text in an answer, or in a stream's first event with that member.

    Empty if the member is missing everywhere.
    """
    lines = [line[5:] for line in answer.splitlines() if line.startswith(b"data:")]
    for text in (answer, *lines):
        try:
            value = load(text)
        except JsonTextError:
            continue
        for name in member:
            value = value.get(name) if type(value) is dict else None
        if isinstance(value, str):
            return value
    return ""


def _entries_of(endpoint: Endpoint, ledger: LedgerClient, made: LedgerEntry) -> list[str]:
    """Return the id of the entry that made an object; empty if a call of a model made it."""
    return [made.id] if made.metadata.get("wire") == endpoint.name else []


def _not_listed(row: PassedPath) -> HttpError:
    command = f"`remit key set KEY --pass-through '{row.name}'`"
    said = f"This key may not send {row.name}; the operator allows it with {command}."
    return HttpError(403, "pass_through_not_allowed", said)
