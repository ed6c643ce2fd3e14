"""The earlier name of :mod:`remit.gateway.budget`; it stays until 1.0."""

from remit.gateway.budget import *
from remit.gateway.budget import __all__ as __all__
