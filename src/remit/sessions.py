"""The earlier name of :mod:`remit.agents.sessions`; it stays until 1.0."""

from remit.agents.sessions import *
