"""The earlier name of :mod:`remit.gateway.budget`; it stays until 1.0."""

from remit.gateway.budget import *
