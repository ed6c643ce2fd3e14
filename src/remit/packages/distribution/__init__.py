"""The running distribution: comparison with its RECORD, and its wheel."""

from remit.packages.distribution.record import Distribution as Distribution
from remit.packages.distribution.wheel import repack_wheel as repack_wheel
from remit.packages.errors import PackageError

DistributionError = PackageError
"""The earlier name, which stays until 1.0."""
