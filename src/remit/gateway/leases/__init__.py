"""Leases: names that at most one process holds at a time.

The package owns the table ``leases``. The calls in flight have leases of their own:
:mod:`remit.gateway.leases.renewal` renews them, :mod:`remit.gateway.leases.recovery` settles the
calls of dead processes.

Invariants: a lease of a live process on this machine is never given to another; a lease of a
process that cannot be observed from here ends when its time ends.

Start reading in :mod:`remit.gateway.leases.manager`.
"""

from remit.gateway.leases.manager import Lease, LeaseBusyError, LeaseLostError, LeaseManager
from remit.gateway.leases.process_identity import Owner

__all__ = ["Lease", "LeaseBusyError", "LeaseLostError", "LeaseManager", "Owner"]

# Earlier names, for programs that catch them; they end with version 1.0.
LeaseExpiredError = LeaseLostError
