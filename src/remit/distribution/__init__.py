"""The running distribution: its files held against its RECORD, and made into a wheel again."""

from remit.distribution.errors import DistributionError
from remit.distribution.installed import Distribution
from remit.distribution.wheel import repack_wheel

__all__ = ["Distribution", "DistributionError", "repack_wheel"]
