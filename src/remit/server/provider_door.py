"""Requests that are passed on to the provider of the client's own dialect: what it keeps."""

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
from remit.server.content_coding import read_decoded
from remit.server.refusals import HttpError, no_record
from remit.server.replies import Receive, Scope, Send, reply, reply_json

_MOST_LIST_BYTES = 32 * 1024 * 1024
_MOST_PAGES = 100
_PAGE = 20
_LIMIT = re.compile(r"[0-9]{1,9}")


class ProviderDoor:
    """Passes requests on: those that change something on record, those that read not.

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
        """Who asks.

        Raises:
            HttpError: the caller may not.
        """
        caller = await self._authenticator.caller(scope)
        if not caller.identity.may("call"):
            role = caller.identity.role
            raise HttpError(
                403, "auth_error", f"The role {role} makes no calls; use a key of the role agent."
            )
        return caller

    async def read(self, caller: AuthenticatedRequest, receive: Receive) -> bytes:
        """The body of a request; raises :class:`HttpError`."""
        server = self._server
        return await read_decoded(
            receive, caller.headers, server.max_body_bytes, server.body_timeout_s, caller.share
        )

    def has(self, provider_id: str) -> bool:
        """Whether a provider is set up, and reached over HTTP."""
        return isinstance(self._gateway.providers.get(provider_id), UpstreamProvider)

    def provider_for(self, endpoint: Endpoint) -> str:
        """The provider of an endpoint's dialect: the one named like it, else the first.

        Raises:
            HttpError: there is none.
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
            said = f"No provider that keeps {kept} in this form is set up; {how}."
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
        """Have a provider delete what it keeps, then erase what only its entries show.

        Args:
            path: of the upstream's URL.
            entries: gives the ids of the entries of the object, from the one that made it. Blocks.

        Raises:
            HttpError: as :meth:`change`; or some of the content may be in an archive.
        """
        response = await self.change(
            caller, found.provider_id, body, method="DELETE", path=path,
            on_record=Gone(found.object_id),
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
        """What a caller means by an id.

        Raises:
            HttpError: there is no such thing, or it is another's.
        """
        owner = owner_of(caller.identity)
        found = await asyncio.to_thread(self._objects.find, object_id, kind, owner)
        if found is None:
            raise HttpError(
                404,
                "not_found",
                f"No such {kind}: {object_id[:100]}; its list shows those of this key.",
                param="id",
            )
        return found

    def request(self, caller: AuthenticatedRequest, body: Body) -> PromptRequest:
        """The gateway's request, in the caller's name; raises :class:`HttpError`."""
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
        """Pass a request on, on record.

        Args:
            path: of the upstream's URL; the endpoint's where empty.
            amount: what is held for it.

        Raises:
            HttpError: nothing was sent, or what was sent failed without an answer.
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
        """Read something whole: status, headers that are passed on, and the body.

        Raises:
            HttpError: there is no answer.
        """
        provider = self._provider(provider_id)
        try:
            async with await provider.fetch(
                path, self._passed(provider, caller), self.timeouts
            ) as came:
                _check_key(came.status)
                body = await came.read(_MOST_LIST_BYTES)
        except ProviderError as error:
            raise _unreachable(error) from error
        return came.status, passed_on(came.headers), body

    async def relay(
        self, provider_id: str, path: str, caller: AuthenticatedRequest, send: Send
    ) -> None:
        """Pass on what a provider has, piece by piece as it comes."""
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
            if came.status >= 400:  # an error may quote the key, and is masked as a whole
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
        """The provider's list, of which the caller sees their own.

        Args:
            shown: what is shown of the text of each.
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
        for _ in range(_MOST_PAGES):
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
            said = f"The provider {provider_id} is not set up any more; add it to remit.toml again."
            raise HttpError(404, "provider_not_found", said)
        return provider

    @staticmethod
    def _passed(provider: UpstreamProvider, caller: AuthenticatedRequest) -> dict[str, str]:
        given = {name.decode(): value.decode("latin-1") for name, value in caller.headers.items()}
        return provider.passing(given)


@dataclass(frozen=True, slots=True)
class Gone:
    """Notes that an object is gone."""

    object_id: str

    @property
    def stated(self) -> dict[str, Any]:
        """Nothing more."""
        return {}

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """It holds nothing."""
        return False

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Forget whose it was."""
        forget(tx, self.object_id)


async def answer(send: Send, response: PromptResponse) -> None:
    """The provider's own answer to what was passed on."""
    await reply(send, upstream_answer(response))


def id_in(answer: bytes) -> str:
    """The id of what an answer speaks of; empty without one."""
    try:
        value = load(answer)
    except JsonTextError:
        return ""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def refused(error: BodyError) -> HttpError:
    """A body that cannot be passed on."""
    return HttpError(400, "invalid_request", error.message, param=error.param)


async def reply_raw(
    send: Send, status: int, headers: tuple[tuple[str, str], ...], body: bytes
) -> None:
    """What was fetched, as an answer."""
    named = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    named.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def _check_key(status: int) -> None:
    """What a provider says of Remit's own key is not for the client.

    Raises:
        HttpError: it refused it.
    """
    if status == 401:
        raise HttpError(502, "auth_error", "The provider refused Remit's own key.")


def _unreachable(error: ProviderError) -> HttpError:
    status = 504 if error.code == "TIMEOUT" else 502
    return HttpError(status, error.code, "The provider cannot be reached, or broke off.")


def with_query(path: str, scope: Scope) -> str:
    """A path of the upstream's with the query that the client gave."""
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query else path


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


def _listed(raw: bytes) -> tuple[dict[str, Any], list[tuple[str, bytes]]] | None:
    """A list that came, and the exact text of each item with its id."""
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
