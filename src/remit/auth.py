"""The earlier name of :mod:`remit.gateway.auth`; it stays until 1.0."""

from remit.gateway.auth import *
