"""Learned packages: they come and go with a decision on record, each of which begins an epoch."""

from __future__ import annotations

from remit.ledger import KERNEL_ROWS, LedgerClient, Transaction

__all__ = ["LEARNED_PACKAGES", "policy_epoch"]

LEARNED_PACKAGES = "PKG-LEARNED-*"
"""The ids of learned packages, as the trust in a key names them."""

_EPOCH = (
    "SELECT count(*) FROM entries WHERE event_type IN ('SIGNAL_ADOPTED', 'SIGNAL_ROLLED_BACK') "
    f"AND {KERNEL_ROWS}"
)


def policy_epoch(record: LedgerClient | Transaction) -> int:
    """How often what is learned was changed by adoption or rollback; 0 before the first."""
    read = record.select if isinstance(record, LedgerClient) else record.execute
    return int(read(_EPOCH)[0][0])
