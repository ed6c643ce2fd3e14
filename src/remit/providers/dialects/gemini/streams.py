"""Streams of Gemini's ``streamGenerateContent``, read as neutral events and written from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from remit.providers.dialects.errors import error_body, shaped
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.seals import gemini_seal
from remit.providers.dialects.streaming import StreamReader, StreamWriter
from remit.providers.dialects.tool_calls import NAMELESS, input_of, json_text
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.gemini import GenerateSum

_WORDS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class GeminiReader(StreamReader):
    """Translates the first candidate of a stream of Gemini's to neutral events.

    The argument is a GenerateSum, to which each event is added before :meth:`feed`.
    """

    _sum: GenerateSum

    def __init__(self, total: GenerateSum) -> None:
        super().__init__(total)
        self._read_parts = 0  # those that do not grow any more
        self._sealed = False

    def _feed(self, data: Mapping[str, Any]) -> None:
        if "candidates" in data:
            shaped(data["candidates"], list, "candidates")
        parts = self._sum.parts
        while self._read_parts < len(parts):
            part = parts[self._read_parts]
            self._grow(part)
            if "functionCall" in part:
                self._call(part["functionCall"])
            elif self._read_parts + 1 == len(parts) and "text" in part:
                break  # More of the text may come.
            self._read_parts += 1
            self._sealed = False

    def _finish(self) -> None:
        self._end()

    def _grow(self, part: dict[str, Any]) -> None:
        """Add the new text of a part, and its seal."""
        if new := self._new(self._read_parts, part.get("text", ""), "text", (str,)):
            kind = "thinking" if part.get("thought") is True else "text"
            if self._kind != kind:
                self._end()
            self._piece(kind, new)
        seal = part.get("thoughtSignature")
        if type(seal) is str and seal and not self._sealed:
            self._sealed = True
            self._end()
            self._end_block({"type": "thinking", "thinking": "", "thought_signature": seal})

    def _call(self, call: Any) -> None:
        self._end()
        given = shaped(call, dict, "functionCall").get("name")
        name = shaped(given or NAMELESS, str, "functionCall.name")
        index = len(self._ids)
        identity = call.get("id")
        if type(identity) is not str or not identity:
            identity = f"call_{self._sum.request_id or 'gemini'}_{index}"
        self._begin_call(index, identity, name)
        block = {"type": "tool_use", "id": identity, "name": name}
        self._end_call(index, {**block, "input": input_of(call.get("args"))})

    def _end(self) -> None:
        if kind := self._kind:
            self._end_block({"type": kind, kind: self._close()})


class GeminiWriter(StreamWriter):
    """A writer of one answer as events of Gemini's, in the bytes of server-sent events.

    The newest piece of thinking is held back, because its part carries the signature. A call comes
    whole. The arguments are those of :func:`~remit.providers.dialects.translators.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        super().__init__(call)
        self._about = {"modelVersion": model, "responseId": answer_id}
        self._newest = ""
        self._thinks = False
        self._seal: dict[str, str] = {}
        self._texts = False

    @override
    def start(self) -> bytes:
        return b""

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        wire = self._part({"text": "", **self._seal}) if self._seal else b""
        reason = _WORDS.get(answer.finish_reason, "STOP")
        return wire + self._event(
            {"finishReason": reason}, usageMetadata=usage_of("gemini.generate", answer)
        )

    @override
    def error(self, status: int, code: str, message: str) -> bytes:
        return _sse(error_body("gemini.generate", status, code, message))

    def _text(self, kind: str, text: str) -> bytes:
        self._texts = True
        return self._part({"text": text}) if text else b""

    def _thought(self, text: str, *, raw: bool) -> bytes:
        before, self._newest, self._thinks = self._newest, text, True
        return self._part({"text": before, "thought": True}) if before else b""

    def _end_call(self, index: int, block: dict[str, Any]) -> bytes:
        named = {"id": block["id"], "name": self._names.own(block["name"])}
        seal, self._seal = self._seal, {}
        return self._part({"functionCall": {**named, "args": block["input"]}, **seal})

    def _end_block(self, block: dict[str, Any]) -> bytes:
        kind, wire = block["type"], b""
        if kind in ("thinking", "redacted_thinking"):
            sealed = gemini_seal(block)
            if "thought_signature" in block and not self._thinks:
                self._seal = sealed  # The next part carries it.
                return b""
            thought, self._newest = self._newest, ""
            text = {"text": thought} if thought else {}
            wire = self._part({**text, "thought": True, **sealed}) if text or sealed else b""
            self._thinks = False
        elif kind in ("text", "refusal"):
            wire = b"" if self._texts else self._text(kind, block[kind])
            self._texts = False
        return wire

    def _part(self, part: dict[str, Any]) -> bytes:
        return self._event({"content": {"parts": [part], "role": "model"}})

    def _event(self, candidate: dict[str, Any], **more: Any) -> bytes:
        return _sse({"candidates": [{**candidate, "index": 0}], **more, **self._about})


def _sse(value: dict[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % json_text(value).encode()
