"""Connections that have shown no good key: when the server is full they are the first to go."""

from __future__ import annotations

from typing import Protocol


class Stranger(Protocol):
    """A connection that can be closed."""

    def close_now(self) -> None:
        """Close the connection and drop its pending requests."""
        ...


class Strangers:
    """Connections by their address, until they show a good key.

    One who opens thousands takes only their own places: of the address with the most of them the
    oldest goes first.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[Stranger, None]] = {}

    def add(self, address: str, connection: Stranger) -> None:
        """Add a new connection from an address."""
        self._of.setdefault(address, {})[connection] = None

    def remove(self, address: str, connection: Stranger) -> None:
        """Remove a connection that brought a good key or is closed."""
        if (same := self._of.get(address)) is not None:
            same.pop(connection, None)
            if not same:
                del self._of[address]

    def oldest(self) -> Stranger | None:
        """Return the oldest connection of the address with most; ``None`` if there is none."""
        most = max(self._of.values(), key=len, default=None)
        return next(iter(most)) if most else None
