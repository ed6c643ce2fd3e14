"""Anthropic's Messages API, as Remit's server speaks it (SPEC 12)."""

from remit.providers.dialects._messages_answer import (
    MessagesStream,
    messages_answer,
    messages_error,
)
from remit.providers.dialects._messages_messages import anthropic_messages, anthropic_tools
from remit.providers.dialects._messages_request import parse_messages

__all__ = [
    "MessagesStream",
    "anthropic_messages",
    "anthropic_tools",
    "messages_answer",
    "messages_error",
    "parse_messages",
]
