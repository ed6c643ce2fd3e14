"""Three dialects, to and from one neutral form: a call between two of them.

OpenAI's Chat Completions (``openai.chat``), OpenAI's Responses (``openai.responses``),
Anthropic's Messages API (``anthropic.messages``). Pure functions.
"""

from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.endpoints import (
    StreamReader,
    read_answer,
    read_request,
    stream_writer,
    write_answer,
    write_request,
)
from remit.providers.dialects.errors import error_body
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.responses.answer import response_object
from remit.providers.dialects.sound import SoundStream, sound_answer
from remit.providers.dialects.streaming import StreamWriter, stream_events
from remit.providers.dialects.usage import reported

__all__ = [
    "DialectError",
    "ModelCall",
    "Reasoning",
    "ResponseFormat",
    "SoundStream",
    "StreamReader",
    "StreamWriter",
    "error_body",
    "read_answer",
    "read_request",
    "reported",
    "response_object",
    "sound_answer",
    "stream_events",
    "stream_writer",
    "write_answer",
    "write_request",
]
