"""One lease: held by one owner, for a time that is prolonged while the owner works."""

from __future__ import annotations

import time

from remit.kernel.errors import RemitError

__all__ = ["Lease", "LeaseBusyError", "LeaseExpiredError"]


class LeaseBusyError(RemitError):
    """Somebody else works on it."""


class LeaseExpiredError(RemitError):
    """The lease ran out, and somebody else may have taken the work over."""


class Lease:
    """What :meth:`remit.gateway.leases.LeaseManager.hold` gives.

    Attributes:
        name: what is held.
        owner: who holds it, as the table keeps it.
        stop_requested: somebody asked the holder to end.
    """

    def __init__(self, name: str, owner: str, lasts_s: float) -> None:
        self.name = name
        self.owner = owner
        self.stop_requested = False
        self._lasts_s = lasts_s
        self._until = 0.0
        self._lost = False
        self.prolonged()

    def check(self) -> None:
        """Make sure that the lease is still held, before something is done that cannot be undone.

        Raises:
            LeaseExpiredError: it is not, or nobody can tell.
        """
        if self._lost or _now() >= self._until:
            raise LeaseExpiredError(
                f"The lease on {self.name} ran out while this process stood still.",
                next_step="Another process may have taken the work over; look before going on.",
            )

    def prolonged(self) -> None:
        """Note that the lease lasts anew from now."""
        self._until = _now() + self._lasts_s

    def lost(self) -> None:
        """Note that somebody else has it."""
        self._lost = True


def _now() -> float:
    """Seconds that pass also while the machine sleeps, where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
