"""The tenant that a request names: by its key, by an agent's token and a header, or by a cookie."""

from __future__ import annotations

from typing import NamedTuple

from remit.gateway.auth import CREDENTIAL_HEADERS, tenant_of_key, token_from_headers
from remit.server.replies import Headers

__all__ = ["Named", "choice", "chosen", "named"]

_COOKIE = b"remit_tenant"
_HEADER = b"x-remit-tenant"
_AGENT = "rat1."


class Named(NamedTuple):
    """The tenant and the credential of a request.

    Attributes:
        tenant: its name as given, unchecked; empty for the host.
        token: the key or token, unchecked.
    """

    tenant: str
    token: str


_HOST = Named("", "")


def named(headers: Headers) -> Named:
    """Return the tenant of a request with a key; the first credential counts, as in its check."""
    shown = {
        name: value.decode("latin-1")
        for name, value in headers
        if name in (*CREDENTIAL_HEADERS, _HEADER)
    }
    token = token_from_headers(*(shown.get(name) for name in CREDENTIAL_HEADERS))
    if token is None:
        return _HOST
    if found := tenant_of_key(token):
        return Named(found, token)
    tenant = shown.get(_HEADER, "")
    if tenant and token.startswith(_AGENT):
        return Named(tenant.strip(), token)
    return _HOST


def chosen(headers: Headers) -> str:
    """The tenant to whose console a browser signed in last; empty for the host's."""
    for header, value in headers:
        if header == b"cookie":
            for one in value.split(b";"):
                name, _, given = one.strip().partition(b"=")
                if name == _COOKIE:
                    return given.decode("latin-1")
    return ""


def choice(tenant: str, *, secure: bool) -> tuple[bytes, bytes]:
    """Return the header that sets or deletes a browser's selection of a tenant's console.

    The selection grants no access: the login is another cookie, which only that tenant can make.
    """
    parts = [f"remit_tenant={tenant}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if not tenant:
        parts.append("Max-Age=0")
    if secure:
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")
