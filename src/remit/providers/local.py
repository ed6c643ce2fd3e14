"""A small real model in this process: llama.cpp through ``xllamacpp``, no key, no network."""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from remit.kernel.exchange import ModelCapabilities, TextSink
from remit.kernel.loops import call_in_thread
from remit.kernel.settings import LocalModelSettings
from remit.providers._wire import texts_of, well_formed
from remit.providers.openai import StreamedChat, chat_body, chat_response
from remit.providers.protocol import (
    EventSink,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
)

__all__ = ["LocalProvider"]

_LONGEST_STEP_S = 60.0  # reading a full context window, the one thing that cannot be stopped


class LocalProvider:
    """Runs one GGUF file. The model is loaded at the first call; calls are taken in turn.

    Args:
        path: the weights.
        model_id: the name it answers to.
        settings: context window, threads, sampling.
    """

    def __init__(self, path: Path, model_id: str, settings: LocalModelSettings) -> None:
        self._path = path
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
        """Structured output always; tools as the model's template allows."""
        return ModelCapabilities(self._settings.native_tools, structured_output=True)

    async def aclose(self) -> None:
        """Free the model, once no call is using it."""
        await call_in_thread("remit-local-close", self._end)
        atexit.unregister(self._end)

    def _end(self) -> None:
        self._ending = True
        if self._turn.acquire(timeout=_LONGEST_STEP_S):
            self._server = None
            self._turn.release()
        self._ending = False

    async def astream(
        self, request: ProviderRequest, on_event: EventSink | None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.StreamingProvider`."""
        if request.model_id != self._model_id:
            raise ProviderError(
                "INVALID_REQUEST",
                f"the local provider runs {self._model_id!r}, not {request.model_id!r}",
            )
        loop = asyncio.get_running_loop()
        stop = threading.Event()

        def deliver(event: Any) -> None:
            if on_event is not None:
                loop.call_soon_threadsafe(on_event, event)

        try:
            return await call_in_thread(
                "remit-local-model", lambda: self._run(request, deliver, stop)
            )
        finally:
            stop.set()

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.AsyncProvider`."""
        return await self.astream(request, texts_of(on_text))

    def _run(
        self, request: ProviderRequest, deliver: EventSink, stop: threading.Event
    ) -> ProviderResponse:
        body = chat_body(request)
        body |= {
            "stream": True,  # also without a listener: only a stream can be stopped
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
        }
        if request.response_schema is None:
            body["repeat_penalty"] = self._settings.repeat_penalty
        collected = StreamedChat(deliver)
        failure: list[BaseException] = []

        def take(chunk: Any) -> bool:
            try:
                for part in chunk if isinstance(chunk, list) else [chunk]:
                    if isinstance(part, dict) and "error" in part:
                        raise _refusal(part["error"])
                    if isinstance(part, dict):
                        collected.add(part)
            except BaseException as error:  # noqa: BLE001 - must not cross into C++
                failure.append(error)
                return True
            return stop.is_set() or self._ending

        with self._turn, well_formed():
            try:
                result = self._load().handle_chat_completions(body, take)
            except (ValueError, RuntimeError) as error:
                raise ProviderError(
                    "INVALID_REQUEST", f"the local model refused: {error}"
                ) from error
            if isinstance(result, dict) and "error" in result:
                raise _refusal(result["error"])
            if failure:
                raise failure[0]
            return chat_response({**collected.body(), "model": self._model_id})

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
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._settings.context_tokens
        params.n_parallel = 1
        params.cpuparams.n_threads = self._settings.threads or os.cpu_count() or 1
        params.verbosity = 0
        params.ui = False
        # Its port is on loopback and cannot be switched off: let no other process use it.
        params.api_keys = [secrets.token_urlsafe(32)]
        try:
            self._server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            raise ProviderError(
                "SERVER_ERROR", f"the local model {self._path} cannot be loaded: {error}"
            ) from error
        return self._server


def _refusal(detail: Any) -> ProviderError:
    said = str(detail.get("message", detail)) if isinstance(detail, dict) else str(detail)
    code = "CONTEXT_LENGTH" if "context" in said.lower() else "INVALID_REQUEST"
    return ProviderError(code, said)
