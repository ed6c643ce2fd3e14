"""A lease: one owner holds a name, and extends the lease while it works."""

from __future__ import annotations

import time

from remit.kernel.errors import RemitError

__all__ = ["Lease", "LeaseBusyError", "LeaseExpiredError"]


class LeaseBusyError(RemitError):
    """Another process holds the lease."""


class LeaseExpiredError(RemitError):
    """The lease ran out, and another process may have taken over the work."""


class Lease:
    """A lease that :meth:`remit.gateway.leases.LeaseManager.hold` took.

    Attributes:
        name: what is held.
        owner: the holder, as the table stores it.
        stop_requested: whether the holder was asked to stop.
    """

    def __init__(self, name: str, owner: str, lasts_s: float) -> None:
        self.name = name
        self.owner = owner
        self.stop_requested = False
        self._lasts_s = lasts_s
        self._until = 0.0
        self._lost = False
        self.extended()

    def check(self) -> None:
        """Make sure that the lease is still held, before what cannot be undone.

        Raises:
            LeaseExpiredError: it is not, or that is unknown.
        """
        if self._lost or _now() >= self._until:
            raise LeaseExpiredError(
                f"The lease on {self.name} ran out while this process was suspended.",
                next_step="Another process may have taken over the work; check before going on.",
            )

    def extended(self) -> None:
        """Note that the lease was extended just now."""
        self._until = _now() + self._lasts_s

    def lost(self) -> None:
        """Note that another process has it."""
        self._lost = True


def _now() -> float:
    """Seconds by a clock that runs also while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
