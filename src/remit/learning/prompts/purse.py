"""A hard budget that replays and reflections share."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["Purse", "SpentError"]


class SpentError(RemitError):
    """The next call could exceed the budget. The call was not made."""


class Purse:
    """A budget and the expenses charged to it. Expenses have names, so a continued run pays once.

    Args:
        nano: cost limit in nano-dollars.
    """

    def __init__(self, nano: int, calls: int) -> None:
        self.nano = nano
        self.calls = calls
        self._spent: dict[str, tuple[int, int]] = {}

    @property
    def spent_nano(self) -> int:
        """The cost of all expenses so far, in nano-dollars."""
        return sum(nano for nano, _ in self._spent.values())

    @property
    def made(self) -> int:
        """The number of calls of all expenses so far."""
        return sum(calls for _, calls in self._spent.values())

    def require(self, nano: int) -> None:
        """Check that a call fits into the budget; nothing is charged.

        Args:
            nano: highest cost of the call, in nano-dollars.

        Raises:
            SpentError: the call could exceed the cost limit, or no call is left.
        """
        if self.spent_nano + nano > self.nano or self.made >= self.calls:
            raise SpentError("The budget of the search is spent.")

    def left_for(self, name: str) -> tuple[int, int]:
        """Return the nano-dollars and the calls that an expense may reach in all.

        Earlier payments of the expense are included. Both numbers may be negative.
        """
        nano, calls = self._spent.get(name, (0, 0))
        return self.nano - self.spent_nano + nano, self.calls - self.made + calls

    def spend(self, name: str, nano: int, calls: int = 1) -> None:
        """Set the total cost of an expense in nano-dollars, and its number of calls.

        An earlier payment under the same name is replaced.

        Args:
            nano: total cost in nano-dollars.
        """
        self._spent[name] = nano, calls
