"""A small model in this process: llama.cpp through ``xllamacpp``, without key and network."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remit.kernel.exchange import ModelCapabilities, Reply
from remit.kernel.json_text import dump
from remit.kernel.loops import abandon, call_in_thread
from remit.kernel.settings import LocalModelSettings
from remit.providers.dialects import DialectError, ModelCall, error_body, read_request
from remit.providers.protocol import Outgoing, ProviderError, ProviderRequest
from remit.providers.sse import SseEvent
from remit.providers.upstream import WireDialect, neutral_call
from remit.providers.upstream_http import Timeouts
from remit.providers.weights import file_sha256
from remit.providers.wire.endpoint_table import CHAT, MESSAGES, RESPONSES, Endpoint
from remit.providers.wire.readers import stream_sum

_LONGEST_STEP_S = 60.0  # Reading a full context window cannot be interrupted.
_IN_TURN: Any = object()
"""The item that a reply receives before its first chunk, when the model is free."""

_TEXT = {"type": "text"}
_FIELD = re.compile("Field '([^']+)': ")


class LocalProvider(WireDialect):
    """A provider that runs one GGUF file.

    The model is loaded at the first call, after its hash was checked. Calls run one at a time. The
    model is freed by :meth:`aclose`, or when the process ends; a later call loads it again.

    Args:
        path: the weights.
        model_id: the name of the model in requests.
        settings: context window, threads, sampling.
        sha256: SHA-256 that the weights must have when they are loaded, in hex. Empty if none is
            recorded; the weights are then refused.
    """

    home = CHAT

    def __init__(
        self, path: Path, model_id: str, settings: LocalModelSettings, sha256: str
    ) -> None:
        self._path = path
        self._sha256 = sha256
        self._model_id = model_id
        self._settings = settings
        self._server: Any = None
        self._turn = threading.Lock()
        self._ending = False
        # A process that ends inside native code crashes: stop it and wait for it first.
        atexit.register(self._end)

    def __repr__(self) -> str:
        return f"LocalProvider({self._model_id!r})"

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Return the abilities: structured output always, images never, the rest by the settings.

        Args:
            model_id: ignored.
        """
        return ModelCapabilities(
            self._settings.native_tools, prose=self._settings.prose, images=False
        )

    def speaks(self, endpoint: Endpoint) -> bool:
        """Return True for Chat Completions."""
        return endpoint is CHAT

    async def aclose(self) -> None:
        """Free the model once no call uses it; wait at most 60 seconds."""
        await call_in_thread("remit-local-close", self._end)
        atexit.unregister(self._end)

    def _end(self) -> None:
        self._ending = True
        if self._turn.acquire(timeout=_LONGEST_STEP_S):
            self._server = None
            self._turn.release()
        self._ending = False

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """Return the request that the model would receive.

        Raises:
            ProviderError: ``INVALID_REQUEST``: the request names another model, or the model cannot
                serve it.
        """
        if request.model_id != self._model_id:
            raise ProviderError(
                "INVALID_REQUEST",
                f"the local provider runs {self._model_id!r}, not {request.model_id!r}",
                param="model",
            )
        refuse_unable(_asked(request), tools=self._settings.native_tools)
        return super().outgoing(request)

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> _LocalReply:
        """Wait for the model to be free, start the answer, and return it at its first piece.

        Args:
            outgoing: the request.
            timeouts: ``first_byte_s`` limits the wait for the model, and again the wait for the
                first piece, which includes loading the weights. Other limits have no effect.

        Raises:
            ProviderError: the model refused the request (``INVALID_REQUEST``, ``CONTEXT_LENGTH``);
                the extra ``local`` is missing, the weights are missing, changed, unrecorded or
                unusable, or the provider is being closed (``SERVER_ERROR``); other calls used the
                model for the whole wait (``RATE_LIMITED``). Later failures come with the pieces.
            TimeoutError: the model was free and no piece came in time.
        """
        reply = _LocalReply(outgoing.stream)
        body = {
            **outgoing.body.value,
            "stream": True,  # Only a stream can be stopped.
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
        }
        if (body.get("response_format") or _TEXT) == _TEXT:
            body.setdefault("repeat_penalty", self._settings.repeat_penalty)
        reply.begin(lambda deliver: self._run(body, deliver, reply.stop))
        loop = asyncio.get_running_loop()
        in_turn = False
        try:
            async with asyncio.timeout(timeouts.first_byte_s) as limit:
                await reply.in_turn()
                in_turn = True
                limit.reschedule(loop.time() + timeouts.first_byte_s)
                await reply.begun()
        except BaseException as error:
            await reply.aclose()
            if isinstance(error, TimeoutError) and not in_turn:  # The provider is healthy.
                message = "the local model is busy with other calls"
                raise ProviderError("RATE_LIMITED", message) from error
            raise
        return reply

    def _run(
        self, body: dict[str, Any], deliver: Callable[[Any], None], stop: threading.Event
    ) -> None:
        failure: list[BaseException] = []

        def take(chunk: Any) -> bool:
            try:
                for part in chunk if isinstance(chunk, list) else [chunk]:
                    if isinstance(part, dict) and "error" in part:
                        raise _refusal(part["error"])
                    if isinstance(part, dict):
                        if not body.get("tools"):
                            _say_nothing(part)
                        deliver({**part, "model": self._model_id})
            except BaseException as error:  # noqa: BLE001 - must not cross into C++
                failure.append(error)
                return True
            return stop.is_set() or self._ending

        with self._turn:
            if stop.is_set():
                return
            if self._ending:
                raise ProviderError("SERVER_ERROR", "the local model is being shut down")
            deliver(_IN_TURN)
            try:
                result = self._load().handle_chat_completions(body, take)
            except (ValueError, RuntimeError) as error:
                param = "response_format" if "schema" in str(error) else None
                raise _refused("INVALID_REQUEST", str(error), param) from error
            if isinstance(result, dict) and "error" in result:
                raise _refusal(result["error"])
            if failure:
                raise failure[0]

    def _load(self) -> Any:
        if self._server is not None:
            return self._server
        try:
            import xllamacpp
        except ImportError as error:
            raise ProviderError(
                "SERVER_ERROR",
                "the local model needs the extra 'local': pip install 'remit[local]'",
            ) from error
        self._check_weights()
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._settings.context_tokens
        params.n_parallel = 1
        params.cpuparams.n_threads = self._settings.threads or os.cpu_count() or 1
        params.verbosity = 0
        params.ui = False
        # The server listens on loopback, which cannot be switched off; the key keeps others out.
        params.api_keys = [secrets.token_urlsafe(32)]
        try:
            self._server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            raise ProviderError(
                "SERVER_ERROR", f"the local model {self._path} cannot be loaded: {error}"
            ) from error
        return self._server

    def _check_weights(self) -> None:
        """Raise ProviderError unless the weights have the recorded hash."""
        if not self._sha256:
            why = f"no SHA-256 is recorded for {self._path}; run `remit model add FILE` again"
            raise ProviderError("SERVER_ERROR", f"the local model is refused: {why}")
        try:
            found = file_sha256(self._path)
        except OSError as error:
            why = error.strerror or str(error)
            raise ProviderError("SERVER_ERROR", f"{self._path} cannot be read: {why}") from error
        if found != self._sha256:
            raise ProviderError(
                "SERVER_ERROR",
                f"the local model is refused: {self._path} has the SHA-256 {found}, expected "
                f"{self._sha256}; run `remit model pull {self._model_id}`, or add your own under "
                "another name with `remit model add`",
            )


class _LocalReply:
    """The answer of the model, in the form of a server of the same API."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, streamed: bool) -> None:
        self.content_type = "text/event-stream" if streamed else "application/json"
        self.stop = threading.Event()
        self._chunks: asyncio.Queue[Any] = asyncio.Queue()
        self._first: Any = None
        self._task: asyncio.Future[None] | None = None

    def begin(self, run: Callable[[Callable[[Any], None]], None]) -> None:
        """Start ``run`` in a thread; it delivers chunks."""
        loop = asyncio.get_running_loop()

        def deliver(chunk: Any) -> None:
            loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

        self._task = asyncio.ensure_future(
            call_in_thread("remit-local-model", lambda: run(deliver))
        )
        self._task.add_done_callback(lambda _: self._chunks.put_nowait(None))
        abandon(self._task)  # The answer may be left unread.

    async def in_turn(self) -> None:
        """Wait until the model is free; raise an error that came before."""
        if await self._chunks.get() is None:
            self._raise()

    async def begun(self) -> None:
        """Wait for the first chunk; raise an error that came before."""
        self._first = await self._chunks.get()
        if self._first is None:
            self._raise()

    def _raise(self) -> None:
        assert self._task is not None
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def _each(self) -> AsyncIterator[Any]:
        chunk = self._first
        while chunk is not None:
            yield chunk
            chunk = await self._chunks.get()
        self._raise()

    async def events(
        self, pass_on: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[list[SseEvent]]:
        """Yield the answer as events; ``pass_on`` is ignored."""
        async for chunk in self._each():
            data = dump(chunk)
            yield [SseEvent(b"data: %s\n\n" % data, "", data)]
        yield [SseEvent(b"data: [DONE]\n\n", "", b"[DONE]")]

    async def read(self) -> bytes:
        """Return the answer as one body."""
        total = stream_sum(CHAT.name)
        async for chunk in self._each():
            total.add("", dump(chunk))
        return dump(total.answer())

    async def aclose(self) -> None:
        """Stop the model if it is still answering."""
        self.stop.set()


def _asked(request: ProviderRequest) -> ModelCall:
    if request.body is None:
        return neutral_call(request)
    endpoint = request.body.endpoint
    if endpoint not in (CHAT, MESSAGES, RESPONSES):
        wanted = endpoint.name.partition(".")[2]
        raise ProviderError(
            "INVALID_REQUEST",
            f"model: the local model answers in text only and does not support {wanted}; use a "
            "model of another provider",
            param="model",
        )
    try:
        return read_request(endpoint.name, request.body.value)
    except DialectError as error:
        raise ProviderError("INVALID_REQUEST", error.message, param=error.param) from error


def _say_nothing(chunk: dict[str, Any]) -> None:
    """Replace a ``null`` text by an empty one: an answer without tool calls has a text."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta")
        if isinstance(delta, dict) and "content" in delta and delta["content"] is None:
            delta["content"] = ""


def _refusal(detail: Any) -> ProviderError:
    if not isinstance(detail, dict):
        return _refused("INVALID_REQUEST", str(detail))
    said, window = str(detail.get("message", detail)), detail.get("n_ctx")
    if detail.get("type") != "exceed_context_size_error" and "context size" not in said:
        field = _FIELD.match(said)
        return _refused("INVALID_REQUEST", said, field[1] if field else None)
    if window:  # Clients of both dialects know these words.
        said = f"prompt is too long: {detail.get('n_prompt_tokens')} tokens > {window} maximum"
    return _refused("CONTEXT_LENGTH", said, "messages")


def _refused(code: str, said: str, param: str | None = None) -> ProviderError:
    """Return the error of a refusal, with the reply that a server of the same API would send."""
    message = f"the local model refused: {said}"
    name = "context_length_exceeded" if code == "CONTEXT_LENGTH" else code.lower()
    body = dump(error_body(CHAT.name, 400, name, message, param))
    return ProviderError(code, message, param=param, reply=Reply(CHAT.name, 400, (), body))


_CANNOT = {
    "audio": "speaks no audio",
    "prediction": "takes no predicted output",
    "moderation": "gives no moderation results",
}
_EFFORT = {"openai.responses": "reasoning", "anthropic.messages": "thinking"}
_TEXTS = frozenset({"text", "refusal", "thinking", "redacted_thinking"})
_TOOLS = frozenset({"tool_use", "tool_result"})


def refuse_unable(call: ModelCall, *, tools: bool) -> None:
    """Raise ProviderError if the local model cannot serve a call.

    llama.cpp would ignore such requests silently, or fail with a message about its own fields.

    Args:
        call: the call.
        tools: True if the model's template supports tools.

    Raises:
        ProviderError: ``INVALID_REQUEST``; the message and ``param`` name the first refused field.
    """
    found = next(_unable(call, tools), None)
    if found is not None:
        param, what = found
        raise ProviderError("INVALID_REQUEST", f"{param}: the local model {what}", param=param)


def _unable(call: ModelCall, tools: bool) -> Iterator[tuple[str, str]]:
    choice = str((call.tool_choice or {}).get("type", "auto"))
    if call.tools and choice != "none":
        for tool in call.tools:
            if tool.get("custom") or tool.get("type"):
                yield str(tool.get("at", "tools")), "calls functions, no other kind of tool"
        if not tools:
            param = "tools" if choice == "auto" else "tool_choice"
            yield param, "has no tools in its template, so it would never learn of them"
    for index, message in enumerate(call.messages):
        if not isinstance(content := message["content"], str):
            yield from _blocks(content, f"messages[{index}]", tools)
    effort = call.reasoning
    if effort is not None and (effort.budget_tokens or effort.effort not in (None, "none")):
        param = _EFFORT.get(call.endpoint, "reasoning_effort")
        yield param, "cannot be told how much to think"
    yield from _others(call.other)


def _blocks(content: Any, where: str, tools: bool) -> Iterator[tuple[str, str]]:
    for block in content:
        kind, at = block.get("type"), str(block.get("at", where))
        if kind in _TOOLS:
            if not tools:
                yield at, "has no tools in its template, so it would not see what they were called"
            if isinstance(inner := block.get("content"), list):
                yield from _blocks(inner, at, tools)
        elif kind not in _TEXTS:
            yield at, "reads text alone"


def _others(other: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, what in _CANNOT.items():
        if other.get(name):
            yield name, what
    if other.get("n") not in (None, 1):
        yield "n", "gives one answer"
    if other.get("modalities") not in (None, [], ["text"]):
        yield "modalities", "gives text alone"
    if other.get("verbosity") not in (None, "medium"):
        yield "verbosity", "cannot be told how long to talk"
