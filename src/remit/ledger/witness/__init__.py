"""A witness: a second party that cosigns and remembers growing logs (C2SP tlog-witness).

The package owns the witness's key, its record and its server, and the client that asks for a
cosignature. The package knows nothing of ledgers: any log with RFC 6962 trees and Ed25519 note
signatures can be witnessed.

Invariant: a witness never cosigns a tree that does not extend the last one it cosigned.

Start reading in ``witness`` (:class:`Witness`); ``client`` is the other side.
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
from remit.ledger.witness.witness import Answer, Witness, serve

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
]
