"""The text index of the server store: a ``tsvector`` of our own words."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_POSITION = 16_383  # of a word in a tsvector
_VECTOR_BYTES = 900_000  # the engine's limit is 1 MB
_MAX_PLACES = 255  # of one word: the engine keeps no more


def search_expression(terms: Sequence[Sequence[str]]) -> str:
    """The literal of a ``tsquery`` for all ``terms``, each a phrase of words without quotes."""
    return " & ".join("(" + " <-> ".join(f"'{word}'" for word in words) + ")" for words in terms)


def vector(text: str) -> str:
    """The literal of a tsvector: every word with its places. Words hold letters and digits only."""
    places: dict[str, list[str]] = {}
    room = _VECTOR_BYTES
    for position, word in enumerate(text.split()[:_MAX_POSITION], start=1):
        found = places.setdefault(word, [])
        if len(found) < _MAX_PLACES:
            found.append(str(position))
            room -= 2 if len(found) > 1 else len(word.encode()) + 12
            if room < 0:
                break
    return " ".join(f"'{word}':{','.join(numbers)}" for word, numbers in places.items())
