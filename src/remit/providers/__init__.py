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
from remit.providers.upstream import UpstreamProvider, passed_on, refusal
from remit.providers.upstream_errors import error_of, error_of_event, is_shortage
from remit.providers.upstream_http import HttpUpstream, Timeouts
from remit.providers.upstream_reply import MAX_BODY_BYTES, UpstreamReply
from remit.providers.wire.body import Body

__all__ = [
    "CODES",
    "MAX_BODY_BYTES",
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
    "error_of",
    "error_of_event",
    "is_shortage",
    "passed_on",
    "refusal",
]
