"""Remit's own HTTP API, under ``/api``."""

from remit.server.api.application import api_application

__all__ = ["api_application"]
