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

from remit.providers.event_stream import (
    EVENT_STREAM as EVENT_STREAM,
    FrameParser as FrameParser,
    exception_of as exception_of,
    frame as frame,
)
from remit.providers.local import LocalProvider as LocalProvider
from remit.providers.mock import MockProvider as MockProvider
from remit.providers.protocol import (
    CODES as CODES,
    NOT_THIS_API as NOT_THIS_API,
    UNREACHABLE as UNREACHABLE,
    AsyncProvider as AsyncProvider,
    Dispatched as Dispatched,
    EventSink as EventSink,
    NeutralSink as NeutralSink,
    Outgoing as Outgoing,
    Provider as Provider,
    ProviderError as ProviderError,
    ProviderReply as ProviderReply,
    ProviderRequest as ProviderRequest,
    ProviderResponse as ProviderResponse,
    StreamingProvider as StreamingProvider,
    Upload as Upload,
    WireChunk as WireChunk,
    WireProvider as WireProvider,
)
from remit.providers.upstream import (
    UpstreamProvider as UpstreamProvider,
    passed_on as passed_on,
    refusal as refusal,
)
from remit.providers.upstream_errors import (
    error_of as error_of,
    error_of_event as error_of_event,
    is_shortage as is_shortage,
)
from remit.providers.upstream_http import HttpUpstream as HttpUpstream, Timeouts as Timeouts
from remit.providers.upstream_reply import (
    MAX_BODY_BYTES as MAX_BODY_BYTES,
    UpstreamReply as UpstreamReply,
    inflated as inflated,
)
from remit.providers.wire.body import Body as Body
