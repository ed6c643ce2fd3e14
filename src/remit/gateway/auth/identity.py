"""Identities, their permissions, and the port that authenticates them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from remit.kernel.errors import InvalidInputError, RemitError
from remit.providers.wire import PassedPath, matches

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
    """The permissions of a caller.

    An empty tuple allows everything, except for ``pass_through`` and ``pass_through_unpriced``.

    Immutable.

    Attributes:
        name: a name for people.
        role: ``admin``, ``operator``, ``agent`` or ``auditor``.
        key_id: the virtual key's id; empty without one.
        user_id: the user to whom the key was given; the calls also count in that user's budget.
        team_id: the team of that user.
        organisation_id: the organisation of that team.
        models: model ids, or case-sensitive patterns such as ``gpt-4o*`` (``*``, ``?``, ``[…]``).
        agents: exact agent ids.
        tiers: ``hot``, ``ho2``, ``ho1``.
        pass_through: patterns of :func:`~remit.providers.wire.matches` for requests that call no
            model and change something at a provider. An empty tuple allows none.
        pass_through_unpriced: patterns for those requests without a price that a limit in US
            dollars does not refuse.
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
    pass_through: tuple[str, ...] = ()
    pass_through_unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity(Grant):
    """An authenticated caller, with the permissions of the caller's key.

    Immutable. Every ``may`` method also requires the permission of ``within``.

    Attributes:
        expires_at: ISO 8601, UTC; empty if the identity does not expire.
        session_id: the only session that the caller's token is valid for; empty for any.
        work_order_id: the only work order that the token is valid for; empty for any.
        within: the identity for which the caller acts; its limits apply too.
    """

    expires_at: str = ""
    session_id: str = ""
    work_order_id: str = ""
    within: Identity | None = None

    def may_use_model(self, model_id: str) -> bool:
        """Return True if calls may go to ``model_id``, the provider's full id of the model.

        The id must be listed or match a pattern, case-sensitively; without a list every model may
        be used. The limits of ``within`` apply too.

        Args:
            model_id: the provider's full id of the model, without the provider.
        """
        if self.within is not None and not self.within.may_use_model(model_id):
            return False
        return (
            not self.models
            or model_id in self.models
            or any(fnmatchcase(model_id, pattern) for pattern in self.models)
        )

    def may_act_as(self, agent_id: str) -> bool:
        """Return True if calls may be made in the name of ``agent_id``."""
        within = self.within is None or self.within.may_act_as(agent_id)
        return within and (not self.agents or agent_id in self.agents)

    def may_use_tier(self, tier: str) -> bool:
        """Return True if calls may be made in ``tier``."""
        within = self.within is None or self.within.may_use_tier(tier)
        return within and (not self.tiers or tier in self.tiers)

    def may_pass(self, row: PassedPath, *, unpriced: bool = False) -> bool:
        """Return True if a request that calls no model may be passed on to a provider.

        A request that changes nothing may be passed on without a pattern, unless ``unpriced`` is
        asked. The limits of ``within`` apply too.

        Args:
            row: the request.
            unpriced: True to ask whether a limit in US dollars lets it pass without a price.
        """
        patterns = self.pass_through_unpriced if unpriced else self.pass_through
        within = self.within is None or self.within.may_pass(row, unpriced=unpriced)
        is_listed = any(matches(pattern, row) for pattern in patterns)
        return within and (is_listed or not (row.changes or unpriced))

    def may(self, permission: str) -> bool:
        """Return True if the role, and that of ``within``, has a permission.

        An unknown role has none.

        Args:
            permission: one of :data:`PERMISSIONS`.

        Raises:
            InvalidInputError: the permission does not exist.
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
    """A checker of tokens, such as the store of virtual keys.

    Called for each request; must not block.
    """

    def authenticate(self, token: str | None) -> Identity:
        """Return the identity that ``token`` belongs to.

        Args:
            token: the secret; None if the request has none.

        Raises:
            AuthenticationError: the token is missing, unknown, expired or revoked.
            AuthUnavailableError: tokens cannot be checked now.
        """


class LocalOperator:
    """Authenticates every caller as the operator: the user who runs this process."""

    def authenticate(self, token: str | None) -> Identity:
        """Return the identity of the local operator for any token."""
        return Identity("local operator", "operator", pass_through=("*",))


class AuthenticationError(RemitError):
    """The caller is unknown. The message contains no secret."""


class AuthUnavailableError(RemitError):
    """Keys cannot be checked at the moment, so every caller is refused."""
