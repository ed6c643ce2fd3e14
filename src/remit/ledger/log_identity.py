"""The owner of a ledger's database: the row of ``ledger_info`` with the log's key."""

from __future__ import annotations

from remit.ledger.errors import LedgerKeyError
from remit.ledger.key_files import known_as
from remit.ledger.tlog import TlogError, VerifierKey

OWNER_SQL = "SELECT value FROM ledger_info WHERE name = 'verifier_key'"


def require_owner(key: VerifierKey, owner: str, location: str) -> None:
    """Raise LedgerKeyError if a ledger belongs to another key, or states a malformed one.

    An owner under an earlier or later origin of the same log is accepted.

    Args:
        key: the root's key.
        owner: the verifier key in the ledger; empty, which is accepted, if it has none yet.
        location: the place of the ledger, for the message.
    """
    if not owner:
        return
    if not is_owner(key, owner):
        raise not_owned(owner, key, location)


def is_owner(key: VerifierKey, owner: str) -> bool:
    """Return True if a ledger's recorded key is ``key``, under its origin or one before or after a
    fork.

    Args:
        key: a log's verifier key.
        owner: text of the recorded key; False for a malformed one.
    """
    try:
        other = VerifierKey.parse(owner)
    except TlogError:
        return False
    return known_as(key, other.name) == other or known_as(other, key.name) == key


def not_owned(owner: str, key: VerifierKey, location: str) -> LedgerKeyError:
    """Return the error of a ledger that belongs to another key; nothing is checked.

    Args:
        owner: the owner that the ledger states, a verifier key as text.
        key: the key of this root.
        location: place of the ledger.
    """
    return LedgerKeyError(
        f"The ledger {location} belongs to {owner.partition('+')[0]!r}; this root's key is of "
        f"{key.name!r}, or another key of that name.",
        next_step="Two roots cannot share one ledger. Give this root a ledger of its own, or the "
        "key of that ledger.",
    )
