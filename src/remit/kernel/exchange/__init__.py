"""Value objects of one model call, and the port through which agents reach the gateway.

They live apart from the gateway's class, so that a worker can speak of calls without
seeing what routes them (SPEC 8.3).
"""

from remit.kernel.exchange.events import (
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.kernel.exchange.messages import Message, check_messages, text_of
from remit.kernel.exchange.port import GatewayPort, ModelCapabilities, TextSink
from remit.kernel.exchange.request import PromptRequest
from remit.kernel.exchange.response import PromptResponse, RouteOutcome

__all__ = [
    "GatewayPort",
    "Message",
    "ModelCapabilities",
    "PromptRequest",
    "PromptResponse",
    "RouteOutcome",
    "StreamEvent",
    "TextDelta",
    "TextSink",
    "ThinkingDelta",
    "ToolInputDelta",
    "ToolUseStart",
    "check_messages",
    "text_of",
]
