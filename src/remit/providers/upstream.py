"""Providers that are reached over HTTP, in the dialect of OpenAI, Anthropic, Gemini or Bedrock."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Mapping

from remit.kernel.exchange import ModelCapabilities, Reply
from remit.kernel.settings import ProviderSettings
from remit.providers.clouds import signed, signer
from remit.providers.dialects.targets import target_of
from remit.providers.protocol import Outgoing, ProviderError, ProviderReply
from remit.providers.request_bodies import WireDialect
from remit.providers.upstream_errors import error_of, json_value
from remit.providers.upstream_http import HttpUpstream, Timeouts
from remit.providers.upstream_reply import UpstreamReply
from remit.providers.wire.body import member_at
from remit.providers.wire.endpoint_table import (
    CHAT,
    CONVERSE,
    COUNT_CONTENT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    Endpoint,
)

PASSED_ON = (
    "content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms",
    "x-should-retry", "openai-processing-ms", "openai-version", "openai-organization",
    "anthropic-organization-id",
)  # fmt: skip
"""Headers that a client receives, in addition to those that begin with :data:`_LIMITS`."""

_KEY_HEADERS = {"anthropic": ("x-api-key", ""), "gemini": ("x-goog-api-key", "")}
_HOMES = {"anthropic": MESSAGES, "openai": CHAT, "gemini": GENERATE, "converse": CONVERSE}
_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-")
_NO_SUCH_ENDPOINT = (404, 405, 501)
_MISSES = 3
"""Answers in a row without a Responses API, after which calls are translated at once."""
_PROBE_S = 300.0
"""Seconds until a server without a Responses API is tried again."""


class UpstreamProvider(WireDialect):
    """A provider with one base URL and one dialect. Nothing is sent before the first call.

    Args:
        base_url: the URL, with ``/v1`` for ``openai``, ``/v1beta`` for ``gemini``, ``/v1`` and the
            path of project and location for Vertex AI, and without a version for ``anthropic`` and
            Bedrock.
        api_key: the key, sent as bearer token, ``x-api-key`` or ``x-goog-api-key``; empty
            for servers without keys, and for clouds that take this machine's credentials.
        settings: dialect, abilities and default values.
        name: the provider's id, such as ``mistral``; some ids select the blocks that are accepted.

    Raises:
        ConfigError: there is no key, and the library for the cloud's credentials is not installed.
    """

    def __init__(
        self, base_url: str, api_key: str, settings: ProviderSettings, name: str = ""
    ) -> None:
        headers: dict[str, str] = {}
        self.cloud = settings.cloud
        if api_key:
            kind = {"aws": "openai", "google": "gemini"}.get(self.cloud, settings.kind)
            name_of_key, prefix = _KEY_HEADERS.get(kind, ("authorization", "Bearer "))
            headers[name_of_key] = prefix + api_key
        self._sign = signer(self.cloud, base_url) if self.cloud and not api_key else None
        self._http = HttpUpstream(base_url, headers)
        self.target = functools.lru_cache(256)(
            functools.partial(target_of, "gemini" if settings.kind == "gemini" else name, base_url)
        )
        self._every: dict[str, str] = {}
        if settings.kind == "anthropic" and not self.cloud:
            self._every["anthropic-version"] = self.api_version = settings.api_version
        self._settings = settings
        self.home = _HOMES[settings.kind]
        self.max_output_tokens = settings.max_output_tokens
        self.forward_headers = settings.forward_headers
        self.send_temperature = settings.send_temperature
        self.max_completion_tokens_models = settings.max_completion_tokens_models
        self._misses = 0
        self._probe_at = 0.0

    def __repr__(self) -> str:
        return f"UpstreamProvider({self._http!r})"

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Return the abilities that the settings state, the same for every model."""
        return ModelCapabilities(
            self._settings.native_tools,
            self._settings.structured_output,
            self._settings.prose,
            self._settings.images,
        )

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._http.aclose()

    def speaks(self, endpoint: Endpoint) -> bool:
        """Return True if bodies of an endpoint are sent without translation.

        These are the endpoints of the home dialect; on a cloud, only the main endpoint and Gemini's
        count of tokens. For the Responses API the result is False if the settings exclude it, and
        for 300 seconds after three answers in a row that the server has no such endpoint.
        """
        if self.cloud:
            return endpoint is self.home or (endpoint is COUNT_CONTENT and self.home is GENERATE)
        if endpoint is RESPONSES and self._settings.kind == "openai":
            is_there = self._misses < _MISSES or time.monotonic() >= self._probe_at
            return self._settings.responses and is_there
        return endpoint.dialect == self.home.dialect

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> ProviderReply:
        """Send a request once and return the reply as soon as its headers have come.

        For a call of a model that is not streamed, the body is awaited too, up to 256 KiB. The
        caller closes the reply; a reply with another status than 2xx is read into the error. An
        answer that the server lacks the Responses API is counted for :meth:`speaks`.

        Args:
            outgoing: the request.
            timeouts: limits of the waits.

        Raises:
            ProviderError: there is no answer, its status is not 2xx, or this machine has no valid
                credentials for the cloud (``LOCAL_ERROR``). ``to_translate`` and ``retryable`` are
                set if the server lacks the Responses API, ``to_unfold`` if it does not know the
                previous response.
            Exception: the error that the pieces of an upload raised.
        """
        body = outgoing.body
        endpoint = body.endpoint
        headers = {"content-type": body.content_type, **self._every, **outgoing.headers}
        path, own = outgoing.path or endpoint.path, None
        if self._sign is not None:
            own = await signed(self._sign, outgoing.method, self._http.url(path), body.raw)
        reply = await self._http.send(
            outgoing.method, path, outgoing.upload or body.raw, headers,
            timeouts, reconnect=outgoing.reconnect,
            whole=bool(endpoint.output_limit) and not outgoing.stream and not endpoint.verbatim,
            signed=own,
        )  # fmt: skip
        if 200 <= reply.status < 300:
            if endpoint is RESPONSES:
                self._misses = 0
            return reply
        error = await refusal(endpoint.name, reply, self._http.secrets)
        said = error.reply.body if error.reply is not None else b""
        if endpoint is RESPONSES and reply.status in _NO_SUCH_ENDPOINT and _no_endpoint(said):
            # The server may lack this endpoint, or a proxy may be restarting.
            self._misses += 1
            self._probe_at = time.monotonic() + _PROBE_S
            error.retryable = error.to_translate = True
        if endpoint is RESPONSES and _is_forgotten(said):
            error.to_unfold = True
        raise error

    def passing(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the client's headers that ``forward_headers`` names.

        Args:
            headers: the client's headers, with lower-case names.
        """
        return {name: headers[name] for name in self.forward_headers if name in headers}

    async def fetch(
        self, path: str, headers: Mapping[str, str], timeouts: Timeouts
    ) -> UpstreamReply:
        """Send a GET request and return the reply, also with an error status; the caller closes it.

        The provider's key is sent. Credentials of this machine for a cloud are not.

        Args:
            path: path after the base URL, with its query.
            headers: headers in addition to the provider's own.
            timeouts: limits of the waits.

        Raises:
            ProviderError: there is no answer, or a redirect.
        """
        return await self._http.send("GET", path, b"", {**self._every, **headers}, timeouts)


async def refusal(endpoint: str, reply: UpstreamReply, secrets: Collection[str]) -> ProviderError:
    """Return the error of an answer with an error status; the error contains the answer.

    Args:
        endpoint: the endpoint whose form the answer has, such as ``openai.chat``.
        reply: the reply, which is read and closed.
        secrets: texts that the error must not show.

    Raises:
        ProviderError: the answer cannot be read.
    """
    try:
        said = await reply.read()
    finally:
        await reply.aclose()
    error = error_of(reply.status, reply.headers, said, secrets)
    error.reply = Reply(endpoint, reply.status, passed_on(reply.headers), said)
    return error


def passed_on(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers of an answer that its client receives: names in lower case, values without
    outer blanks.

    The result has the headers in :data:`PASSED_ON` and the headers of rate limits.
    """
    return tuple(
        [(low, value.strip()) for name, value in headers.items() if (low := _name_passed_on(name))]
    )


@functools.lru_cache(64)  # A hostile head has up to 256 KiB of names, which stay in memory.
def _name_passed_on(name: str) -> str:
    """Return a header's name as a client receives it; empty if it is not passed on."""
    low = name.lower()
    return low if low in PASSED_ON or low.startswith(_LIMITS) else ""


def _is_forgotten(said: bytes) -> bool:
    """Return True if the error says that the previous response is unknown."""
    return bool(member_at(json_value(said), "error.code") == "previous_response_not_found")


def _no_endpoint(said: bytes) -> bool:
    """Return True if the error concerns the path and not a model or an item."""
    error = member_at(json_value(said), "error")
    return not (member_at(error, "code") or member_at(error, "param"))
