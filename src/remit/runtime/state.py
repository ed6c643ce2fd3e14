"""What verification holds against the record besides the ledger's own tables."""

from __future__ import annotations

from collections.abc import Iterator

from remit.gateway.auth.audit import check_keys
from remit.ledger import Finding, LedgerClient, settled

_CHECKS = (check_keys,)


def check_state(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """A :data:`~remit.ledger.StateCheck` of all that other parts keep in the ledger's database."""
    for check in _CHECKS:
        yield from settled(ledger, check)
