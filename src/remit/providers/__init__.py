"""Providers: adapters to those who run models, behind one protocol.

The room owns HTTP to providers, the local model, the mock, the reading of request and answer
bodies, and prices. The room knows no key of a client, no budget and no ledger entry.

Invariants: a body in its own dialect keeps its bytes except for members that Remit must set; a
count of usage that can be read in two ways is never taken as exact; reading along never changes an
answer.

Start reading in :mod:`remit.providers.protocol`. Doors: ``dialects`` translates between APIs,
``prices`` computes cost, ``sse`` parses event streams, ``weights`` finds the local model,
``wire`` reads endpoints, bodies and answers.
"""

from remit.providers.event_stream import EVENT_STREAM, exception_of, frame
from remit.providers.local import LocalProvider
from remit.providers.mock import MockProvider
from remit.providers.protocol import (
    CODES,
    NOT_THIS_API,
    UNREACHABLE,
    UNSENT,
    AsyncProvider,
    Dispatched,
    EventSink,
    Outgoing,
    Provider,
    ProviderError,
    ProviderReply,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
    Upload,
    WireChunk,
    WireProvider,
)
from remit.providers.upstream import UpstreamProvider, passed_on, refusal
from remit.providers.upstream_errors import error_of, error_of_event, is_shortage
from remit.providers.upstream_http import HttpUpstream, Timeouts
from remit.providers.upstream_reply import MAX_BODY_BYTES, UpstreamReply, inflated
from remit.providers.wire.body import Body

__all__ = [
    "CODES",
    "EVENT_STREAM",
    "MAX_BODY_BYTES",
    "NOT_THIS_API",
    "UNREACHABLE",
    "UNSENT",
    "AsyncProvider",
    "Body",
    "Dispatched",
    "EventSink",
    "HttpUpstream",
    "LocalProvider",
    "MockProvider",
    "Outgoing",
    "Provider",
    "ProviderError",
    "ProviderReply",
    "ProviderRequest",
    "ProviderResponse",
    "StreamingProvider",
    "Timeouts",
    "Upload",
    "UpstreamProvider",
    "UpstreamReply",
    "WireChunk",
    "WireProvider",
    "error_of",
    "error_of_event",
    "exception_of",
    "frame",
    "inflated",
    "is_shortage",
    "passed_on",
    "refusal",
]
