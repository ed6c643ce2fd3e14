"""Neutral events as a stream of Gemini's ``streamGenerateContent``."""

from __future__ import annotations

from typing import Any

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import json_text
from remit.providers.dialects.errors import error_body
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.seals import gemini_seal
from remit.providers.dialects.usage import gemini_usage
from remit.providers.protocol import ProviderResponse

__all__ = ["GeminiWriter"]

_WORDS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class GeminiWriter:
    """A writer of a stream (:class:`~remit.providers.dialects.StreamWriter`).

    The newest piece of thinking is held back, because its part carries the signature. The arguments
    are those of :func:`~remit.providers.dialects.endpoints.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        self._names = ToolNames(call)
        self._about = {"modelVersion": model, "responseId": answer_id}
        self._thought = ""
        self._thinks = False
        self._seal: dict[str, str] = {}
        self._texts = False

    def start(self) -> bytes:
        """Return nothing: the first event has content."""
        return b""

    def event(self, event: StreamEvent) -> bytes:
        """Return the events of one neutral event."""
        if isinstance(event, exchange.ThinkingDelta):
            before, self._thought, self._thinks = self._thought, event.text, True
            return self._part({"text": before, "thought": True}) if before else b""
        if isinstance(event, exchange.TextDelta | exchange.RefusalDelta):
            self._texts = True
            return self._part({"text": event.text}) if event.text else b""
        if not isinstance(event, exchange.BlockEnd):
            return b""
        block, wire = event.block, b""
        kind = block["type"]
        if kind in ("thinking", "redacted_thinking"):
            sealed = gemini_seal(block)
            if "thought_signature" in block and not self._thinks:
                self._seal = sealed  # The next part carries it.
                return b""
            thought, self._thought = self._thought, ""
            text = {"text": thought} if thought else {}
            wire = self._part({**text, "thought": True, **sealed}) if text or sealed else b""
            self._thinks = False
        elif kind == "tool_use":
            named = {"id": block["id"], "name": self._names.own(block["name"])}
            wire = self._part({"functionCall": {**named, "args": block["input"]}, **self._seal})
            self._seal = {}
        elif kind in ("text", "refusal"):
            wire = b"" if self._texts else self.event(exchange.TextDelta(block[kind]))
            self._texts = False
        return wire

    def end(self, answer: ProviderResponse) -> bytes:
        """Return the last event, with finish reason and usage."""
        wire = self._part({"text": "", **self._seal}) if self._seal else b""
        reason = _WORDS.get(answer.finish_reason, "STOP")
        return wire + self._event({"finishReason": reason}, usageMetadata=gemini_usage(answer))

    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""
        return _sse(error_body("gemini.generate", status, code, message))

    def _part(self, part: dict[str, Any]) -> bytes:
        return self._event({"content": {"parts": [part], "role": "model"}})

    def _event(self, candidate: dict[str, Any], **more: Any) -> bytes:
        return _sse({"candidates": [{**candidate, "index": 0}], **more, **self._about})


def _sse(value: dict[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % json_text(value).encode()
