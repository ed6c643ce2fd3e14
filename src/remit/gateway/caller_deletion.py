"""The entries of one client call, which its caller's deletion withdraws together."""

from __future__ import annotations

from remit.ledger import LedgerClient, LedgerEntry, entry_id


def entries_of_call(ledger: LedgerClient, exchange: LedgerEntry) -> list[str]:
    """Return the ids of the entries that show the content of a call, sorted. Blocks.

    The ids are the ``EXCHANGE`` that answered, the ``EXCHANGE`` of each earlier attempt, and the
    routing decision. Nothing is deleted. Feedback on them is added by
    :meth:`remit.ledger.LedgerClient.withdraw`.

    Args:
        ledger: the ledger of the call.
        exchange: the last entry of the call, read without content.

    Raises:
        EntryNotFoundError: an earlier attempt has no entry.
        LedgerError: the ledger cannot be read.
    """
    found = {exchange.id}
    pending = [exchange]
    while pending:
        metadata = pending.pop().metadata
        for name in (metadata.get("retry_of"), _decision_of(ledger, metadata.get("decision_id"))):
            if isinstance(name, str) and name and name not in found:
                found.add(name)
                pending.append(ledger.read(name, with_content=False))
    return sorted(found)


def entries_of_batch(ledger: LedgerClient, made: LedgerEntry) -> list[str]:
    """Return the ids of the entries of a batch: its own, then one for each result. Blocks.

    Nothing is deleted.

    Args:
        ledger: the ledger of the batch.
        made: the ``EXCHANGE`` that made the batch, read without content.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    dispatch_id = made.metadata["dispatch_entry_id"]
    results = ledger.query(
        event_type="EXCHANGE", session_id=made.metadata["session_id"], after=made.id,
        with_content=False,
    )  # fmt: skip
    own = [one.id for one in results if one.metadata.get("batch_dispatch_id") == dispatch_id]
    return [made.id, *own]


def _decision_of(ledger: LedgerClient, decision_id: object) -> str:
    if not decision_id:
        return ""
    rows = ledger.select("SELECT seq FROM thoughts WHERE thought_id = ?", (decision_id,))
    return entry_id(int(rows[0][0])) if rows else ""
