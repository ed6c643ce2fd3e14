"""OpenAI's Chat Completions, as Remit's server speaks it (SPEC 12)."""

from remit.providers.dialects._chat_answer import ChatStream, chat_answer, chat_error, model_list
from remit.providers.dialects._chat_messages import openai_messages, openai_tools
from remit.providers.dialects._chat_request import parse_chat

__all__ = [
    "ChatStream",
    "chat_answer",
    "chat_error",
    "model_list",
    "openai_messages",
    "openai_tools",
    "parse_chat",
]
