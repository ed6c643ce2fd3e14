"""Leases, so that two processes never work on the same thing at once."""

from remit.gateway.leases.manager import Lease, LeaseBusyError, LeaseLostError, LeaseManager
from remit.gateway.leases.owner import Owner

__all__ = ["Lease", "LeaseBusyError", "LeaseLostError", "LeaseManager", "Owner"]

# Earlier names, for programs that catch them; they end with version 1.0.
LeaseExpiredError = LeaseLostError
