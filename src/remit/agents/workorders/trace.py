"""A hash over what the worker did for some orders."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from remit.ledger import LedgerPort

__all__ = ["trace_hash"]


def trace_hash(
    ledger: LedgerPort, work_order_ids: Sequence[str], *, before: str | None = None
) -> str:
    """SHA-256 over the ``entry_hash``es (hex, concatenated) of the orders' ``ho1`` entries.

    They stand in ledger order; whoever holds the ledger can compute it again (SPEC 9.1).

    Args:
        ledger: where they are.
        work_order_ids: of the chain.
        before: id of the entry that holds the hash: what came after it, such as the late answer
            of a call that had been given up, is not in it. Left out while it is being written.
    """
    end = None if before is None else int(before[4:], 16)
    entries = [
        (int(entry.id[4:], 16), entry.entry_hash)
        for order_id in work_order_ids
        for entry in ledger.query(work_order_id=order_id, tier="ho1", with_content=False)
        if end is None or int(entry.id[4:], 16) < end
    ]
    return hashlib.sha256("".join(item for _, item in sorted(entries)).encode()).hexdigest()
