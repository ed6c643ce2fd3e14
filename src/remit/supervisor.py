"""The earlier name of :mod:`remit.agents.supervisor`; it stays until 1.0."""

from remit.agents.supervisor import *
from remit.agents.supervisor import __all__ as __all__
