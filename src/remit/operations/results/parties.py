"""The forms of keys, their owners, and tenants."""

from __future__ import annotations

from typing import Any, Literal

from remit.gateway.auth import VirtualKey
from remit.operations.results.budgets import Budget, Limits
from remit.operations.results.page import Paged, form

_State = Literal["live", "expired", "revoked"]

KeyShape = form(
    "KeyShape", "A virtual key without its secret. Missing times are empty.",
    of=VirtualKey, key_id=None, id=str, state=_State,
    models=([str], "Models that the key may call; empty for all."),
    agents=([str], "Agents that the key may act for; empty for all."),
    tiers=([str], "Tiers that the key may act in; empty for all."),
    pass_through=([str], "Requests without a model call that the key may send."),
    pass_through_unpriced=([str], "Unpriced requests that pass a limit in US dollars."),
    user_name=(str, "Declared name of the user; empty if none was declared."),
    team_name=str, organisation_name=str, limits=Limits,
    budget=(Budget | None, "Limits and spending of the key."),
)  # fmt: skip
KeyPage = form("KeyPage", "Virtual keys, sorted by name.", base=Paged, keys=[KeyShape])
KeyMade = form(
    "KeyMade", "A key with its secret, which no other answer shows.", id=str, name=str,
    key=(str, "The secret."),
)  # fmt: skip
KeyRevoked = form(
    "KeyRevoked", "A revoked key.", id=str, name=str, entry=(str, "Entry that records it.")
)

OwnerKey = form(
    "OwnerKey", "A key of a user, team or organisation.", id=str, name=str, role=str, state=_State
)
_OWNER: dict[str, Any] = {
    "kind": Literal["user", "team", "organisation"], "id": str, "name": str | None,
    "scope": (str, "Name of the budget scope."),
    "entry": (str | None, "Entry that declares the name."),
    "declared": (str | None, "Time of the entry, in UTC."),
    "by": (str | None, "Person or key that declared the owner."),
    "keys": ([OwnerKey], "Keys that are not revoked."),
    "users": ([str], "Ids of the users named by the keys."),
    "teams": ([str], "Ids of the teams named by the keys."),
    "budget": Budget | None,
    "spent_usd": (float, "Spending of the budget; without a budget, the sum of all keys."),
    "spent_tokens": int, "limit_usd": float | None,
}  # fmt: skip
OwnerShape = form(
    "OwnerShape", "A user, team or organisation. Undeclared values are null.", **_OWNER
)
OwnerRenamed = form(
    "OwnerRenamed", "An owner after a change of its name.", **_OWNER,
    before=(str | None, "Earlier name; null if it was erased."), after=str,
)  # fmt: skip
OwnerPage = form("OwnerPage", "Owners, sorted by id.", base=Paged, owners=[OwnerShape])

TenantHead = form(
    "TenantHead", "The latest head of a tenant's log that the host recorded.",
    entries=(int, "Number of entries that the head covers."),
    root=(str, "Root hash of the tree, in base64."),
    entry=(str, "Entry of the host that records the head."),
    taken=(str, "Time of the entry, in UTC."),
)  # fmt: skip
TenantRemoval = form(
    "TenantRemoval", "The host's record of a tenant's removal.", entry=str,
    at=(str, "Time of the entry, in UTC."), reason=str, by=str,
)  # fmt: skip
TenantShape = form(
    "TenantShape", "A tenant from the view of its host.",
    name=str,
    state=(Literal["served", "moving", "removing", "removed", "unfinished", "damaged"],
           "`served` if requests are answered."),
    origin=(str, "Origin of the tenant's log."),
    place=(str, "Location of the ledger."),
    old_places=([str], "Former ledgers of the tenant that still exist."),
    entries=(int | None, "Number of entries in the ledger; null if the ledger does not answer."),
    spent_today_usd=(float | None,
                     "Spending since midnight UTC; null if the ledger does not answer."),
    head=TenantHead | None, removed=TenantRemoval | None,
)  # fmt: skip
TenantPage = form("TenantPage", "Tenants, sorted by name.", base=Paged, tenants=[TenantShape])
