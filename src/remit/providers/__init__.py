"""Those who run the models: adapters behind one protocol (SPEC 4.5)."""

from remit.providers.local import LocalProvider
from remit.providers.mock import MockProvider
from remit.providers.protocol import (
    CODES,
    AsyncProvider,
    Dispatched,
    EventSink,
    NeutralSink,
    Outgoing,
    Provider,
    ProviderError,
    ProviderReply,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
    WireChunk,
    WireProvider,
)
from remit.providers.upstream import UpstreamProvider
from remit.providers.upstream_http import Timeouts

__all__ = [
    "CODES",
    "AsyncProvider",
    "Dispatched",
    "EventSink",
    "LocalProvider",
    "MockProvider",
    "NeutralSink",
    "Outgoing",
    "Provider",
    "ProviderError",
    "ProviderReply",
    "ProviderRequest",
    "ProviderResponse",
    "StreamingProvider",
    "Timeouts",
    "UpstreamProvider",
    "WireChunk",
    "WireProvider",
]
