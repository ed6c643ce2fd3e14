"""The earlier name of :mod:`remit.agents.worker`; it stays until 1.0."""

from remit.agents.worker import *
from remit.agents.worker import __all__ as __all__
