"""Exchanges with what came of them, read from the record."""

from remit.learning.evidence.sample import Sample

__all__ = ["Sample"]
