"""The earlier name of :mod:`remit.providers.prices`; it stays until 1.0."""

from remit.providers.prices import *
from remit.providers.prices import __all__ as __all__
