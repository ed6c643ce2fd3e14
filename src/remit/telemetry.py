"""The earlier name of :mod:`remit.server.telemetry`; it stays until 1.0."""

from remit.server.telemetry import *
from remit.server.telemetry import __all__ as __all__
