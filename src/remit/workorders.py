"""The earlier name of :mod:`remit.agents.workorders`; it stays until 1.0."""

from remit.agents.workorders import *
from remit.agents.workorders import __all__ as __all__
