"""The forms of keys, their owners, and tenants."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from remit.server.api.responses.budgets import Budget, Limits
from remit.server.api.responses.page import listing


class KeyShape(BaseModel):
    """A virtual key without its secret. Missing times are empty."""

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
    pass_through: list[str] = Field(description="requests without a model call that it may make")
    pass_through_unpriced: list[str] = Field(description="those that a limit in USD lets pass")
    created: str
    expires: str
    rotated: str
    old_until: str
    revoked: str
    revoked_entry: str
    user_name: str = Field(description="as it was declared; empty where it was not")
    team_name: str
    organisation_name: str
    limits: Limits
    budget: Budget | None = Field(description="what it may spend and has spent")


KeyPage = listing("KeyPage", "Virtual keys, sorted by name.", keys=KeyShape)


class KeyMade(BaseModel):
    """A key with its secret, which no other answer shows."""

    id: str
    name: str
    key: str


class KeyRevoked(BaseModel):
    """A revoked key, and the entry that records it."""

    id: str
    name: str
    entry: str


class OwnerKey(BaseModel):
    """A key of a user, team or organisation."""

    id: str
    name: str
    role: str
    state: Literal["live", "expired", "revoked"]


class OwnerShape(BaseModel):
    """A user, team or organisation. Undeclared values are null."""

    kind: Literal["user", "team", "organisation"]
    id: str
    name: str | None
    scope: str = Field(description="the name of its budget")
    entry: str | None = Field(description="the entry that gave it its name")
    declared: str | None = Field(description="when")
    by: str | None = Field(description="who declared it")
    keys: list[OwnerKey] = Field(description="those that are not revoked")
    users: list[str] = Field(description="ids of users that its keys name")
    teams: list[str] = Field(description="ids of teams that its keys name")
    budget: Budget | None
    spent_usd: float = Field(description="of its budget; without one, of its keys together")
    spent_tokens: int
    limit_usd: float | None


OwnerPage = listing("OwnerPage", "Users, teams or organisations, sorted by id.", owners=OwnerShape)


class TenantHead(BaseModel):
    """The latest head of a tenant's log that the host recorded."""

    entries: int = Field(description="under it")
    root: str = Field(description="of the tree, base64")
    entry: str = Field(description="the host's entry that took it")
    taken: str = Field(description="when")


class TenantRemoval(BaseModel):
    """The host's record of a tenant's removal."""

    entry: str
    at: str
    reason: str
    by: str


class TenantShape(BaseModel):
    """A tenant as its host sees it."""

    name: str
    state: Literal["served", "moving", "removing", "removed", "unfinished", "damaged"]
    origin: str = Field(description="of its log")
    place: str = Field(description="where its ledger is")
    old_places: list[str] = Field(description="ledgers that it was moved away from, still there")
    entries: int | None = Field(description="in its ledger; null where that does not answer")
    spent_today_usd: float | None = Field(description="since midnight, UTC; likewise")
    head: TenantHead | None
    removed: TenantRemoval | None


TenantPage = listing("TenantPage", "Tenants, sorted by name.", tenants=TenantShape)
