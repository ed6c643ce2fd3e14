"""What verification holds against the record besides the ledger's own tables."""

from __future__ import annotations

from collections.abc import Iterator

from remit.ledger import LedgerClient, StateCheck

_CHECKS: tuple[StateCheck, ...] = ()


def check_state(ledger: LedgerClient, since_mark: bool) -> Iterator[tuple[int | None, str]]:
    """Every :data:`~remit.ledger.StateCheck` of the other parts of Remit, as one."""
    for check in _CHECKS:
        yield from check(ledger, since_mark)
