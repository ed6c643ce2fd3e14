"""Forks: a ledger that lost what its key signed goes on under a new origin, on record.

The key stays. Under another origin it is another verifier key to everybody else, so that no two
histories are ever signed under one name; checkpoints from before are still verified by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from remit.kernel.errors import InvalidInputError
from remit.ledger.client import LedgerClient
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerError
from remit.ledger.kept_head import KeptHead
from remit.ledger.keyfiles import next_origin
from remit.ledger.tlog import Signer

EVENT = "CONFIG_CHANGED"


@dataclass(frozen=True, slots=True)
class Fork:
    """What a fork did.

    Attributes:
        entry_id: of the entry that names what was left behind.
        old_origin: under which nothing is signed any more.
        old_size: of the last head that was signed under it.
        entries: how many went on.
        verifier_key: to check what is signed from now on by.
        checkpoint: the first of the new origin.
    """

    entry_id: str
    old_origin: str
    old_size: int
    entries: int
    verifier_key: str
    checkpoint: str


def fork(ledger: LedgerClient, kept: KeptHead, *, reason: str, by: str) -> Fork:
    """Go on from what is there, under a new origin.

    Args:
        ledger: opened with its key, by this process alone.
        kept: the head that it does not lead to.
        reason: for the record.
        by: who acts, for the record.

    Raises:
        LedgerError: the ledger leads to its head, so that nothing is lost; or there is none.
        LedgerKeyError: the key files cannot be read.
        LedgerWriteError: they, or the ledger, cannot be written.
        InvalidInputError: there is no reason.
    """
    if not reason.strip():
        raise InvalidInputError("A fork needs a reason, for the record.")
    checkpoints = ledger.checkpoints
    key = kept.files.signer()
    head = kept.read(key.verifier_key)
    if not (problem := checkpoints.problem()):
        raise LedgerError(
            f"The ledger {ledger.location} has all that its key signed: there is nothing to leave "
            "behind.",
            next_step="`remit ledger verify` checks the rest of it.",
        )
    old_origin = head.checkpoint.origin if head is not None else key.name
    old_size = head.checkpoint.size if head is not None else 0
    owner = checkpoints.owner().partition("+")[0] or key.name
    signer = Signer.from_pem(next_origin(key.name, old_origin, owner), key.to_pem())
    entries = ledger.count()
    lost = max(old_size, kept.seen()[0] + 1) - entries
    entry = LedgerEntry(
        EVENT, "ledger", "FORKED", reason,
        metadata={
            "by": by,
            "fork": {
                "origin": signer.name,
                "verifier_key": str(signer.verifier_key),
                "old_origin": old_origin,
                "old_size": old_size,
                "old_head": "" if head is None else str(head),  # with its root
                "entries": entries,
                "problem": problem,
                # What they cost is unknown: budgets begin with what is here.
                "lost_entries": max(0, lost),
                "lost_spend": "unknown",
            },
        },
    )  # fmt: skip
    name, note = checkpoints.fork(signer, entry)
    if ledger.marks is not None:  # it says that entries were verified which are gone
        ledger.marks.path("verification").unlink(missing_ok=True)
    return Fork(name, old_origin, old_size, entries, str(signer.verifier_key), note)
