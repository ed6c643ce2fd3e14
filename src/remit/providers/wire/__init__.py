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
from remit.providers.wire.answer import StreamSum, counted_once, ended_by, read_event
from remit.providers.wire.body import OBJECT_NAMES, BodyError, member_at, object_in
from remit.providers.wire.endpoint_table import (
    A2A,
    BATCHES,
    CHAT,
    COMPACT,
    CONVERSE,
    COUNT_CONTENT,
    COUNT_TOKENS,
    ENDPOINTS,
    FILES,
    GENERATE,
    INPUT_TOKENS,
    MESSAGES,
    NESTED,
    RESPONSES,
    SPEECH,
    STORED_CHATS,
    STORED_RESPONSES,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    Dialect,
    Endpoint,
)
from remit.providers.wire.messages import read_inputs
from remit.providers.wire.pass_through_paths import (
    PASSED_PATHS,
    PassedPath,
    find_passed,
    is_refused,
    kinds_made,
    matches,
)
from remit.providers.wire.readers import answer_facts, is_other_form, stream_sum
from remit.providers.wire.responses import is_reference
from remit.providers.wire.simple import Passed
from remit.providers.wire.usage import Usage

if TYPE_CHECKING:
    from remit.providers.wire.form import ArrivingForm, FormBody, ObjectBody
    from remit.providers.wire.repeated_events import Repeats
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "A2A",
    "BATCHES",
    "CHAT",
    "COMPACT",
    "CONVERSE",
    "COUNT_CONTENT",
    "COUNT_TOKENS",
    "ENDPOINTS",
    "FILES",
    "GENERATE",
    "INPUT_TOKENS",
    "MESSAGES",
    "NESTED",
    "OBJECT_NAMES",
    "PASSED_PATHS",
    "RESPONSES",
    "SPEECH",
    "STORED_CHATS",
    "STORED_RESPONSES",
    "TRANSCRIPTIONS",
    "TRANSLATIONS",
    "ArrivingForm",
    "BodyError",
    "Dialect",
    "Endpoint",
    "FormBody",
    "ObjectBody",
    "Passed",
    "PassedPath",
    "Repeats",
    "StreamSum",
    "Usage",
    "answer_facts",
    "counted_once",
    "ended_by",
    "find_passed",
    "is_other_form",
    "is_reference",
    "is_refused",
    "kinds_made",
    "matches",
    "member_at",
    "object_in",
    "read_event",
    "read_inputs",
    "stream_sum",
]
