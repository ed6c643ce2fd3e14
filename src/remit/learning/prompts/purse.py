"""A single hard budget over replays and reflections."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["Purse", "SpentError"]


class SpentError(RemitError):
    """The budget does not reach for the next call."""


class Purse:
    """A budget, and the expenses charged to it; a continued run counts its earlier payments.

    Args:
        nano: cost limit in nano-dollars.
        calls: limit of calls.
    """

    def __init__(self, nano: int, calls: int) -> None:
        self.nano = nano
        self.calls = calls
        self._spent: dict[str, tuple[int, int]] = {}

    @property
    def spent_nano(self) -> int:
        """In billionths of a US dollar."""
        return sum(nano for nano, _ in self._spent.values())

    @property
    def made(self) -> int:
        """Number of calls."""
        return sum(calls for _, calls in self._spent.values())

    def require(self, nano: int) -> None:
        """Raise SpentError unless another call may be made.

        Raises:
            SpentError: the call could exceed the budget.
        """
        if self.spent_nano + nano > self.nano or self.made >= self.calls:
            raise SpentError("The budget of the search is spent.")

    def left_for(self, name: str) -> tuple[int, int]:
        """Billionths of a dollar and calls that may be spent on one thing in all."""
        nano, calls = self._spent.get(name, (0, 0))
        return self.nano - self.spent_nano + nano, self.calls - self.made + calls

    def spend(self, name: str, nano: int, calls: int = 1) -> None:
        """Set the total cost of an expense."""
        self._spent[name] = nano, calls
