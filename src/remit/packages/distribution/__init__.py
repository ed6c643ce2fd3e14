"""The running distribution: its files held against its RECORD, and made into a wheel again."""

from remit.packages.distribution.installed import Distribution
from remit.packages.distribution.wheel import DistributionError, repack_wheel

__all__ = ["Distribution", "DistributionError", "repack_wheel"]
