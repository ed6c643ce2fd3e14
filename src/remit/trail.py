"""The earlier name of :mod:`remit.routing.trail`; it stays until 1.0."""

from remit.routing.trail import *
from remit.routing.trail import __all__ as __all__
