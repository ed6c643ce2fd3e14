"""The earlier name of :mod:`remit.agents.tools`; it stays until 1.0."""

from remit.agents.tools import *
from remit.agents.tools import __all__ as __all__
