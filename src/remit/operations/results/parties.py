"""The forms of keys, their owners, and tenants."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from remit.operations.results.budgets import Budget, Limits
from remit.operations.results.page import listing


class KeyShape(BaseModel):
    """A virtual key without its secret. Missing times are empty.

    `id`, `name`, `prefix` and `role` describe the key; `models`, `agents` and `tiers` restrict it
    (empty: no restriction); `user_id`, `team_id` and `organisation_id` own it; times are in UTC;
    `old_until` ends the secret before a rotation; `revoked_entry` records the revocation.
    """

    id: str
    name: str
    state: Literal["live", "expired", "revoked"]
    role: str
    prefix: str
    user_id: str
    team_id: str
    organisation_id: str
    models: list[str]
    agents: list[str]
    tiers: list[str]
    pass_through: list[str] = Field(
        description="Requests without a model call that the key may send."
    )
    pass_through_unpriced: list[str] = Field(
        description="Unpriced requests that pass a limit in US dollars."
    )
    created: str
    expires: str
    rotated: str
    old_until: str
    revoked: str
    revoked_entry: str
    user_name: str = Field(description="Declared name of the user; empty if none was declared.")
    team_name: str
    organisation_name: str
    limits: Limits
    budget: Budget | None = Field(description="Limits and spending of the key.")


KeyPage = listing("KeyPage", "Virtual keys, sorted by name.", keys=KeyShape)


class KeyMade(BaseModel):
    """A key with its secret, which no other answer shows.

    `key` is the secret, `id` and `name` identify the key.
    """

    id: str
    name: str
    key: str


class KeyRevoked(BaseModel):
    """A revoked key, and the entry that records it.

    `id` and `name` identify the key, `entry` is the record.
    """

    id: str
    name: str
    entry: str


class OwnerKey(BaseModel):
    """A key of a user, team or organisation.

    `id` and `name` identify the key, `role` and `state` describe it.
    """

    id: str
    name: str
    role: str
    state: Literal["live", "expired", "revoked"]


class OwnerShape(BaseModel):
    """A user, team or organisation. Undeclared values are null.

    `kind` and `id` identify the owner; `keys`, `users` and `teams` belong to it; `budget`,
    `spent_usd`, `spent_tokens` and `limit_usd` state its spending.
    """

    kind: Literal["user", "team", "organisation"]
    id: str
    name: str | None
    scope: str = Field(description="Name of the budget scope.")
    entry: str | None = Field(description="Entry that declares the name.")
    declared: str | None = Field(description="Time of the entry, in UTC.")
    by: str | None = Field(description="Person or key that declared the owner.")
    keys: list[OwnerKey] = Field(description="Keys that are not revoked.")
    users: list[str] = Field(description="Ids of the users named by the keys.")
    teams: list[str] = Field(description="Ids of the teams named by the keys.")
    budget: Budget | None
    spent_usd: float = Field(
        description="Spending of the budget; without a budget, the sum of all keys."
    )
    spent_tokens: int
    limit_usd: float | None


class OwnerRenamed(OwnerShape):
    """An owner after a change of its name.

    `before` and `after` are the names; `before` is null if the earlier name was erased.
    """

    before: str | None
    after: str


OwnerPage = listing("OwnerPage", "Users, teams or organisations, sorted by id.", owners=OwnerShape)


class TenantHead(BaseModel):
    """The latest head of a tenant's log that the host recorded.

    `entries` and `root` are the head, `entry` and `taken` its record at the host.
    """

    entries: int = Field(description="Number of entries that the head covers.")
    root: str = Field(description="Root hash of the tree, in base64.")
    entry: str = Field(description="Entry of the host that records the head.")
    taken: str = Field(description="Time of the entry, in UTC.")


class TenantRemoval(BaseModel):
    """The host's record of a tenant's removal.

    `entry` is the record, `at` its time in UTC, `by` its author, and `reason` the given reason.
    """

    entry: str
    at: str
    reason: str
    by: str


class TenantShape(BaseModel):
    """A tenant from the view of its host.

    `state` is `served` if requests are answered; `head` and `removed` are records of the host, null
    if there are none.
    """

    name: str
    state: Literal["served", "moving", "removing", "removed", "unfinished", "damaged"]
    origin: str = Field(description="Origin of the tenant's log.")
    place: str = Field(description="Location of the ledger.")
    old_places: list[str] = Field(description="Former ledgers of the tenant that still exist.")
    entries: int | None = Field(
        description="Number of entries in the ledger; null if the ledger does not answer."
    )
    spent_today_usd: float | None = Field(
        description="Spending since midnight UTC; null if the ledger does not answer."
    )
    head: TenantHead | None
    removed: TenantRemoval | None


TenantPage = listing("TenantPage", "Tenants, sorted by name.", tenants=TenantShape)
