"""Forks: a ledger that lost signed entries continues under a new origin, which is recorded.

The key stays. Under another origin it is another verifier key to everybody else, so no two
histories are ever signed under one name. Earlier checkpoints are still verified by it.
"""

from __future__ import annotations

from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger.client import LedgerClient
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerError
from remit.ledger.key_files import next_origin
from remit.ledger.last_signed_head import KeptHead
from remit.ledger.tlog import Signer

EVENT = "CONFIG_CHANGED"


def fork(ledger: LedgerClient, kept: KeptHead, *, reason: str, by: str) -> dict[str, Any]:
    """Continue the present entries under a new origin.

    A ``CONFIG_CHANGED`` entry (``FORKED``) that names the old history is appended, the key's public
    file gets the new origin, a first checkpoint is signed and stored, and the mark of the last
    verification is deleted, in this order. If it fails before the checkpoint, the fork is repeated
    and may append another entry. Cost and content of the lost entries are unknown.

    Args:
        ledger: the ledger, opened with its key by this process alone.
        kept: the stored head that the ledger does not extend.
        reason: the reason, for the record.
        by: the person who acts, for the record.

    Returns:
        ``entry_id`` of the entry that names the old history; ``old_origin``, under which nothing is
        signed any more, and the size of its last head, ``old_size``; the number of ``entries`` that
        continue; the new ``verifier_key``; and the first ``checkpoint`` of the new origin.

    Raises:
        LedgerError: the ledger contains all entries that its key signed, or cannot be read.
        LedgerKeyError: the key files or the stored head cannot be read.
        LedgerWriteError: the key files or the ledger cannot be written.
        InvalidInputError: there is no reason.
        OSError: the mark cannot be deleted; the fork is complete.
    """
    if not reason.strip():
        raise InvalidInputError("A fork requires a reason, which is recorded.")
    checkpoints = ledger.checkpoints
    key = kept.files.signer()
    head = kept.read(key.verifier_key)
    if not (problem := checkpoints.problem()):
        raise LedgerError(
            f"The ledger {ledger.location} contains all entries that its key signed, so no "
            "fork is needed.",
            next_step="`remit ledger verify` checks the rest of the ledger.",
        )
    old_origin = head.checkpoint.origin if head is not None else key.name
    old_size = head.checkpoint.size if head is not None else 0
    entries = ledger.count()
    owner = checkpoints.owner().partition("+")[0] or key.name
    signer = Signer.from_pem(next_origin(key.name, old_origin, owner), key.to_pem())
    lost = max(old_size, kept.seen()[0] + 1) - entries
    about = {
        "origin": signer.name,
        "verifier_key": str(signer.verifier_key),
        "old_origin": old_origin,
        "old_size": old_size,
        "old_head": "" if head is None else str(head),  # The head includes its root hash.
        "entries": entries,
        "problem": problem,
        # The cost of lost entries is unknown: budgets continue from the present ones.
        "lost_entries": max(0, lost),
        "lost_spend": "unknown",
    }
    entry = LedgerEntry(EVENT, "ledger", "FORKED", reason, metadata={"by": by, "fork": about})
    name, note = checkpoints.fork(signer, entry)
    if ledger.marks is not None:  # The mark covers entries that are lost.
        ledger.marks.path("verification").unlink(missing_ok=True)
    stated = {key: about[key] for key in ("old_origin", "old_size", "entries", "verifier_key")}
    return {"entry_id": name, **stated, "checkpoint": note}
