"""Numbers with nouns, and short texts, for messages to people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import copysign
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


def dollars(value: float) -> str:
    """Return US dollars as text, with two to nine decimals: ``$0.25``, ``$3.00``, ``-$0.000001``.

    Args:
        value: US dollars.
    """
    whole, _, part = f"{abs(value):,.9f}".partition(".")
    return f"{'-' if value < 0 else ''}${whole}.{part.rstrip('0'):0<2}"


def fixed(number: float, places: int = 6, sign: str = "") -> str:
    """Return a number with fixed decimals, such as ``0.250000``; no amount becomes zero.

    A number that would round to zero has up to nine decimals and at least 0.000000001, the smallest
    amount of US dollars: ``0.00000001``.

    Args:
        number: the number, perhaps an amount in US dollars.
        places: number of decimals.
        sign: ``+`` to sign positive numbers too.
    """
    text = f"{number:{sign}.{places}f}"
    if not number or float(text):
        return text
    return f"{copysign(max(abs(number), 1e-9), number):{sign}.9f}".rstrip("0")


def indented(head: str, text: Any) -> Iterator[str]:
    """Yield the lines of a text, the first after ``head`` and the others below it."""
    for number, line in enumerate(str(text).splitlines() or [""]):
        yield f"{' ' * len(head) if number else head}{line}"


def cut(value: Any, most: int) -> str:
    """Return a text on one line, cut to at most ``most`` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
