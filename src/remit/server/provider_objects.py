"""Requests for objects that a provider stores, passed on in the client's own dialect.

Objects are files, batches, responses, vector stores and so on. The gateway records each one's
owner, and nobody else can see it. Requests that change something are recorded; requests that only
read are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remit.gateway import Attempt, OnRecord, owner_of
from remit.gateway.provider_objects import PASSED_NAMES, KeptObject, Objects, forget, objects_named
from remit.kernel.budget_values import Amount
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_text import JsonTextError, load
from remit.ledger import EntryArchivedError, ErasureError, LedgerClient, LedgerEntry, Transaction
from remit.providers import (
    Body,
    EventSink,
    Outgoing,
    ProviderError,
    ProviderResponse,
    Timeouts,
    Upload,
    UpstreamProvider,
    passed_on,
)
from remit.providers.wire import BodyError, Endpoint
from remit.runtime import Runtime
from remit.server.answers import failure
from remit.server.asgi import Receive, Scope, Send, disconnected, first_of
from remit.server.authentication import Authenticator
from remit.server.content_encoding import read_decoded
from remit.server.refusals import HttpError, no_record
from remit.server.request_context import AuthenticatedRequest
from remit.server.upload import FormUpload

_MAX_LIST_BYTES = 32 * 1024 * 1024


class ProviderDoor:
    """Access to files, batches and responses that providers store.

    :meth:`caller`, :meth:`find` and :meth:`require_own` check a request, :meth:`change` and
    :meth:`delete` send and record it, :meth:`fetch` and :meth:`relay` read without a record. Every
    method that reads the ledger raises LedgerError if that fails.

    Args:
        runtime: the open root.
        authenticator: authenticates each request.

    Attributes:
        batches: the batches of the root.
        objects: the owners of stored objects.
        settings: limits of bodies.
        timeouts: limits of waits for a provider.
    """

    def __init__(self, runtime: Runtime, authenticator: Authenticator) -> None:
        self._gateway = runtime.gateway
        self.batches = runtime.gateway.batches
        self._authenticator = authenticator
        self._ledger = runtime.ledger
        self.objects = Objects(runtime.ledger)
        settings = runtime.loaded.settings
        self.settings = settings.server
        gateway = settings.gateway
        self.timeouts = Timeouts(
            gateway.connect_timeout_ms / 1000, gateway.timeout_ms / 1000,
            gateway.idle_timeout_ms / 1000,
        )  # fmt: skip

    async def caller(self, scope: Scope) -> AuthenticatedRequest:
        """Return the authenticated caller of a request, and count the request under its key.

        Args:
            scope: ASGI's scope of the request.

        Raises:
            HttpError: 400, 401, 429 or 503 as :meth:`Authenticator.caller`; 403, the role may not
                call models.
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
            HttpError: as :func:`~remit.server.content_encoding.read_decoded`.
        """
        server = self.settings
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
        """Return the id of the provider for an endpoint.

        Among the providers that are reached over HTTP and have the endpoint, the one named like its
        dialect is taken, else the first.

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

        Content that other entries show as well stays. The row of the object's owner is deleted with
        the record of the call.

        Args:
            caller: the authenticated owner.
            found: the object.
            body: the request to record.
            path: path of the upstream's URL.
            entries: returns the ids of the object's entries, given the entry that made it. Blocks.

        Returns:
            The call's response. Nothing is erased unless the provider deleted the object.

        Raises:
            HttpError: as :meth:`change`; 409, the provider has deleted the object and the call is
                recorded, but some of the content is archived or cannot be erased.
            LedgerError: the entry that made the object cannot be read, or the content not erased;
                the provider has deleted the object then.
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

    async def find(
        self, object_id: str, kind: str, caller: AuthenticatedRequest, endpoint: Endpoint,
        *, param: str = "id",
    ) -> KeptObject:  # fmt: skip
        """Return a caller's object, from the record of owners. No provider is asked.

        An object of a provider that is no longer configured is returned too.

        Args:
            object_id: the provider's id of the object.
            kind: kind of the object.
            caller: the authenticated caller.
            endpoint: the collection that the request names the object in.
            param: the field that names the object, for refusals.

        Raises:
            HttpError: 404, there is no such object, another caller owns it, or its provider has no
                such collection, as it speaks the other dialect.
            LedgerError: the ledger cannot be read.
        """
        owner = owner_of(caller.identity)
        found = await asyncio.to_thread(self.objects.find, object_id, kind, owner)
        if found is None:
            said = f"This key has no {said_of(kind)} {object_id[:100]}; list its objects to see "
            raise HttpError(404, "not_found", said + "their ids.", param=param)
        provider_id = found.provider_id
        if self.has(provider_id) and not self._provider(provider_id).speaks(endpoint):
            said = f"{object_id[:100]} is an object of {provider_id}, which has no {endpoint.path}."
            raise HttpError(404, "not_found", said, param=param)
        return found

    async def require_own(
        self, texts: Sequence[str], caller: AuthenticatedRequest, body: Body | None = None
    ) -> None:
        """Check that a request names no object of another caller. No provider is asked.

        If tenants share the provider's account, each object that the body names must be the
        caller's own.

        Args:
            texts: the texts of the request that could be ids.
            caller: the authenticated caller.
            body: the request's body; None for none.

        Raises:
            HttpError: 404, a text names an object of another caller.
            LedgerError: the ledger cannot be read.
        """
        owner = owner_of(caller.identity)
        named = objects_named(body, PASSED_NAMES) if body is not None else []

        def other() -> str:
            return self.objects.foreign([*texts], owner) or (
                self.objects.of_others(named, owner) if named else ""
            )

        if (texts or named) and (found := await asyncio.to_thread(other)):
            raise HttpError(404, "not_found", f"{found[:100]} does not exist; use an id that this "
                            "key was answered.")  # fmt: skip

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
        upload: FormUpload | None = None,
        sink: EventSink | None = None,
    ) -> PromptResponse:
        """Pass a request to a provider, and record the exchange as a call.

        The call is made once, without retries; an idempotency key of the client is ignored.

        Args:
            caller: the authenticated caller.
            provider_id: id of the provider.
            body: the body to send.
            method: HTTP method.
            path: path of the upstream's URL; empty for the endpoint's own.
            amount: amount to reserve for the call; nothing if left out.
            on_record: writes more rows in the transaction that records the call; None for none.
            upload: the form to send while it arrives; None to send the body's text.
            sink: receives a stream of events as it comes; None to receive none.

        Returns:
            The response, which is the provider's reply also if that is an error.

        Raises:
            HttpError: 400, a header is invalid; 404, the provider is not configured; 402, 403, 429
                or 503, the gateway refuses the call, so nothing was sent; 502 or 504, the provider
                did not answer, or refused Remit's key; the upload was refused or cut off; or 503,
                the record cannot be written.
            CancelledError: the client disconnected.
        """
        provider = self._provider(provider_id)
        request = self.request(caller, body)
        passed = provider.passing(request.headers or {})
        pieces = None if upload is None else Upload(upload.pieces(), upload.length)
        outgoing = Outgoing(body, passed, stream=False, method=method, path=path, upload=pieces)
        try:
            response = await self._gateway.pass_on(
                replace(request, idempotency_key=None), provider_id, outgoing,
                identity=caller.identity, amount=amount or Amount(0, 0), on_record=on_record,
                sink=sink,
            )  # fmt: skip
        except RemitError as error:
            raise no_record(error) from error
        if upload is not None and upload.refused is not None:
            raise upload.refused
        answered = response.reply is not None and response.error_code != "AUTH_ERROR"
        if not answered and response.outcome is not RouteOutcome.SUCCESS:
            raise failure(response)
        return response

    async def fetch(
        self, provider_id: str, path: str, caller: AuthenticatedRequest
    ) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """Read something from a provider with ``GET``; nothing is recorded.

        A body above 32 MB is refused with 502. An error of the provider is returned, except 401.

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
        self,
        provider_id: str,
        path: str,
        caller: AuthenticatedRequest,
        send: Send,
        receive: Receive | None = None,
    ) -> None:
        """Send a provider's object to the client in pieces, on their arrival.

        An error of the provider is sent as a whole. Nothing is recorded.

        Args:
            provider_id: id of the provider.
            path: path of the upstream's URL, with its query.
            caller: the authenticated caller, some of whose headers are passed on.
            send: takes the answer.
            receive: shows that the client is gone, which ends an answer without an end; None to
                send the whole answer in any case.

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
            gone = asyncio.ensure_future(disconnected(receive)) if receive is not None else None
            try:
                pieces = came.chunks()
                while piece := await first_of(anext(pieces, b""), gone):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                if gone is not None:
                    gone.cancel()
            await send({"type": "http.response.body", "body": b""})

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

    Immutable; the gateway calls it in the transaction of the ``EXCHANGE``.

    Attributes:
        change: called with the transaction, the id of the ``EXCHANGE`` and the provider's answer.
        stated: further metadata of the entry.
    """

    change: Callable[[Transaction, str, ProviderResponse], None]
    stated: Mapping[str, Any] = field(default_factory=dict)

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Return False: the reservation ends with the call."""
        return False

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Change the rows."""
        self.change(tx, exchange_id, answer)


def said_of(kind: str) -> str:
    """Return the kind of an object in words, such as ``vector store``."""
    return kind.rpartition("/")[2].replace("_", " ")


def id_in(answer: bytes) -> str:
    """Return the ``id`` of a JSON object.

    The result is empty if the id is missing or no text, or if the answer is no JSON object.

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
