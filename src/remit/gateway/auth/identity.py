"""Identities, what they may do, and the port that authenticates them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from remit.kernel.errors import InvalidInputError

ROLES: dict[str, frozenset[str]] = {
    # An admin changes things through ADMIN's governed tools only, never by a key it makes.
    "admin": frozenset({"call", "give_feedback", "read", "verify", "propose", "adopt"}),
    "operator": frozenset(
        {
            "call",
            "give_feedback",
            "read",
            "verify",
            "manage_keys",
            "manage_budgets",
            "approve",
            "propose",
        }
    ),
    "agent": frozenset({"call", "give_feedback"}),
    "auditor": frozenset({"read", "verify"}),
}
"""The permissions of each role; ``docs/keys.md`` holds the same table."""

PERMISSIONS: frozenset[str] = frozenset().union(*ROLES.values())
"""Every permission there is."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may call, and what. Empty scopes exclude nothing.

    Attributes:
        name: who, for people to read.
        role: ``admin``, ``operator``, ``agent`` or ``auditor``.
        key_id: the virtual key's id; empty without one.
        user_id: whom the key was given to, and whose budget its calls also use.
        team_id: the team of that user.
        organisation_id: the organisation of that team.
        models: model ids, or patterns of them such as ``gpt-4o*`` (``*``, ``?``, ``[…]``; case
            counts).
        agents: agent ids, exact.
        tiers: ``hot``, ``ho2``, ``ho1``.
    """

    name: str
    role: str
    key_id: str = ""
    user_id: str = ""
    team_id: str = ""
    organisation_id: str = ""
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity(Grant):
    """Someone who calls, with the grant of their key.

    Attributes:
        expires_at: ISO 8601, UTC; empty for never.
        session_id: the one session, and ``work_order_id`` the one order, that a token was made
            for; empty for any.
        within: the identity on whose behalf it acts, and whose limits hold as well.
    """

    expires_at: str = ""
    session_id: str = ""
    work_order_id: str = ""
    within: Identity | None = None

    def may_use_model(self, model_id: str) -> bool:
        """Whether calls may go to ``model_id``, the full id as the provider knows it."""
        if self.within is not None and not self.within.may_use_model(model_id):
            return False
        return (
            not self.models
            or model_id in self.models
            or any(fnmatchcase(model_id, pattern) for pattern in self.models)
        )

    def may_act_as(self, agent_id: str) -> bool:
        """Whether calls may be made in the name of ``agent_id``."""
        within = self.within is None or self.within.may_act_as(agent_id)
        return within and (not self.agents or agent_id in self.agents)

    def may_use_tier(self, tier: str) -> bool:
        """Whether calls may be made in ``tier``."""
        within = self.within is None or self.within.may_use_tier(tier)
        return within and (not self.tiers or tier in self.tiers)

    def may(self, permission: str) -> bool:
        """Whether the role has a permission of :data:`PERMISSIONS`; an unknown role has none.

        Raises:
            InvalidInputError: there is no such permission.
        """
        if permission not in PERMISSIONS:
            raise InvalidInputError(
                f"Unknown permission {permission!r}.",
                next_step=f"Permissions are {', '.join(sorted(PERMISSIONS))}.",
            )
        if self.within is not None and not self.within.may(permission):
            return False
        return permission in ROLES.get(self.role, frozenset())


class AuthProvider(Protocol):
    """Authenticates tokens."""

    def authenticate(self, token: str | None) -> Identity:
        """The identity behind ``token``; raises ``AuthenticationError`` where there is none."""
        ...


class LocalOperator:
    """The user who runs this process is its operator: the shell and the Python API."""

    def authenticate(self, token: str | None) -> Identity:
        """The local operator, whatever the token."""
        return Identity("local operator", "operator")
