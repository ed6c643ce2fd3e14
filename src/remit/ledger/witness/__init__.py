"""A witness: a second party that cosigns and remembers growing logs (C2SP tlog-witness).

The package owns the witness's key, its record and its server, and the client that asks for a
cosignature. The package knows nothing of ledgers: any log with RFC 6962 trees and Ed25519 note
signatures can be witnessed.

Invariant: a witness never cosigns a tree that does not extend the last one it cosigned.

Start reading in ``witness`` (:class:`Witness`); ``client`` is the other side.
"""

from remit.ledger.witness.client import request_cosignature as request_cosignature
from remit.ledger.witness.state import (
    FORK as FORK,
    UNPROVEN as UNPROVEN,
    Evidence as Evidence,
    Seen as Seen,
    WitnessConflictError as WitnessConflictError,
    WitnessDirectory as WitnessDirectory,
    WitnessError as WitnessError,
    WitnessState as WitnessState,
)
from remit.ledger.witness.witness import (
    Answer as Answer,
    Witness as Witness,
    serve as serve,
    witness_app as witness_app,
)
