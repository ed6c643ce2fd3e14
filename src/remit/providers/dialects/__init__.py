"""Translation between five dialects through one neutral form, by pure functions.

The package owns the neutral form of a call (:class:`ModelCall`), readers and writers of requests,
answers and streams for OpenAI's Chat Completions (``openai.chat``), OpenAI's Responses
(``openai.responses``), Anthropic's Messages API (``anthropic.messages``), Gemini's
``generateContent`` (``gemini.generate``) and Bedrock's Converse (``bedrock.converse``), and the
adaptation of bodies to single providers. The package sends nothing.

Invariants: a field that a target cannot express is refused by the client's own name for it, or
changes nothing that was promised; no error quotes the client's text; each translated name of a tool
leads back to the client's.

Start reading in :mod:`remit.providers.dialects.model_call`, then
:mod:`remit.providers.dialects.translators`.
"""

from remit.providers.dialects.errors import DialectError, bedrock_exception, error_body
from remit.providers.dialects.model_call import ModelCall, ResponseFormat
from remit.providers.dialects.responses.request_writer import response_object
from remit.providers.dialects.streaming import (
    SoundStream,
    StreamReader,
    sound_answer,
    stream_events,
)
from remit.providers.dialects.translators import (
    read_answer,
    read_request,
    stream_reader,
    stream_writer,
    write_answer,
    write_request,
)
from remit.providers.dialects.whole_streams import own_events
from remit.providers.wire.usage import PARTS, reported

__all__ = [
    "PARTS",
    "DialectError",
    "ModelCall",
    "ResponseFormat",
    "SoundStream",
    "StreamReader",
    "bedrock_exception",
    "error_body",
    "own_events",
    "read_answer",
    "read_request",
    "reported",
    "response_object",
    "sound_answer",
    "stream_events",
    "stream_reader",
    "stream_writer",
    "write_answer",
    "write_request",
]
