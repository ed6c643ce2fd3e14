"""Events of a stream that differ from an earlier one only in their text."""

from __future__ import annotations

import json
from typing import Any

import orjson

from remit.providers.wire.answer import StreamSum, bytes_of, read_event
from remit.providers.wire.delta_sums import Pieces

_PROBE = "a text that no model says"
_MAX_TRIES = 16  # streams whose events differ in more, such as by a number, differ in each


class Repeats:
    """Adds events by their text alone if the rest of them equals an earlier event.

    Such an event only appends its text where the earlier one did. Most events of a long stream are
    such.

    Args:
        total: the sum of the stream.
    """

    def __init__(self, total: StreamSum) -> None:
        self._total = total
        self._before = self._after = b""
        self._pieces: Pieces | None = None
        self._tries = 0

    @property
    def known(self) -> bool:
        """True if there is an event to compare with."""
        return self._pieces is not None

    def texts_in(self, raw: bytes) -> list[str] | None:
        """Return the texts of events that differ from the learned one only in their text, in order.

        None if an event differs in more, or no event was learned. Nothing is added.

        Args:
            raw: whole events, each with its blank line.
        """
        if self._pieces is None:
            return None
        before, after, texts = self._before, self._after, []
        for event in raw[:-2].split(b"\n\n"):
            if not (event.startswith(before) and event.endswith(after)):
                return None
            text = event[len(before) : len(event) - len(after)]
            if text[:1] != b'"' or text[-1:] != b'"':  # nor a line's end beside it
                return None
            try:
                texts.append(orjson.loads(text))
            except orjson.JSONDecodeError:
                return None
        return texts

    def append(self, texts: list[str]) -> None:
        """Add the texts that :meth:`texts_in` returned."""
        assert self._pieces is not None
        self._tries = 0
        for text in texts:
            if text:
                self._pieces.append(text)
                self._total.pieces += 1
                self._total.size += len(text) if text.isascii() else bytes_of(text)

    def forget(self) -> None:
        """Forget the compared event, because a later one may have changed where texts go."""
        self._pieces = None

    def learn(self, raw: bytes, data: bytes, value: Any) -> None:
        """Compare later events with this one instead of an earlier one, if it only appends a text.

        Otherwise, and after 16 learned events that none repeated, later events are compared with
        none.

        Args:
            raw: the whole event.
            data: its data, as in ``raw``.
            value: its parsed data, which was just added.
        """
        self._pieces = None
        found = self._total.grown or self._total.appended(value)
        if found is None or self._tries >= _MAX_TRIES or raw.count(data) != 1:
            return
        if not raw.endswith(b"\n\n"):
            return
        self._tries += 1
        try:
            text = orjson.dumps(found[0])
        except orjson.JSONEncodeError:  # half of a character
            return
        if text not in data:
            text = json.dumps(found[0]).encode()  # Many servers escape non-ASCII characters.
        if data.count(text) != 1:
            return
        start = data.index(text)
        # Where the text was written in another way, what was found is something else.
        probe = read_event(data[:start] + orjson.dumps(_PROBE) + data[start + len(text) :])
        again = self._total.appended(probe)
        if again is not None and again[0] == _PROBE:
            at = raw.index(data) + start
            self._before, self._after, self._pieces = raw[:at], raw[at + len(text) : -2], found[1]
