"""Remit's own HTTP API, under ``/api`` (SPEC 12)."""

from remit.server.api.application import api_application

__all__ = ["api_application"]
