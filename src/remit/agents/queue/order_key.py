"""The virtual key on whose behalf an order runs."""

from __future__ import annotations

from dataclasses import replace

from remit.agents.queue.submission import Submission
from remit.agents.workorders import Principal
from remit.gateway.auth import KeyStore
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient


def bind_to_key(ledger: LedgerClient, wanted: Submission, name_or_id: str) -> Submission:
    """Return a copy of a submission bound to a virtual key and its user. Writes nothing.

    The key is checked again for each call of the order: its models, agents and tiers, its rates and
    expiry, its budgets and those of its user, team and organisation.

    Args:
        ledger: the ledger with the keys.
        wanted: the submission; its user may be empty.
        name_or_id: name or id of the key.

    Raises:
        NotFoundError: there is no such key.
        ConflictError: the key is revoked or expired.
        InvalidInputError: the key may not make calls or use the agent, or belongs to another user.
        LedgerError: the ledger cannot be read.
        AuthUnavailableError: the keys cannot be read.
    """
    keys = KeyStore(ledger)
    key = keys.current(keys.find(name_or_id).key_id)
    if not key.may("call") or not key.may_act_as(wanted.agent_id):
        raise InvalidInputError(
            f"The key {key.name!r} may not use the agent {wanted.agent_id!r}.",
            next_step=f"Run `remit key show {key.name}` to see its role and its agents.",
        )
    if wanted.user_id and key.user_id and wanted.user_id != key.user_id:
        raise InvalidInputError(
            f"The key {key.name!r} belongs to the user {key.user_id}, not {wanted.user_id}.",
            next_step="Omit the user.",
        )
    return replace(wanted, key_id=key.key_id, user_id=key.user_id or wanted.user_id)


def principal_of(ledger: LedgerClient, user_id: str, subject_id: str, key_id: str) -> Principal:
    """Return the principal of an order's session: user, data subject and key.

    A revoked or expired key is not refused here.

    Args:
        ledger: the ledger with the keys.
        user_id: the user; may be empty.
        subject_id: the data subject; may be empty.
        key_id: id or name of the virtual key, whose id, team and organisation are added; empty
            for none.

    Raises:
        NotFoundError: there is no such key.
        InvalidInputError: the user or the data subject is not a valid id.
        LedgerError: the ledger cannot be read.
        AuthUnavailableError: the stored key is damaged.
    """
    if not key_id:
        return Principal(user_id, subject_id)
    key = KeyStore(ledger).find(key_id)
    return Principal(
        user_id, subject_id, key_id=key.key_id, team_id=key.team_id,
        organisation_id=key.organisation_id,
    )  # fmt: skip
