"""Endpoints that call models: bodies go to the gateway and answers to the client unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from remit.gateway import KEY_ENDED, SHUTTING_DOWN, Identity, LLMGateway
from remit.gateway.memory import LARGE_BYTES
from remit.kernel.errors import InvalidInputError, RemitError, let_go
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_splice import remove_member, set_member
from remit.kernel.json_text import JsonTextError, dump, load
from remit.kernel.settings import ServerSettings
from remit.providers import Body
from remit.providers.dialects import DialectError
from remit.providers.wire import (
    A2A,
    COMPACT,
    COUNT_CONTENT,
    COUNT_TOKENS,
    INPUT_TOKENS,
    RESPONSES,
    SPEECH,
    BodyError,
    Endpoint,
    FormBody,
    ObjectBody,
)
from remit.server.answers import (
    call_headers,
    failure,
    is_own_answer,
    lacks_events,
    translated,
    untranslatable,
    upstream_answer,
)
from remit.server.asgi import Answer, dialect_of, json_answer, refusal
from remit.server.authentication import Authenticator, from_elsewhere, is_local
from remit.server.content_encoding import coding_of, decoded
from remit.server.in_flight_limits import Share, Shares
from remit.server.refusals import HttpError, no_record, refusal_of
from remit.server.relay import Relay
from remit.server.request import Request
from remit.server.request_context import AuthenticatedRequest
from remit.server.responses.endpoint import Responses
from remit.server.stream_formats import reframed
from remit.server.telemetry import CallMetrics
from remit.server.websocket import WebSocket

_log = logging.getLogger("remit.server")
_LARGE_FORM = 64 * 1024  # A byte of a sound file costs as much work as many bytes of JSON.
_Answer = Callable[[AuthenticatedRequest, Body, PromptRequest, Request], Awaitable[None]]
_IMAGE_MODEL = "gpt-image-2.5-flare"
"""The model of images whose client named none. OpenAI recommends it."""

_AZURE = "/openai/deployments/"
_INVOKE = re.compile("/model/.+/invoke")
_DATED_VERSION = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CANNOT_TRANSLATE = "The provider's answer cannot be translated into this dialect."


class ModelCalls:
    """The endpoints of a root that call models.

    :meth:`serve` answers HTTP requests; :meth:`admit` and :meth:`hold` are for WebSockets. Running
    calls are remembered with their keys, so that :meth:`end_calls_of_ended_keys` can end them. All
    methods run in one event loop.

    Args:
        gateway: admits, records and settles the calls.
        authenticator: authenticates each request.
        settings: limits of bodies.
        responses: stored responses, which calls can continue.
        metrics: counts the requests in progress.
        shares: counts the requests and body bytes of each key.
        dev: True to answer only requests that name this machine.
    """

    def __init__(
        self,
        gateway: LLMGateway,
        authenticator: Authenticator,
        settings: ServerSettings,
        responses: Responses,
        metrics: CallMetrics,
        shares: Shares,
        *,
        dev: bool,
    ) -> None:
        self._shares = shares
        self._dev = dev
        self._metrics = metrics
        self._gateway = gateway
        self._authenticator = authenticator
        self._settings = settings
        self._responses = responses
        self._running: dict[
            Request | WebSocket, str | None
        ] = {}  # Running calls, with their token.

    async def serve(
        self, endpoint: Endpoint, request: Request, *, answer: _Answer | None = None
    ) -> None:
        """Answer a request; errors are answered in the client's dialect, and none is raised.

        The steps: in dev mode refuse other machines, authenticate, count the request under its key,
        read the body, call the gateway, answer. If the client has received part of a stream, an
        error ends the stream instead. Tokens are estimated here if no provider counts them for the
        endpoint. A background response is answered when it has begun.

        An endpoint that may lack a model gets the default model, for images one of OpenAI's.

        Args:
            endpoint: the endpoint of the path.
            request: the request, to which the answer is written.
            answer: answers instead of the gateway, for an extension's protocol; None for the
                gateway.
        """
        self._metrics.in_progress += 1
        if request.deployment:
            request = reframed(endpoint, request)
        share = Share(self._shares)
        try:
            if self._dev and not is_local(request.headers):
                raise from_elsewhere()
            caller = self._authenticator.known(request.headers)
            if caller is None:
                caller = await self._authenticator.authenticate(request.headers)
            request.prove()
            share.begin(caller.identity.key_id)
            self._running[request] = caller.token
            body = await self._body(endpoint, caller, request, share)
            if not body.model and endpoint.may_lack_model:
                model = _IMAGE_MODEL if "image" in endpoint.name else self._gateway.default_model
                body = body.with_member(("model",), dump(model), "the client named no model")
            asked = self._authenticator.request(caller, body)
            if request.query:
                asked = replace(asked, query=_sent_query(request.query))
            if answer is not None:
                await answer(caller, body, asked, request)
                return
            if endpoint is RESPONSES:
                asked = await self._kept(asked, caller.identity)
            if endpoint is COMPACT or endpoint is INPUT_TOKENS:
                await self._responses.require_own(asked, caller.identity)
            is_count = (
                endpoint is COUNT_TOKENS or endpoint is INPUT_TOKENS or endpoint is COUNT_CONTENT
            )
            if is_count and not self._gateway.speaks(asked):
                name = "totalTokens" if endpoint is COUNT_CONTENT else "input_tokens"
                tokens: dict[str, Any] = {name: self._gateway.estimate_tokens(asked)}
                if endpoint is INPUT_TOKENS:
                    tokens["object"] = "response.input_tokens"
                request.answer(json_answer(tokens, 200, [(b"x-remit-estimated", b"true")]))
                return
            if endpoint is SPEECH:  # Only the hash is recorded, so nothing can be replayed.
                asked = replace(asked, idempotency_key=None)
            if asked.keeper is not None and asked.keeper.polled:
                begun = await self._responses.background.begin(asked, caller.identity, caller.token)
                request.answer(json_answer(begun))
            elif body.stream or endpoint is SPEECH:
                await self._streamed(body, asked, caller.identity, request)
            else:
                response = await self._gateway.aroute(asked, identity=caller.identity)
                reply = response.reply
                if reply is not None and len(reply.body) > LARGE_BYTES:
                    await self._large(body, asked, response, request, share)
                elif is_own_answer(response, body.endpoint.name):
                    request.answer(upstream_answer(response))
                else:
                    request.answer(_whole(body, asked, response))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - answered here
            # The error is not stored: its traceback would keep the body alive until a collection.
            refused = refusal(
                dialect_of(request.path, request.headers),
                no_record(error) if isinstance(error, RemitError) else self._refused(error),
            )
            let_go(error)
            if not request.started:
                request.answer(refused)
        finally:
            self._metrics.in_progress -= 1
            self._running.pop(request, None)
            share.end()

    async def admit(self, socket: WebSocket) -> AuthenticatedRequest:
        """Return the caller of a WebSocket handshake, and mark its connection as authenticated.

        Nothing is answered or counted yet.

        Args:
            socket: the socket, whose handshake is not answered yet.

        Raises:
            HttpError: 401 without a valid key, 400 with two different keys, 403 in dev mode from
                another machine, 503 if keys cannot be checked.
        """
        try:
            if self._dev and not is_local(socket.headers):
                raise from_elsewhere()
            caller = self._authenticator.known(socket.headers)
            if caller is None:
                caller = await self._authenticator.authenticate(socket.headers)
        except RemitError as error:
            raise no_record(error) from error
        socket.prove()
        return caller

    @contextmanager
    def hold(self, socket: WebSocket, caller: AuthenticatedRequest) -> Iterator[Share]:
        """Hold a place of the caller's key while a WebSocket is open; yield the place.

        When the key is revoked or expires, the task of the socket is cancelled.

        Args:
            socket: the open socket.
            caller: its caller, from :meth:`admit`.

        Raises:
            HttpError: 429, the key or its tenant has as many requests in progress as it may have.
        """
        share = Share(self._shares)
        try:
            share.begin(caller.identity.key_id)
            self._running[socket] = caller.token
            yield share
        finally:
            self._running.pop(socket, None)
            share.end()

    async def end_calls_of_ended_keys(self) -> None:
        """Cancel the running calls of keys that were revoked or have expired.

        A cancelled call is answered 401, and recorded. The tasks of WebSockets and of background
        responses are cancelled too.
        """
        tasks = self._responses.background.tasks
        ended = {*filter(self._authenticator.has_ended, {*self._running.values(), *tasks.values()})}
        for request, token in [*self._running.items()] if ended else ():
            if token in ended:
                request.stop(KEY_ENDED)
        for task, token in [*tasks.items()] if ended else ():
            if token in ended:
                task.cancel(KEY_ENDED)

    async def _kept(self, asked: PromptRequest, identity: Identity) -> PromptRequest:
        """Return the request with the stored turns that the request continues; record a refusal.

        A refusal of an invalid request is not recorded.

        Raises:
            HttpError: the stored turns do not exist, or the request is not valid.
        """
        try:
            return await self._responses.kept(asked, identity)
        except HttpError as refused:
            if refused.code != "invalid_request":
                code = refused.code.upper()
                rejected = await self._gateway.reject(
                    asked, code, refused.message, identity=identity
                )
                entry = (b"x-remit-exchange", rejected.exchange_entry_id.encode())
                refused.headers = (*refused.headers, entry)
            raise

    @staticmethod
    async def _large(
        body: Body, asked: PromptRequest, response: PromptResponse, request: Request, share: Share
    ) -> None:
        """Send a large answer, and count its bytes until the client has taken all."""
        answer = await asyncio.to_thread(_whole, body, asked, response)
        share.hold(len(answer[1]))
        request.answer(answer)
        await request.drain()

    @staticmethod
    def _refused(error: BaseException) -> HttpError:
        refused = refusal_of(error)
        if isinstance(error, asyncio.CancelledError) and error.args == (KEY_ENDED,):
            return HttpError(
                401,
                "invalid_api_key",
                "The key was revoked or has expired; ask the operator for another.",
            )
        return refused

    async def _body(
        self, endpoint: Endpoint, caller: AuthenticatedRequest, request: Request, share: Share
    ) -> Body:
        headers, settings = caller.headers, self._settings
        encoding = headers.get(b"content-encoding")
        coding = coding_of(encoding) if encoding is not None else ""
        length = headers.get(b"content-length")
        raw = await request.read(length, settings.max_body_bytes, settings.body_timeout_s, share)
        if coding:
            raw = await decoded(raw, coding, settings.max_body_bytes, share)
        try:
            if endpoint.form:
                kind = caller.text(b"content-type")
                if len(raw) > _LARGE_FORM:
                    return await asyncio.to_thread(FormBody.read_form, endpoint, raw, kind)
                return FormBody.read_form(endpoint, raw, kind)
            if request.deployment or "/publishers/" in request.path:
                raw = _with_path(raw, request.path, request.deployment, headers)
            if len(raw) > LARGE_BYTES:
                return await asyncio.to_thread(_read_large, endpoint, raw)
            return (ObjectBody.read_object if endpoint is A2A else Body.read)(endpoint, raw)
        except BodyError as error:
            code = "invalid_json" if error.param is None else "invalid_request"
            raise HttpError(400, code, error.message, param=error.param) from error

    async def _streamed(
        self, body: Body, asked: PromptRequest, identity: Identity, request: Request
    ) -> None:
        relay = Relay(body, request, asked.keeper)
        response = None
        request.detached = asked.keeper is not None and asked.keeper.background
        try:
            if request.detached:
                response = await self._responses.background.run(asked, identity, relay)
            else:
                response = await self._gateway.aroute(asked, sink=relay, identity=identity)
            own = is_own_answer(response, body.endpoint.name)
            if relay.begun or (relay.holds and not response.replayed):
                relay.finish(response)
            elif own and not (
                response.replayed or relay.started or lacks_events(response, body.endpoint)
            ):
                request.answer(upstream_answer(response))
            elif response.outcome is RouteOutcome.SUCCESS:
                relay.all_at_once(response)
            elif relay.started:  # Comments only.
                relay.finish(response)
            else:
                raise failure(response)
        except (DialectError, InvalidInputError) as error:
            _log.error("a stream cannot be translated for this client: %s", error.message)
            if not relay.started:
                raise untranslatable(response) from error
            relay.break_off(502, "stream_untranslatable", _CANNOT_TRANSLATE)
        except RemitError as error:
            if not relay.started:
                raise
            relay.break_off(503, "record_unavailable", no_record(error).message)
        except asyncio.CancelledError as error:
            if error.args not in ((SHUTTING_DOWN,), (KEY_ENDED,)) or not relay.started:
                raise
            ended = self._refused(error)
            relay.break_off(ended.status, ended.code, ended.message)


def _sent_query(query: str) -> str:
    """Return the part of a URL's query that a provider of the client's dialect receives.

    Azure's ``api-version`` belongs to Azure's paths, in place of which Remit sends OpenAI's.
    """
    return "&".join(one for one in query.split("&") if not one.startswith("api-version="))


def _with_path(raw: bytes, path: str, model: str, headers: dict[bytes, bytes]) -> bytes:
    """Return a body's text with the members ``model`` and ``stream`` of the path.

    The client's own ``stream`` counts on Azure's paths alone; all others say whether they stream.
    Text that is no JSON object is returned unchanged, to be refused by its reader.

    Args:
        raw: the body.
        path: the path of the request. On paths of Vertex and Bedrock, ``anthropic_version`` and
            ``anthropic_beta`` are removed from the body, since Anthropic's API has headers instead.
        model: the model that the path names; empty if the body names it.
        headers: the headers that Remit reads; gets ``anthropic-beta``, and ``anthropic-version``
            if the body states a date instead of a cloud's own version.
    """
    try:
        if not isinstance(value := load(raw), dict):
            return raw
        if "/publishers/anthropic/" in path or _INVOKE.search(path):
            raw = remove_member(raw, ("anthropic_version",))
            version = value.get("anthropic_version")
            if isinstance(version, str) and _DATED_VERSION.fullmatch(version):
                headers[b"anthropic-version"] = version.encode()
            if isinstance(betas := value.get("anthropic_beta"), list):
                raw = remove_member(raw, ("anthropic_beta",))
                named = ",".join(beta for beta in betas if isinstance(beta, str))
                headers[b"anthropic-beta"] = named.encode("ascii", "replace")
        if not path.startswith(_AZURE):
            streams = path.rpartition(":")[2].startswith("stream") or path.endswith("-stream")
            if streams or "stream" in value:
                raw = set_member(raw, ("stream",), b"true" if streams else b"false")
        return set_member(raw, ("model",), dump(model)) if model else raw
    except JsonTextError:
        return raw


def _read_large(endpoint: Endpoint, raw: bytes) -> Body:
    if endpoint is A2A:
        return ObjectBody.read_object(endpoint, raw)
    body = Body.read(endpoint, raw)
    body.digest = hashlib.sha256(raw).hexdigest()
    return body


def _whole(body: Body, asked: PromptRequest, response: PromptResponse) -> Answer:
    """Return the complete answer of a call, in the client's dialect.

    Raises:
        HttpError: the call failed, or the answer cannot be expressed in the client's dialect.
    """
    if is_own_answer(response, body.endpoint.name):
        return upstream_answer(response)
    if response.outcome is not RouteOutcome.SUCCESS:
        raise failure(response)
    kept = asked.keeper is not None and asked.keeper.replied
    return json_answer(kept or translated(body, response), 200, call_headers(response))
