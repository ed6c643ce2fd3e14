"""The virtual key for which an order is done, whose limits then hold for it."""

from __future__ import annotations

from dataclasses import replace

from remit.agents.queue.order import Submission
from remit.agents.workorders import Principal
from remit.gateway.auth import KeyStore
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient

__all__ = ["for_key", "principal_of"]


def for_key(ledger: LedgerClient, wanted: Submission, name_or_id: str) -> Submission:
    """A submission as one for a virtual key, and its user.

    Its calls are held to that key as it is when they are made: its models, agents and tiers, its
    budgets and those of its user, team and organisation, its rates, its end.

    Raises:
        NotFoundError: there is no such key.
        ConflictError: it is revoked or expired.
        InvalidInputError: it may not have that agent work, or is another user's.
    """
    keys = KeyStore(ledger)
    key = keys.current(keys.find(name_or_id).key_id)
    if not key.may("call") or not key.may_act_as(wanted.agent_id):
        raise InvalidInputError(
            f"The key {key.name!r} may not have {wanted.agent_id!r} work for it.",
            next_step="`remit key show` tells its role and its agents.",
        )
    if wanted.user_id and key.user_id and wanted.user_id != key.user_id:
        raise InvalidInputError(
            f"The key {key.name!r} is {key.user_id}'s, not {wanted.user_id}'s.",
            next_step="Leave the user out.",
        )
    return replace(wanted, key_id=key.key_id, user_id=key.user_id or wanted.user_id)


def principal_of(ledger: LedgerClient, user_id: str, subject_id: str, key_id: str) -> Principal:
    """For whom the session of an order works.

    Raises:
        NotFoundError: there is no such key.
    """
    if not key_id:
        return Principal(user_id, subject_id)
    key = KeyStore(ledger).find(key_id)
    return Principal(
        user_id, subject_id, key_id=key.key_id, team_id=key.team_id,
        organisation_id=key.organisation_id,
    )  # fmt: skip
