"""Leases, so that two processes never work on the same thing at once."""

from remit.gateway.leases.manager import (
    Lease,
    LeaseBusyError,
    LeaseExpiredError,
    LeaseManager,
)
from remit.gateway.leases.owner import Owner

__all__ = ["Lease", "LeaseBusyError", "LeaseExpiredError", "LeaseManager", "Owner"]
