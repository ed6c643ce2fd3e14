"""The running distribution: comparison with its RECORD, and its wheel."""

from remit.packages.distribution.record import Distribution
from remit.packages.distribution.wheel import repack_wheel

__all__ = ["Distribution", "repack_wheel"]
