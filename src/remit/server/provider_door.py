"""Requests that are passed on to a provider of the client's own dialect, for objects it stores.

Objects are files, batches and responses. The gateway records each one's owner, and nobody else can
see it. Requests that change something are recorded; requests that only read are not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from remit.gateway import Attempt, OnRecord, owner_of
from remit.gateway.objects import KeptObject, Kind, Objects, forget
from remit.kernel.budget import Amount
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_text import JsonTextError, elements, load, spans
from remit.ledger import (
    EntryArchivedError,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    Transaction,
)
from remit.providers import (
    Body,
    Outgoing,
    ProviderError,
    ProviderResponse,
    Timeouts,
    UpstreamProvider,
    passed_on,
)
from remit.providers.wire import BodyError, Endpoint
from remit.runtime import Runtime
from remit.server.answers import failure, upstream_answer
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.content_codec import read_decoded
from remit.server.refusals import HttpError, no_record
from remit.server.replies import Receive, Scope, Send, reply, reply_json

_MAX_LIST_BYTES = 32 * 1024 * 1024
_MAX_PAGES = 100
_PAGE = 20
_LIMIT = re.compile(r"[0-9]{1,9}")


class ProviderDoor:
    """Access to files, batches and responses that providers store.

    Args:
        runtime: the open root.
        authenticator: authenticates each request.
    """

    def __init__(self, runtime: Runtime, authenticator: Authenticator) -> None:
        self._gateway = runtime.gateway
        self.batches = runtime.gateway.batches
        self._authenticator = authenticator
        self._ledger = runtime.ledger
        self._objects = Objects(runtime.ledger)
        settings = runtime.loaded.settings
        self._server = settings.server
        gateway = settings.gateway
        self.timeouts = Timeouts(
            gateway.connect_timeout_ms / 1000, gateway.timeout_ms / 1000,
            gateway.idle_timeout_ms / 1000,
        )  # fmt: skip

    async def caller(self, scope: Scope) -> AuthenticatedRequest:
        """Authenticate a request, and return it with its caller.

        Raises:
            HttpError: 401 or 429 as :meth:`Authenticator.caller`; 403, the role may not call
                models.
        """
        caller = await self._authenticator.caller(scope)
        if not caller.identity.may("call"):
            role = caller.identity.role
            raise HttpError(
                403,
                "auth_error",
                f"The role {role} may not make calls; use a key of the role agent.",
            )
        return caller

    async def read(self, caller: AuthenticatedRequest, receive: Receive) -> bytes:
        """Return the decoded body of a request.

        Args:
            caller: the authenticated request.
            receive: ASGI's function.

        Raises:
            HttpError: as :func:`~remit.server.content_codec.read_decoded`.
        """
        server = self._server
        return await read_decoded(
            receive, caller.headers, server.max_body_bytes, server.body_timeout_s, caller.share
        )

    def has(self, provider_id: str) -> bool:
        """Return True if a provider is configured and is reached over HTTP.

        Args:
            provider_id: id of the provider.
        """
        return isinstance(self._gateway.providers.get(provider_id), UpstreamProvider)

    def provider_for(self, endpoint: Endpoint) -> str:
        """Return the id of the provider for an endpoint: the one named like its dialect, else the
        first.

        Args:
            endpoint: the endpoint that stores the objects.

        Raises:
            HttpError: 404, no configured provider has the endpoint.
        """
        speaking = [
            name
            for name, provider in self._gateway.providers.items()
            if isinstance(provider, UpstreamProvider) and provider.speaks(endpoint)
        ]
        if not speaking:
            kept, how = (
                endpoint.name.partition(".")[2],
                self._gateway.how_to_set_up(endpoint.dialect),
            )
            said = f"No configured provider stores {kept} in this dialect; {how}."
            raise HttpError(404, "provider_not_found", said)
        return endpoint.dialect if endpoint.dialect in speaking else speaking[0]

    async def delete(
        self,
        caller: AuthenticatedRequest,
        found: KeptObject,
        body: Body,
        *,
        path: str,
        entries: Callable[[LedgerClient, LedgerEntry], Sequence[str]],
    ) -> PromptResponse:
        """Have a provider delete an object, then erase the content of its entries.

        Content that other entries show as well stays.

        Args:
            caller: the authenticated owner.
            found: the object.
            body: the request to record.
            path: path of the upstream's URL.
            entries: returns the ids of the object's entries, given the entry that made it. Blocks.

        Returns:
            The call's response. Nothing is erased unless the provider deleted the object.

        Raises:
            HttpError: as :meth:`change`; 409, some of the content is archived or cannot be erased.
        """
        response = await self.change(
            caller, found.provider_id, body, method="DELETE", path=path,
            on_record=ObjectChange(lambda tx, exchange_id, answer: forget(tx, found.object_id)),
        )  # fmt: skip
        if response.outcome is not RouteOutcome.SUCCESS:
            return response

        def erase() -> None:
            made = self._ledger.read(found.entry_id, with_content=False)
            self._ledger.withdraw(
                entries(self._ledger, made),
                reason=f"DELETE {body.endpoint.path}/{found.object_id}",
                requested_by=caller.identity.name,
            )

        try:
            await asyncio.to_thread(erase)
        except (ErasureError, EntryArchivedError) as error:
            raise HttpError(409, "archived", error.message) from error
        return response

    async def find(self, object_id: str, kind: Kind, caller: AuthenticatedRequest) -> KeptObject:
        """Return a caller's object, from the record of owners. No provider is asked.

        Args:
            object_id: the provider's id of the object.
            kind: kind of the object.
            caller: the authenticated caller.

        Raises:
            HttpError: 404, there is no such object, or another caller owns it.
        """
        owner = owner_of(caller.identity)
        found = await asyncio.to_thread(self._objects.find, object_id, kind, owner)
        if found is None:
            raise HttpError(
                404,
                "not_found",
                f"This key has no {kind} {object_id[:100]}; list its objects to see their ids.",
                param="id",
            )
        return found

    def request(self, caller: AuthenticatedRequest, body: Body) -> PromptRequest:
        """Return the gateway's request in the caller's name. Nothing is sent.

        Args:
            caller: the authenticated caller.
            body: the body to send.

        Raises:
            HttpError: 400, as :meth:`Authenticator.request`.
        """
        return self._authenticator.request(caller, body)

    async def change(
        self,
        caller: AuthenticatedRequest,
        provider_id: str,
        body: Body,
        *,
        method: str = "POST",
        path: str = "",
        amount: Amount | None = None,
        on_record: OnRecord | None = None,
    ) -> PromptResponse:
        """Pass a request to a provider, and record it as a call.

        Args:
            caller: the authenticated caller.
            provider_id: id of the provider.
            body: the body to send.
            method: HTTP method.
            path: path of the upstream's URL; empty for the endpoint's own.
            amount: amount to reserve for the call; nothing if left out.
            on_record: writes more rows in the transaction that records the call.

        Returns:
            The response, which is the provider's reply also if that is an error.

        Raises:
            HttpError: nothing was sent, the provider did not answer or refused Remit's key, or the
                record cannot be written (503).
        """
        provider = self._provider(provider_id)
        request = self.request(caller, body)
        passed = provider.passing(request.headers or {})
        outgoing = Outgoing(body, passed, stream=False, method=method, path=path)
        try:
            response = await self._gateway.pass_on(
                replace(request, idempotency_key=None), provider_id, outgoing,
                identity=caller.identity, amount=amount or Amount(0, 0), on_record=on_record,
            )  # fmt: skip
        except RemitError as error:
            raise no_record(error) from error
        answered = response.reply is not None and response.error_code != "AUTH_ERROR"
        if not answered and response.outcome is not RouteOutcome.SUCCESS:
            raise failure(response)
        return response

    async def fetch(
        self, provider_id: str, path: str, caller: AuthenticatedRequest
    ) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """Read something from a provider; nothing is recorded.

        A body above the limit for lists is refused.

        Args:
            provider_id: id of the provider.
            path: path of the upstream's URL, with its query.
            caller: the authenticated caller, some of whose headers are passed on.

        Returns:
            The status, the headers that may be passed on, and the body.

        Raises:
            HttpError: 404, the provider is not configured; 502 or 504, there is no answer, or the
                provider refused Remit's key.
        """
        provider = self._provider(provider_id)
        try:
            async with await provider.fetch(
                path, self._passed(provider, caller), self.timeouts
            ) as came:
                _check_key(came.status)
                body = await came.read(_MAX_LIST_BYTES)
        except ProviderError as error:
            raise _unreachable(error) from error
        return came.status, passed_on(came.headers), body

    async def relay(
        self, provider_id: str, path: str, caller: AuthenticatedRequest, send: Send
    ) -> None:
        """Send a provider's object to the client as it arrives; an error is sent as a whole.

        Nothing is recorded.

        Args:
            provider_id: id of the provider.
            path: path of the upstream's URL, with its query.
            caller: the authenticated caller, some of whose headers are passed on.
            send: takes the answer.

        Raises:
            HttpError: as :meth:`fetch`.
            ProviderError: the connection broke after the answer began.
        """
        provider = self._provider(provider_id)
        try:
            came = await provider.fetch(path, self._passed(provider, caller), self.timeouts)
        except ProviderError as error:
            raise _unreachable(error) from error
        async with came:
            _check_key(came.status)
            headers = [(name.encode(), value.encode("latin-1", "replace"))
                       for name, value in passed_on(came.headers)]  # fmt: skip
            await send({"type": "http.response.start", "status": came.status, "headers": headers})
            if came.status >= 400:  # An error may quote the key, so it is masked as a whole.
                await send({"type": "http.response.body", "body": await came.read()})
                return
            async for piece in came.chunks():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def list_own(
        self,
        endpoint: Endpoint,
        kind: Kind,
        scope: Scope,
        send: Send,
        shown: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """Answer with the caller's own objects in a provider's list.

        At most ``_MAX_PAGES`` pages of the provider are read to fill one page of the answer.

        Args:
            endpoint: endpoint of the list.
            kind: kind of the objects.
            scope: the ASGI request, whose query limits the page.
            send: takes the answer.
            shown: changes the text of each object in the answer.

        Raises:
            HttpError: as :meth:`caller` and :meth:`fetch`.
        """
        caller = await self.caller(scope)
        provider_id = self.provider_for(endpoint)
        own = await asyncio.to_thread(self._objects.of_owner, kind, owner_of(caller.identity))
        query = _query(scope)
        limit = query.get("limit", "")
        wanted = int(limit) if _LIMIT.fullmatch(limit) else _PAGE
        after = "after_id" if endpoint.dialect == "anthropic" else "after"
        found: list[tuple[str, bytes]] = []
        more, value = True, dict[str, Any]()
        for _ in range(_MAX_PAGES):
            path = f"{endpoint.path}?{urlencode(query)}" if query else endpoint.path
            status, headers, raw = await self.fetch(provider_id, path, caller)
            listed = _listed(raw) if status == 200 else None
            if listed is None:
                await reply_raw(send, status, headers, raw)
                return
            value, items = listed
            found += [(name, text) for name, text in items if own.get(name) == provider_id]
            more = value.get("has_more") is True and bool(items)
            if not more or len(found) >= wanted or "before_id" in query:
                break
            query[after] = items[-1][0]
        more = more or len(found) > wanted
        found = found[:wanted]
        listing = {name: orjson.dumps(item) for name, item in value.items() if name != "data"}
        listing["data"] = b"[" + b",".join(shown(text) for _, text in found) + b"]"
        listing["has_more"] = b"true" if more and found else b"false"
        for name, at in (("first_id", 0), ("last_id", -1)):
            listing[name] = orjson.dumps(found[at][0] if found else None)
        body = b",".join(orjson.dumps(name) + b":" + text for name, text in listing.items())
        await reply_json(send, b"{" + body + b"}")

    def _provider(self, provider_id: str) -> UpstreamProvider:
        provider = self._gateway.providers.get(provider_id)
        if not isinstance(provider, UpstreamProvider):
            said = (
                f"The provider {provider_id} is no longer configured; add it to remit.toml again."
            )
            raise HttpError(404, "provider_not_found", said)
        return provider

    @staticmethod
    def _passed(provider: UpstreamProvider, caller: AuthenticatedRequest) -> dict[str, str]:
        given = {name.decode(): value.decode("latin-1") for name, value in caller.headers.items()}
        return provider.passing(given)


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A hook that changes the rows of owners in the transaction that records a call.

    Attributes:
        change: called with the transaction, the id of the ``EXCHANGE`` and the provider's answer.
    """

    change: Callable[[Transaction, str, ProviderResponse], None]

    @property
    def stated(self) -> dict[str, Any]:
        """No further metadata of the entry."""
        return {}

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Return False: the reservation ends with the call."""
        return False

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Change the rows."""
        self.change(tx, exchange_id, answer)


async def reply_upstream(send: Send, response: PromptResponse) -> None:
    """Send the provider's own reply, with the call's headers.

    Args:
        send: takes the answer.
        response: the call's response, which must have a reply.
    """
    await reply(send, upstream_answer(response))


def id_in(answer: bytes) -> str:
    """Return the ``id`` of a JSON object; empty if it has none or is not an object.

    Text that is not JSON gives an empty id.

    Args:
        answer: body of a provider's answer.
    """
    try:
        value = load(answer)
    except JsonTextError:
        return ""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def refused(error: BodyError) -> HttpError:
    """Return (not raise) the 400 for a body that cannot be passed on, with the field at fault.

    Args:
        error: the fault.
    """
    return HttpError(400, "invalid_request", error.message, param=error.param)


async def reply_raw(
    send: Send, status: int, headers: tuple[tuple[str, str], ...], body: bytes
) -> None:
    """Send an answer of :meth:`ProviderDoor.fetch` to the client, with its length.

    Args:
        send: takes the answer.
        status: the provider's status.
        headers: headers that may be passed on.
        body: the body, which may have been changed.
    """
    named = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    named.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def _check_key(status: int) -> None:
    """Raise HttpError 502 if the provider refused Remit's own key (status 401)."""
    if status == 401:
        raise HttpError(502, "auth_error", "The provider refused Remit's own key.")


def _unreachable(error: ProviderError) -> HttpError:
    status = 504 if error.code == "TIMEOUT" else 502
    return HttpError(
        status, error.code, "The provider cannot be reached, or its answer was cut off."
    )


def with_query(path: str, scope: Scope) -> str:
    """Return an upstream path with the query of the client's request, if there is one.

    Args:
        path: the path at the provider.
        scope: ASGI's scope of the client's request.
    """
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query else path


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


def _listed(raw: bytes) -> tuple[dict[str, Any], list[tuple[str, bytes]]] | None:
    """Return a list's members and its items as (id, exact text); ``None`` if it is not a list."""
    try:
        value = load(raw)
    except JsonTextError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        return None
    start, end = spans(raw, ("data",))["data"]
    texts = elements(raw[start:end])
    return value, [
        (item["id"], text)
        for item, text in zip(value["data"], texts, strict=True)
        if isinstance(item, dict) and isinstance(item.get("id"), str)
    ]
