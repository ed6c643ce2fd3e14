"""Model calls over HTTP: ``/v1/chat/completions`` and ``/v1/messages``, whole and streamed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.settings import ServerSettings
from remit.providers.dialects.anthropic import messages_answer, parse_messages
from remit.providers.dialects.call import ClientCall, DialectError
from remit.providers.dialects.openai import chat_answer, parse_chat
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.refusals import HttpError, Shape, status_of
from remit.server.relay import Relay
from remit.server.replies import Headers, Receive, Scope, Send, read_body, reply_json


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What differs between the two endpoints."""

    shape: Shape
    parse: Callable[[Any], ClientCall]
    answer: Callable[..., dict[str, Any]]


_log = logging.getLogger("remit.server")
_WATCH_AFTER_S = 1.0  # a call that takes longer is cancelled when its client hangs up

_NO_RECORD = "The record of this call cannot be written just now."
_UNREACHABLE = "cannot be reached"
_OPENAI = _Dialect("openai", parse_chat, chat_answer)
_ANTHROPIC = _Dialect("anthropic", parse_messages, messages_answer)


class ModelCalls:
    """The endpoints through which models are called."""

    def __init__(
        self, gateway: LLMGateway, authenticator: Authenticator, settings: ServerSettings
    ) -> None:
        self._gateway = gateway
        self._authenticator = authenticator
        self._settings = settings

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``POST /v1/chat/completions``."""
        await self._serve(_OPENAI, scope, receive, send)

    async def messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``POST /v1/messages``."""
        await self._serve(_ANTHROPIC, scope, receive, send)

    async def count_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``POST /v1/messages/count_tokens``: Remit's own estimate; nothing is sent anywhere."""
        caller = await self._authenticator.authenticate(scope["headers"])
        body = await self._body(caller, receive)
        call = _parse(lambda value: parse_messages(value, require_max_tokens=False), body)
        tokens = self._gateway.estimate_tokens(self._authenticator.request(caller, call))
        await reply_json(send, {"input_tokens": tokens}, 200, [(b"x-remit-estimated", b"true")])

    async def _serve(self, dialect: _Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._authenticator.authenticate(scope["headers"])
        body = await self._body(caller, receive)
        call = _parse(dialect.parse, body)
        try:
            request = self._authenticator.request(caller, call)
            if call.stream:
                relay = Relay(dialect.shape, call, send)
                await self._streamed(relay, request, caller, receive)
            else:
                await self._whole(dialect, request, caller, receive, send)
        except RemitError as error:
            # The record could not be made: then nothing is answered either.
            _log.error("a record could not be made: %s", error.message)
            raise HttpError(503, "record_unavailable", _NO_RECORD, retry_after_s=1) from error

    async def _body(self, caller: AuthenticatedRequest, receive: Receive) -> Any:
        """The body's JSON."""
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
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise HttpError(400, "invalid_json", f"The body is not JSON: {error}.") from error

    async def _whole(
        self,
        dialect: _Dialect,
        request: PromptRequest,
        caller: AuthenticatedRequest,
        receive: Receive,
        send: Send,
    ) -> None:
        with _Watch(receive, _WATCH_AFTER_S):
            response = await self._gateway.aroute(request, identity=caller.identity)
        if response.outcome is not RouteOutcome.SUCCESS:
            raise _failure(response)
        headers = call_headers(response)
        wire = response.wire
        if wire is not None and wire[0] == dialect.shape:
            await reply_json(send, wire[1], 200, headers)
            return
        more: dict[str, Any] = {"created": int(time.time())} if dialect is _OPENAI else {}
        answer = dialect.answer(
            response,
            answer_id=_answer_id(dialect.shape, response),
            model=response.model_id,
            cached_input_tokens=response.cached_input_tokens or None,
            reasoning_tokens=response.reasoning_tokens or None,
            **more,
        )
        await reply_json(send, answer, 200, headers)

    async def _streamed(
        self, relay: Relay, request: PromptRequest, caller: AuthenticatedRequest, receive: Receive
    ) -> None:
        call = asyncio.ensure_future(
            self._gateway.aroute(request, on_event=relay.take, identity=caller.identity)
        )
        call.add_done_callback(relay.ended)
        try:
            with _Watch(receive, 0):
                await relay.run()
                response = await call
                if relay.started:
                    await relay.finish(response)
                elif response.outcome is RouteOutcome.SUCCESS:
                    await relay.all_at_once(response)
                else:
                    raise _failure(response)
        except InvalidInputError as error:  # the answer is on record; it cannot be translated
            _log.error("a stream cannot be translated for this client: %s", error.message)
            message = "The provider's stream cannot be translated into this dialect."
            if not relay.started:
                raise HttpError(502, "stream_untranslatable", message) from error
            await relay.break_off(502, "stream_untranslatable", message)
        except RemitError as error:
            if not relay.started:
                raise
            _log.error("a record could not be made: %s", error.message)
            await relay.break_off(503, "record_unavailable", _NO_RECORD)
        finally:
            if not call.done():
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError, RemitError):
                    await call


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


def call_headers(response: PromptResponse) -> Headers:
    """What Remit reports of a call beside its answer."""
    headers = [(b"x-remit-exchange", response.exchange_entry_id.encode())]
    if response.dispatch_entry_id:
        headers.append((b"x-remit-dispatch", response.dispatch_entry_id.encode()))
    if response.decision_entry_id:
        headers.append((b"x-remit-decision", response.decision_entry_id.encode()))
    if response.cost_certainty:
        headers.append((b"x-remit-cost-certainty", response.cost_certainty.encode()))
        if response.cost_known:
            headers.append((b"x-remit-cost-usd", b"%.9f" % response.cost_incurred))
    if response.replayed:
        headers.append((b"x-remit-replayed", b"true"))
    return headers


def _parse(parse: Callable[[Any], ClientCall], body: Any) -> ClientCall:
    try:
        return parse(body)
    except DialectError as error:
        raise HttpError(400, "invalid_request", error.message, param=error.param) from error


def _failure(response: PromptResponse) -> HttpError:
    message = response.error_message or "The call failed."
    if response.error_code == "SERVER_ERROR" and _UNREACHABLE in message:
        message = "The provider cannot be reached."  # where it is, is no business of a client's
    return HttpError(
        status_of(response),
        response.error_code or "error",
        message,
        retry_after_s=response.retry_after_s,
        headers=call_headers(response),
    )


def _answer_id(shape: Shape, response: PromptResponse) -> str:
    prefix = "chatcmpl-" if shape == "openai" else "msg_"
    return prefix + response.exchange_entry_id
