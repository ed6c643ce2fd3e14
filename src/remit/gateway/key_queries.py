"""Queries for many keys in few statement sizes, so that the statements stay prepared."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from remit.ledger import CACHED, Transaction
from remit.providers import ProviderResponse

_MAX_ENTRIES = 256
HIDDEN = "sha256:"
"""Before the names that :func:`hidden_name` makes."""


FIND_CACHED = (
    "SELECT exchange_entry_id FROM idempotency WHERE caller = ? AND idempotency_key = ? "
    f"AND token = '{CACHED}' AND until_ms > ?"
)
"""Returns the row of an answer by caller, hash of the request, and time in milliseconds."""


class CachedAnswer(NamedTuple):
    """A recorded answer to an equal request.

    Immutable.

    Attributes:
        name: caller and hash of the request: the key of the row.
        exchange_entry_id: the ``EXCHANGE`` of the call that was answered by the provider.
        answer: the answer.
    """

    name: tuple[str, str]
    exchange_entry_id: str
    answer: ProviderResponse


def hidden_name(salt: str, name: str) -> str:
    """Return the name under which a client's own name is stored, such as an idempotency key.

    Rows outlive the content they lead to, so they contain a hash instead of the client's text.

    Args:
        salt: the caller or batch that the name belongs to.
        name: the client's name.
    """
    return HIDDEN + hashlib.sha256(f"{salt}\x00{name}".encode()).hexdigest()


def select_in(
    tx: Transaction, sql: str, keys: Collection[str] | Collection[Sequence[str]]
) -> Iterable[tuple[Any, ...]]:
    """Return the rows of all keys; queries of up to 256 keys are issued before the return.

    Rows may be read, and errors raised, only when they are iterated. With ``{rows}``, the rows of
    the last key may come several times.

    Args:
        tx: the transaction.
        sql: contains ``{marks}`` for ``?, ?`` or ``{rows}`` for ``(?), (?)``.
        keys: texts, or tuples of equal length; may be empty.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
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
