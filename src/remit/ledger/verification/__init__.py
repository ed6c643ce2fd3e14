"""Verification: everything is read once, nothing is skipped (SPEC 3.3)."""

from remit.ledger.verification.verifier import Verifier

__all__ = ["Verifier"]
