"""The owner of a ledger's database: the row of ``ledger_info`` with the log's key."""

from __future__ import annotations

from remit.ledger.errors import LedgerKeyError
from remit.ledger.keyfiles import known_as
from remit.ledger.tlog import TlogError, VerifierKey

__all__ = ["OWNER_SQL", "is_owner", "not_owned", "require_owner"]

OWNER_SQL = "SELECT value FROM ledger_info WHERE name = 'verifier_key'"


def require_owner(key: VerifierKey, owner: str, location: str) -> None:
    """Refuse the ledger of another root.

    Args:
        key: of the root, which may be of an earlier or a later origin of the same log.
        owner: the verifier key that the ledger names; empty where it names none yet.
        location: of the ledger, for the message.

    Raises:
        LedgerKeyError: it belongs to another key.
    """
    if not owner:
        return
    if not is_owner(key, owner):
        raise not_owned(owner, key, location)


def is_owner(key: VerifierKey, owner: str) -> bool:
    """Whether the verifier key that a ledger names is this one, under any origin of its log."""
    try:
        other = VerifierKey.parse(owner)
    except TlogError:
        return False
    return known_as(key, other.name) == other or known_as(other, key.name) == key


def not_owned(owner: str, key: VerifierKey, location: str) -> LedgerKeyError:
    """The error of a ledger that belongs to another key."""
    return LedgerKeyError(
        f"The ledger {location} belongs to {owner.partition('+')[0]!r}; this root's key is of "
        f"{key.name!r}, or another key of that name.",
        next_step="Two roots cannot share one ledger. Give this root a ledger of its own, or the "
        "key of that ledger.",
    )
