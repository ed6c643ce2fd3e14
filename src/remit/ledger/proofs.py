"""A proof bundle: the data with which a stranger checks an entry elsewhere."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from remit.ledger.tlog import TlogProof

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient


def proof_bundle(ledger: LedgerClient, entry_id: str) -> dict[str, Any]:
    """Return the record of an entry, its inclusion proof and a checkpoint, without content.

    The result is JSON for ``RemitProof.verify`` of ``remit/views/assets/verify.js``, which checks
    it in a browser. If no stored checkpoint covers the entry, a new one is signed and stored.

    Args:
        ledger: the ledger.
        entry_id: id of the entry.

    Returns:
        ``entry_id``, ``seq``, ``entry_hash`` (hex), ``record`` (the text whose SHA-256 that is),
        ``size`` (entries under the checkpoint), ``proof`` (hashes in base64, from the leaf's
        sibling up), ``checkpoint`` (signed note), ``vkey`` (verifier key; empty if the ledger has
        none).

    Raises:
        EntryNotFoundError: there is no such entry.
        EntryArchivedError: the entry is in a segment that is not attached.
        LedgerFormatError: the record, or stored tree hashes, cannot be read.
        NoSignerError: a new checkpoint is needed, and this client holds no key.
        LedgerError: a new checkpoint is refused, as by :meth:`LedgerClient.checkpoint`.
        TlogError: the entry does not fit the tree of the checkpoint.
    """
    entry = ledger.read(entry_id, with_content=False)
    proof = TlogProof.parse(ledger.prove(entry_id))
    return {
        "entry_id": entry.id,
        "seq": proof.index,
        "entry_hash": entry.entry_hash,
        "record": ledger.read_record(entry_id).decode(),
        "size": proof.signed.checkpoint.size,
        "proof": [base64.b64encode(item).decode() for item in proof.path],
        "checkpoint": str(proof.signed),
        "vkey": str(ledger.verifier_key or ledger.checkpoints.owner()),
    }
