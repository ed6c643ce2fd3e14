"""The earlier name of :mod:`remit.gateway.auth`; it stays until 1.0."""

from remit.gateway.auth import *
from remit.gateway.auth import __all__ as __all__
