"""Whether an addition to a prompt quotes an exchange."""

from __future__ import annotations

import re
from collections.abc import Iterable

from remit.learning.meta.requirements import words

__all__ = ["Quotes"]

_RUN = 5
_TOKEN = re.compile(r"\S{8,}")
_TELLING = re.compile(r"[0-9@]")


class Quotes:
    """What exchanges say: five words in a row, and long tokens with a digit or an @.

    A learned prompt is data of its package, and is sent with every later call. What somebody said
    must not come into it: an erasure would not find it there.

    Args:
        said: texts of users and answers.
        known: texts that may be repeated, as the contract's own prompt.
    """

    def __init__(self, said: Iterable[str], known: Iterable[str] = ()) -> None:
        self._said: set[tuple[str, ...]] = set()
        self._tokens: set[str] = set()
        for text in said:
            self._said.update(_runs(text))
            self._tokens.update(_tokens(text))
        for text in known:
            self._said.difference_update(_runs(text))
            self._tokens.difference_update(_tokens(text))

    def found_in(self, addition: str) -> bool:
        """Whether an addition repeats any of it."""
        return not (
            self._said.isdisjoint(_runs(addition)) and self._tokens.isdisjoint(_tokens(addition))
        )


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    said = words(text)
    return (said[place : place + _RUN] for place in range(len(said) - _RUN + 1))


def _tokens(text: str) -> Iterable[str]:
    found = (token.strip(".,;:!?()[]\"'`").casefold() for token in _TOKEN.findall(text))
    return (token for token in found if _TELLING.search(token))
