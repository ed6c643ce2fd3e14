"""Detection of quotes from exchanges in an addition to a prompt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TypeVar

from remit.learning.meta.requirements import words

__all__ = ["Quotes"]

_RUN = 5  # words
_SHORTEST = 3  # words of a text that is a quote as a whole
_DIGITS = 7
_CHARACTERS = 8
_TOKEN = re.compile(r"\S{8,}")
_TELLING = re.compile(r"[0-9@]")
_NUMBER = re.compile(r"\d(?:[\s().+/-]{0,3}\d)+")
# Thai, Lao, Burmese, Khmer, Chinese and Japanese put no spaces between words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+"
)
_Items = TypeVar("_Items", str, tuple[str, ...])


class Quotes:
    """The texts of exchanges, in pieces that an addition must not quote.

    A piece is five consecutive words, a text of three or four words, a long token with a digit or
    an @, seven consecutive digits however grouped, or eight consecutive characters of a script
    without spaces. A learned prompt is data of its package and is sent with every later call. It
    must not contain a person's words, because an erasure would not find them there.

    Args:
        said: texts of users and answers.
        known: texts that may be repeated, such as the contract's own prompt.
    """

    def __init__(self, said: Iterable[str], known: Iterable[str] = ()) -> None:
        self._known = {piece for text in known for piece in _pieces(text)}
        self._said: set[str | tuple[str, ...]] = set()
        for text in said:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text that must not be quoted.

        Pieces of known texts may be quoted all the same.

        Of a long text every piece of several words is added, of a short one the whole text.
        """
        size = min(_RUN, max(_SHORTEST, len(words(_normal(text)))))
        self._said.update(set(_pieces(text, size)) - self._known)

    def found_in(self, addition: str) -> bool:
        """Return True if an addition contains a piece of a text that must not be quoted.

        Args:
            addition: text that a learner would add to a prompt.
        """
        return not self._said.isdisjoint(_pieces(addition))


def _pieces(text: str, shortest: int = _SHORTEST) -> Iterator[str | tuple[str, ...]]:
    text = _normal(text)
    for size in range(shortest, _RUN + 1):
        yield from _windows(words(text), size)
    for token in _TOKEN.findall(text):
        if _TELLING.search(token):
            yield token.strip(".,;:!?()[]\"'`").casefold()
    for number in _NUMBER.findall(text):
        yield from _windows("".join(filter(str.isdigit, number)), _DIGITS)
    for stretch in _UNSPACED.findall(text):
        yield from _windows(stretch, _CHARACTERS)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _windows(items: _Items, size: int) -> Iterator[_Items]:
    return (items[place : place + size] for place in range(len(items) - size + 1))
