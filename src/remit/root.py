"""The earlier name of :mod:`remit.kernel.root`; it stays until 1.0."""

from remit.kernel.root import *
from remit.kernel.root import __all__ as __all__
