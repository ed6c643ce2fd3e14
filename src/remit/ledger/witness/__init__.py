"""A witness: a second party that cosigns what only grows, and remembers it (C2SP tlog-witness).

It knows nothing of ledgers: any log with RFC 6962 trees and Ed25519 note signatures will do.
"""

from remit.ledger.witness.client import request_cosignature
from remit.ledger.witness.state import (
    FORK,
    UNPROVEN,
    Evidence,
    Seen,
    WitnessConflictError,
    WitnessDirectory,
    WitnessError,
    WitnessState,
)
from remit.ledger.witness.witness import Answer, Witness, serve, witness_app

__all__ = [
    "FORK",
    "UNPROVEN",
    "Answer",
    "Evidence",
    "Seen",
    "Witness",
    "WitnessConflictError",
    "WitnessDirectory",
    "WitnessError",
    "WitnessState",
    "request_cosignature",
    "serve",
    "witness_app",
]
