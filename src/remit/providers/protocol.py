"""What the gateway asks of a provider, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from remit.errors import RemitError
from remit.exchange import Message, TextSink

__all__ = [
    "AsyncProvider",
    "Provider",
    "ProviderError",
    "ProviderRequest",
    "ProviderResponse",
]

CODES = (
    "TIMEOUT",
    "RATE_LIMITED",
    "SERVER_ERROR",
    "AUTH_ERROR",
    "INVALID_REQUEST",
    "CONTENT_FILTERED",
    "CONTEXT_LENGTH",
)
"""The codes an adapter may give a :class:`ProviderError`."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One call in neutral form (messages as in :mod:`remit.exchange.messages`).

    Attributes:
        response_schema: a JSON Schema to hold the output to.
        timeout_s: how long the gateway will wait, in seconds.
    """

    model_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    timeout_s: float
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """One answer in neutral form.

    Attributes:
        model: the model that answered, as the provider names it.
        finish_reason: ``stop``, ``length``, ``tool_use`` or ``content_filter``.
        cached: the provider answered from a cache of its own.
        content_blocks: text and tool_use blocks, when the provider sends blocks.
        cached_input_tokens: part of ``input_tokens`` read from a prompt cache, when told.
        reasoning_tokens: part of ``output_tokens`` that was thinking, when told.
        usage_reported: ``False`` when the provider told no token counts: then the call is
            charged at its upper bound.
    """

    content: str
    model: str
    input_tokens: int
    output_tokens: int
    finish_reason: str = "stop"
    request_id: str = ""
    cached: bool = False
    content_blocks: tuple[dict[str, Any], ...] = ()
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    usage_reported: bool = True


class ProviderError(RemitError):
    """A call failed.

    Args:
        code: one of :data:`CODES`.
        message: what the provider said; no key in it.
        retryable: whether the same call may succeed a moment later.
        retry_after_s: how long the provider asked to wait, in seconds.
        maybe_billed: the request reached the provider and nobody reported its usage.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retryable: bool = False,
        *,
        retry_after_s: float | None = None,
        maybe_billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.maybe_billed = maybe_billed

    @property
    def speaks_of_health(self) -> bool:
        """Whether a circuit breaker should count it: a refusal of one request does not."""
        return self.code in ("TIMEOUT", "RATE_LIMITED", "SERVER_ERROR")


class Provider(Protocol):
    """The least a provider must have. It may block; the gateway gives it a thread."""

    def send(self, request: ProviderRequest) -> ProviderResponse:
        """Answer one request; raises :class:`ProviderError`."""
        ...


@runtime_checkable
class AsyncProvider(Protocol):
    """A provider that does not block, and can stream."""

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request; with ``on_text``, streaming. Raises :class:`ProviderError`."""
        ...
