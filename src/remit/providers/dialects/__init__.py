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

from remit.providers.dialects.errors import (
    DialectError as DialectError,
    bedrock_exception as bedrock_exception,
    error_body as error_body,
)
from remit.providers.dialects.model_call import (
    ModelCall as ModelCall,
    ResponseFormat as ResponseFormat,
)
from remit.providers.dialects.responses.request_writer import response_object as response_object
from remit.providers.dialects.streaming import (
    SoundStream as SoundStream,
    StreamReader as StreamReader,
    sound_answer as sound_answer,
    stream_events as stream_events,
)
from remit.providers.dialects.translators import (
    read_answer as read_answer,
    read_request as read_request,
    stream_reader as stream_reader,
    stream_writer as stream_writer,
    write_answer as write_answer,
    write_request as write_request,
)
from remit.providers.dialects.whole_streams import own_events as own_events
from remit.providers.wire.usage import PARTS as PARTS, reported as reported
