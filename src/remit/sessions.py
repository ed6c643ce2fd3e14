"""The earlier name of :mod:`remit.agents.sessions`; it stays until 1.0."""

from remit.agents.sessions import *
from remit.agents.sessions import __all__ as __all__
