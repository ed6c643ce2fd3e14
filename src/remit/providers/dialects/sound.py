"""Repair of text that is not valid Unicode, in answers and in the events of a stream.

Some servers cut an emoji between two events, or send half of one. Two halves that follow each
other are joined; a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
from msgspec.structs import replace as replace_fields

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.kernel.json_text import sound, sound_text
from remit.providers.protocol import ProviderResponse

__all__ = ["SoundStream", "sound_answer"]

_PIECE = {
    exchange.TextDelta: "text",
    exchange.ThinkingDelta: "text",
    exchange.RefusalDelta: "text",
    exchange.ToolInputDelta: "partial_json",
}
"""The field that holds the text of an event that continues one."""

_Text = tuple[type, int | None]


def sound_answer(answer: ProviderResponse) -> ProviderResponse:
    """Return an answer whose texts are valid Unicode; the same object if they are."""
    said = [answer.content, answer.model, answer.finish_reason, answer.request_id]
    try:
        orjson.dumps([*said, answer.content_blocks])
        return answer
    except TypeError:  # an unpaired surrogate; or an integer of more than 64 bits
        pass
    content, model, finish_reason, request_id = map(sound_text, said)
    return replace_fields(
        answer,
        content=content,
        model=model,
        finish_reason=finish_reason,
        request_id=request_id,
        content_blocks=sound(answer.content_blocks),
        more_than_text=answer.more_than_text or content != answer.content,
    )


class SoundStream:
    """Repairs the texts of one stream. A first half of a character is held until the text
    continues.
    """

    def __init__(self) -> None:
        self._halves: dict[_Text, str] = {}

    def repaired(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """Return the events with valid texts; their number may differ."""
        found: list[StreamEvent] = []
        for event in events:
            field = _PIECE.get(type(event))
            if field is not None:
                self._continue(event, field, found)
            elif type(event) is exchange.BlockEnd:
                self._end(event.index, found)
                found.append(replace(event, block=sound(event.block)))
            elif type(event) is exchange.ToolUseStart:
                name, identity = sound_text(event.name), sound_text(event.id)
                found.append(replace(event, id=identity, name=name))
            else:
                found.append(event)
        return found

    def _continue(self, event: Any, field: str, found: list[StreamEvent]) -> None:
        piece: str = getattr(event, field)
        if piece.isascii() and not self._halves:
            found.append(event)
            return
        of = (type(event), getattr(event, "index", None))
        text = self._halves.pop(of, "") + piece
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[of] = text[-1]
            text = text[:-1]
        if text or not piece:
            found.append(replace(event, **{field: sound_text(text)}))

    def _end(self, index: int | None, found: list[StreamEvent]) -> None:
        """Replace the pending halves of texts that end with a block."""
        for of in [one for one in self._halves if one[1] == index]:
            del self._halves[of]
            kind, _ = of
            found.append(
                exchange.ToolInputDelta(index or 0, "\ufffd")
                if kind is exchange.ToolInputDelta
                else kind("\ufffd")
            )
