"""Verification: everything is read once, nothing is skipped."""

from remit.ledger.verification.verifier import Verifier

__all__ = ["Verifier"]
