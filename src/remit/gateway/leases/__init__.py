"""Leases, so that two processes never work on the same thing at once."""

from remit.gateway.leases.lease import Lease, LeaseBusyError, LeaseExpiredError
from remit.gateway.leases.manager import LeaseManager
from remit.gateway.leases.owner import Owner

__all__ = ["Lease", "LeaseBusyError", "LeaseExpiredError", "LeaseManager", "Owner"]
