"""Calls as they are on the wire: the endpoints, request bodies and answers of each dialect.

The package owns the table of endpoints, the parsing of bodies with byte-exact edits, the sums of
streams, and the reading of usage. The package translates nothing: translation between dialects is
in :mod:`remit.providers.dialects`.

Invariants: an edited body differs from the client's text only at the noted places; no reader of an
answer raises; a count that could be read in two ways is not used.

Start reading in :mod:`remit.providers.wire.endpoint_table`, then :mod:`remit.providers.wire.body`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.providers.wire.answer import (
    StreamSum as StreamSum,
    counted_once as counted_once,
    ended_by as ended_by,
    read_event as read_event,
)
from remit.providers.wire.body import (
    OBJECT_NAMES as OBJECT_NAMES,
    BodyError as BodyError,
    member_at as member_at,
    object_in as object_in,
)
from remit.providers.wire.endpoint_table import (
    A2A as A2A,
    BATCHES as BATCHES,
    CHAT as CHAT,
    COMPACT as COMPACT,
    CONVERSE as CONVERSE,
    COUNT_CONTENT as COUNT_CONTENT,
    COUNT_TOKENS as COUNT_TOKENS,
    EMBEDDINGS as EMBEDDINGS,
    ENDPOINTS as ENDPOINTS,
    FILES as FILES,
    GENERATE as GENERATE,
    INPUT_TOKENS as INPUT_TOKENS,
    MESSAGES as MESSAGES,
    NESTED as NESTED,
    RESPONSES as RESPONSES,
    SPEECH as SPEECH,
    STORED_CHATS as STORED_CHATS,
    STORED_RESPONSES as STORED_RESPONSES,
    TRANSCRIPTIONS as TRANSCRIPTIONS,
    TRANSLATIONS as TRANSLATIONS,
    Dialect as Dialect,
    Endpoint as Endpoint,
)
from remit.providers.wire.messages import read_inputs as read_inputs
from remit.providers.wire.pass_through_paths import (
    PASSED_PATHS as PASSED_PATHS,
    PassedPath as PassedPath,
    find_passed as find_passed,
    is_refused as is_refused,
    kinds_made as kinds_made,
    matches as matches,
)
from remit.providers.wire.readers import (
    answer_facts as answer_facts,
    is_other_form as is_other_form,
    stream_sum as stream_sum,
)
from remit.providers.wire.responses import is_reference as is_reference
from remit.providers.wire.simple import Passed as Passed
from remit.providers.wire.usage import Usage as Usage

if TYPE_CHECKING:
    from remit.providers.wire.form import (
        ArrivingForm as ArrivingForm,
        FormBody as FormBody,
        ObjectBody as ObjectBody,
    )
    from remit.providers.wire.repeated_events import Repeats as Repeats
else:
    __getattr__ = lazy_names(__name__)
