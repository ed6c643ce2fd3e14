"""Calls as they might be on the wire, in three dialects: odd but legal text, and exact answers.

What a provider is sent must be what the client sent, and what the client gets what the provider
sent, byte for byte.
"""

from __future__ import annotations

from tests.support.wire_corpus.chat import CHAT
from tests.support.wire_corpus.exchange import WireExchange
from tests.support.wire_corpus.messages import MESSAGES
from tests.support.wire_corpus.responses import RESPONSES

__all__ = ["CORPUS", "WireExchange"]

CORPUS = CHAT + RESPONSES + MESSAGES
