"""Model calls over HTTP: bodies go to the gateway as they came, answers come back as they are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.kernel.settings import ServerSettings
from remit.providers.dialects import DialectError
from remit.providers.wire.body import Body, BodyError
from remit.providers.wire.endpoint import COUNT_TOKENS, RESPONSES, SPEECH, Endpoint
from remit.providers.wire.form import FormBody
from remit.server.answers import (
    call_headers,
    failure,
    is_own_answer,
    reply_upstream,
    translated,
    untranslatable,
)
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.refusals import HttpError
from remit.server.relay import Relay
from remit.server.replies import Receive, Scope, Send, read_body, reply_json
from remit.server.responses.endpoint import Responses

_log = logging.getLogger("remit.server")
_WATCH_AFTER_S = 1.0  # a call that takes longer is cancelled when its client hangs up

_NO_RECORD = "The record of this call cannot be written just now."
_CANNOT_TRANSLATE = "The provider's answer cannot be translated into this dialect."


class ModelCalls:
    """The endpoints through which models are called."""

    def __init__(
        self,
        gateway: LLMGateway,
        authenticator: Authenticator,
        settings: ServerSettings,
        responses: Responses,
    ) -> None:
        self._gateway = gateway
        self._authenticator = authenticator
        self._settings = settings
        self._responses = responses

    async def serve(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """One call of a model."""
        caller = await self._authenticator.authenticate(scope["headers"])
        body = await self.body(endpoint, caller, receive)
        request = self._authenticator.request(caller, body)
        if endpoint is RESPONSES:
            request = await self._responses.kept(request, caller.identity)
        if endpoint is COUNT_TOKENS and not self._gateway.speaks(request):
            tokens = self._gateway.estimate_tokens(request)
            await reply_json(send, {"input_tokens": tokens}, 200, [(b"x-remit-estimated", b"true")])
            return
        sound = endpoint is SPEECH
        if sound:  # passed on as it comes; its hash is on record, and cannot be played again
            request = replace(request, idempotency_key=None)
        try:
            if request.keeper is not None and request.keeper.polled:
                begun = await self._responses.background.begin(request, caller.identity)
                await reply_json(send, begun)
            elif body.stream or sound:
                await self._streamed(body, request, caller, receive, send)
            else:
                await self._whole(body, request, caller, receive, send)
        except RemitError as error:
            # The record could not be made: then nothing is answered either.
            _log.error("a record could not be made: %s", error.message)
            raise HttpError(503, "record_unavailable", _NO_RECORD, retry_after_s=1) from error

    async def body(
        self, endpoint: Endpoint, caller: AuthenticatedRequest, receive: Receive
    ) -> Body:
        """The body of a call.

        Raises:
            HttpError: there is none, or none that can be answered.
        """
        headers = caller.headers
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise HttpError(
                415, "unsupported_encoding", "Send the body without a content-encoding.", close=True
            )
        raw = await read_body(
            receive,
            headers.get(b"content-length"),
            self._settings.max_body_bytes,
            self._settings.body_timeout_s,
        )
        try:
            if endpoint.form:
                return FormBody.read_form(endpoint, raw, caller.text(b"content-type"))
            return Body.read(endpoint, raw)
        except BodyError as error:
            code = "invalid_json" if error.param is None else "invalid_request"
            raise HttpError(400, code, error.message, param=error.param) from error

    async def _whole(
        self,
        body: Body,
        request: PromptRequest,
        caller: AuthenticatedRequest,
        receive: Receive,
        send: Send,
    ) -> None:
        with _Watch(receive, _WATCH_AFTER_S):
            response = await self._gateway.aroute(request, identity=caller.identity)
        headers = call_headers(response)
        if is_own_answer(response, body.endpoint.name):
            await reply_upstream(send, response, headers)
        elif response.outcome is not RouteOutcome.SUCCESS:
            raise failure(response)
        elif request.keeper is not None and request.keeper.replied:
            await reply_json(send, request.keeper.replied, 200, headers)
        else:
            await reply_json(send, translated(body, response), 200, headers)

    async def _streamed(
        self,
        body: Body,
        request: PromptRequest,
        caller: AuthenticatedRequest,
        receive: Receive,
        send: Send,
    ) -> None:
        relay = Relay(body, send, request.keeper)
        response = None
        in_background = request.keeper is not None and request.keeper.background
        try:
            # What runs in the background goes on when its client hangs up.
            with contextlib.nullcontext() if in_background else _Watch(receive, 0):
                if in_background:
                    response = await self._responses.background.run(
                        request, caller.identity, relay.take
                    )
                else:
                    response = await self._gateway.aroute(
                        request, sink=relay.take, identity=caller.identity
                    )
                own = is_own_answer(response, body.endpoint.name)
                if relay.started or relay.holds:
                    await relay.finish(response)
                elif own and not response.replayed:
                    await reply_upstream(send, response, call_headers(response))
                elif response.outcome is RouteOutcome.SUCCESS:
                    await relay.all_at_once(response)
                else:
                    raise failure(response)
        except (DialectError, InvalidInputError) as error:  # the answer is on record
            _log.error("a stream cannot be translated for this client: %s", error.message)
            if not relay.started:
                raise untranslatable(response) from error
            await relay.break_off(502, "stream_untranslatable", _CANNOT_TRANSLATE)
        except RemitError as error:
            if not relay.started:
                raise
            _log.error("a record could not be made: %s", error.message)
            await relay.break_off(503, "record_unavailable", _NO_RECORD)


class _Watch:
    """Cancels the task within when its client hangs up; looked for after a while only."""

    __slots__ = ("_after_s", "_receive", "_task", "_timer", "_watcher")

    def __init__(self, receive: Receive, after_s: float) -> None:
        self._receive = receive
        self._after_s = after_s
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        if self._after_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._after_s, self._begin)
        else:
            self._begin()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        assert self._task is not None
        self._task.cancel()
