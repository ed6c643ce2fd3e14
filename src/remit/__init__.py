"""Remit."""
