"""Numbers with nouns, and short texts, for messages to people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def count(amount: int, noun: str) -> str:
    """Return a number with a noun, such as ``1 call``, ``2,000 calls`` or ``3 entries``.

    Any number other than 1 gets the plural: ``s``, or ``ies`` for ``y`` after a consonant.

    Args:
        amount: the number.
        noun: the noun in the singular; perhaps with words before it.
    """
    if amount != 1:
        noun = re.sub("([^aeiou])y$", r"\1ie", noun) + "s"
    return f"{amount:,} {noun}"


def indented(head: str, text: Any) -> Iterator[str]:
    """Yield the lines of a text, the first after ``head`` and the others below it."""
    for number, line in enumerate(str(text).splitlines() or [""]):
        yield f"{' ' * len(head) if number else head}{line}"


def cut(value: Any, most: int) -> str:
    """Return a text on one line, cut to at most ``most`` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
