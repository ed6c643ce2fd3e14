"""Those who run the models: adapters behind one protocol."""

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
from remit.providers.upstream import UpstreamProvider, refusal
from remit.providers.upstream_http import HttpUpstream, Timeouts
from remit.providers.upstream_reply import UpstreamReply
from remit.providers.wire.body import Body

__all__ = [
    "CODES",
    "AsyncProvider",
    "Body",
    "Dispatched",
    "EventSink",
    "HttpUpstream",
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
    "UpstreamReply",
    "WireChunk",
    "WireProvider",
    "refusal",
]
