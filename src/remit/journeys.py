"""The earlier name of :mod:`remit.views`; it stays until 1.0."""

from remit.views import *
from remit.views import __all__ as __all__
