"""The running distribution: comparison with its RECORD, and its wheel."""

from remit.packages.distribution.record import Distribution
from remit.packages.distribution.wheel import repack_wheel
from remit.packages.errors import PackageError

__all__ = ["Distribution", "DistributionError", "repack_wheel"]

DistributionError = PackageError
"""The earlier name, which stays until 1.0."""
