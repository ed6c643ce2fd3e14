"""Statements that read many rows by their keys, in few sizes: so few that they stay prepared."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from remit.ledger import Transaction

__all__ = ["HIDDEN", "hidden_name", "select_in"]

_MAX_ENTRIES = 256
HIDDEN = "sha256:"
"""Before the names that :func:`hidden_name` makes."""


def hidden_name(salt: str, name: str) -> str:
    """Return what stands for a client's own name in a table, such as its idempotency key.

    Rows outlive the content that they lead to, so they hold no text of a client.

    Args:
        salt: what the name belongs to: the same name of another caller or batch looks different.
        name: the client's own.
    """
    return HIDDEN + hashlib.sha256(f"{salt}\x00{name}".encode()).hexdigest()


def select_in(
    tx: Transaction, sql: str, keys: Collection[str] | Collection[Sequence[str]]
) -> Iterable[tuple[Any, ...]]:
    """The rows of all ``keys``: asked for at once, waited for when they are looked at.

    Args:
        tx: reads.
        sql: has ``{marks}`` where ``?, ?`` goes, or ``{rows}`` where ``(?), (?)`` does.
        keys: texts, or tuples of equally many; not none.
    """
    found: list[Iterable[tuple[Any, ...]]] = []
    left = list(keys)
    for start in range(0, len(left), _MAX_ENTRIES):
        part = left[start : start + _MAX_ENTRIES]
        size = 1 << (len(part) - 1).bit_length()
        part += part[-1:] * (size - len(part))  # the last fills the rest
        if isinstance(part[0], str):
            flat: Sequence[Any] = part
            row = "(?)"
        else:
            flat = [word for key in part for word in key]
            row = f"({', '.join('?' * len(part[0]))})"
        marks = {"marks": ", ".join("?" * size), "rows": ", ".join([row] * size)}
        found.append(tx.ask(sql.format(**marks), flat))
    return itertools.chain.from_iterable(found)
