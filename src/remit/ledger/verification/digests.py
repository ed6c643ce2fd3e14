"""What was read, in one hash: two checks that read the same find the same."""

from __future__ import annotations

import hashlib
import marshal
import secrets
from typing import Any

_FORMAT = 2  # of marshal: the newest in which equal values are equal bytes


class RowDigest:
    """A hash over rows as they were read, with their types and their order."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)

    def add(self, rows: list[Any]) -> None:
        """The next rows; those that no sound ledger holds make it equal to no other digest."""
        try:
            self._hash.update(marshal.dumps(rows, _FORMAT))
        except ValueError:
            self._hash.update(secrets.token_bytes(32))

    def __str__(self) -> str:
        return self._hash.hexdigest()
