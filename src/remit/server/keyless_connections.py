"""Connections without a good key, by address."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.server.connection import Connection


class Strangers:
    """Connections that have brought no good key, keyed by the address of their client.

    A full server closes these first: :meth:`oldest` gives the next one. A client that opens
    thousands of connections loses only its own, because the oldest one of the address with most
    connections is closed. The object closes nothing itself.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[Connection, None]] = {}

    def add(self, address: str, connection: Connection) -> None:
        """Add a new connection from an address.

        Args:
            address: address of the client.
            connection: the connection, which has brought no good key yet.
        """
        self._of.setdefault(address, {})[connection] = None

    def remove(self, address: str, connection: Connection) -> None:
        """Remove a connection that brought a good key or was closed; ignore an absent connection.

        Args:
            address: address of the client.
            connection: the connection.
        """
        if (same := self._of.get(address)) is not None:
            same.pop(connection, None)
            if not same:
                del self._of[address]

    def oldest(self) -> Connection | None:
        """Return the oldest connection of the address with most; ``None`` if there is none."""
        most = max(self._of.values(), key=len, default=None)
        return next(iter(most)) if most else None
