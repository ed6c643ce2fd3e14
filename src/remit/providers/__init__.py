"""Those who run the models: adapters behind one protocol (SPEC 4.5)."""

from remit.providers.anthropic import AnthropicProvider
from remit.providers.local import LocalProvider
from remit.providers.mock import MockProvider
from remit.providers.openai import OpenAIProvider
from remit.providers.protocol import (
    CODES,
    AsyncProvider,
    EventSink,
    Provider,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
    UsageReported,
    WireChunk,
)

__all__ = [
    "CODES",
    "AnthropicProvider",
    "AsyncProvider",
    "EventSink",
    "LocalProvider",
    "MockProvider",
    "OpenAIProvider",
    "Provider",
    "ProviderError",
    "ProviderRequest",
    "ProviderResponse",
    "StreamingProvider",
    "UsageReported",
    "WireChunk",
]
