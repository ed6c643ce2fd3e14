"""The earlier name of :mod:`remit.agents.admin`; it stays until 1.0."""

from remit.agents.admin import *
from remit.agents.admin import __all__ as __all__
