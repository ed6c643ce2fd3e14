"""The identity of a person, from the claims of an ID token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.gateway.auth import Identity
from remit.kernel.settings import OidcSettings
from remit.server.console.oidc.errors import SignInError

_MAX_CHARS = 200
_UNVERIFIED = (False, "false")  # Some providers send texts.


def person_of(claims: Mapping[str, Any], settings: OidcSettings) -> Identity:
    """Return the identity of a person: name, role, and the provider's subject.

    The subject stays when the name changes. The first mapped value of the settings that the
    person has decides the role.

    Args:
        claims: the claims of a verified ID token.
        settings: ``[server.oidc]``.

    Raises:
        SignInError: the person has no name, an unverified email address, or no role.
    """
    name = _text(claims.get(settings.name_claim))
    subject = _text(claims.get("sub"))
    if not name or not subject:
        raise SignInError(
            f"The provider sent no valid name in the claim {settings.name_claim}.",
            next_step="Ask the operator to request more scopes or to use another claim.",
        )
    if settings.name_claim == "email" and claims.get("email_verified", True) in _UNVERIFIED:
        raise SignInError(
            "The provider has not verified your email address.",
            next_step="Verify the address at the provider.",
        )
    held = _values(claims, settings.role_claim)
    for value, role in settings.roles.items():
        if value in held:
            return Identity(name, role, user_id=subject)
    raise SignInError(
        "Your account has no role here.",
        next_step=f"Ask the operator for a role; roles come from the claim {settings.role_claim}.",
    )


def _text(value: Any) -> str:
    """Return a name that the record can hold; empty if the value is none."""
    if not isinstance(value, str) or len(value) > _MAX_CHARS or not value.isprintable():
        return ""
    return value.strip()


def _values(claims: Mapping[str, Any], name: str) -> set[str]:
    """Return the texts of a claim; a dotted name such as ``realm_access.roles`` is a path."""
    found: Any = claims
    for part in [name] if name in claims else name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return {found}
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


__all__ = ["person_of"]
