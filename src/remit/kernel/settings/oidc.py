"""The settings of sign-in by an OpenID Connect provider."""

from __future__ import annotations

from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from remit.kernel.settings.section import Section

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class OidcSettings(Section):
    """``[server.oidc]``: sign-in to the console with an account at an OpenID Connect provider.

    The fields are this server's client at the provider, the claims that give a person's name, role
    and team, the sign-in of programs (``devices``), and the lifetime of a login. If ``issuer`` is
    empty, people sign in by key only, and only ``devices`` is checked.

    Raises:
        ValueError: a URL is not https (http is allowed for this machine) or has a user, query or
            fragment; the public URL has a path; client id, scope ``openid`` or roles are missing;
            ``devices`` is set without an issuer; or a role is ``agent`` without ``devices``.
    """

    issuer: str = Field("", description="issuer URL of the provider; empty: sign-in by key only")
    client_id: str = Field("", description="client id of this server at the provider")
    client_secret: SecretStr = Field(
        SecretStr(""),
        description="secret of this client; empty: a public client, protected by PKCE",
    )
    public_url: str = Field(
        "",
        description="URL under which browsers reach this server; the provider redirects to "
        "/console/oidc/callback there",
    )
    label: str = Field(
        "", max_length=60, description="name of the provider on the login page; empty: its host"
    )
    scopes: list[str] = Field(
        default_factory=lambda: ["openid", "email"], description="scopes to request"
    )
    name_claim: str = Field(
        "email", min_length=1, description="claim with the person's name, which is recorded"
    )
    role_claim: str = Field(
        "groups",
        min_length=1,
        description="claim with the person's roles; a dotted name leads into objects",
    )
    roles: dict[str, Literal["agent", "auditor", "operator", "admin"]] = Field(
        default_factory=dict,
        description="role for each value of that claim; the first entry that matches applies",
    )
    teams: dict[str, str] = Field(
        default_factory=dict,
        description="team id for each value of that claim; the first entry that matches applies",
    )
    devices: bool = Field(
        False, description="true: programs such as Claude Code sign in for a person by a code"
    )
    managed_settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Claude Code's managed settings for each team id; '*' for all others",
    )
    lasts_s: int = Field(28_800, ge=60, le=28_800, description="lifetime of a login, in seconds")
    timeout_s: float = Field(
        10.0, gt=0, le=60, description="longest wait for an answer of the provider, in seconds"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.issuer:
            if self.devices:
                raise ValueError("devices need an issuer: people approve them with their account")
            return self
        for name in ("issuer", "public_url"):
            if problem := _problem(getattr(self, name)):
                raise ValueError(f"{name} {problem}")
        if urlsplit(self.public_url).path not in ("", "/"):
            raise ValueError("public_url has a path: the console is at the top of its address")
        if not self.client_id:
            raise ValueError("an issuer needs a client_id")
        if "openid" not in self.scopes:
            raise ValueError("scopes lack openid")
        if not self.roles:
            raise ValueError("no value of role_claim has a role: nobody could sign in")
        if "agent" in self.roles.values() and not self.devices:
            raise ValueError("only devices can use the role agent: set devices, or another role")
        return self


def _problem(url: str) -> str:
    """Return the reason for which a URL is refused; empty if it is usable."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("https", "http") or not host or not url.isascii():
        return "is not an https URL"
    if parts.scheme == "http" and host not in _LOOPBACK:
        return "is not an https URL: http is for this machine only"
    if parts.username is not None or parts.query or parts.fragment:
        return "has a user, a query or a fragment"
    return ""
