"""Who works on what, so that two processes never work on the same thing at once."""

from remit.leases.lease import Lease, LeaseBusyError, LeaseExpiredError
from remit.leases.office import LeaseOffice
from remit.leases.owner import Owner

__all__ = ["Lease", "LeaseBusyError", "LeaseExpiredError", "LeaseOffice", "Owner"]
