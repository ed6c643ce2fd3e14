"""Authentication and permissions: virtual keys, roles, agent tokens, and the directory of owners.

The package owns the table ``virtual_keys``, its cache, and the entries that record each change of a
key. The package limits no spending: budgets are in :mod:`remit.gateway.budget`.

Invariants: only the SHA-256 of a secret is stored; each change of a key is one transaction with its
ledger entry; a revoked key is refused by every process within ``[auth] revocation_s``.

Start reading in :mod:`remit.gateway.auth.key_store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.gateway.auth.identity import (
    PERMISSIONS,
    ROLES,
    AuthenticationError,
    AuthProvider,
    AuthUnavailableError,
    Identity,
    LocalOperator,
)
from remit.kernel import lazy_names
from remit.kernel.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from remit.gateway.auth.agent_tokens import (
        CREDENTIAL_HEADERS,
        AgentClaims,
        AgentTokenProvider,
        AgentTokens,
        agent_secret,
        token_from_headers,
    )
    from remit.gateway.auth.key_cache import AuthLimits
    from remit.gateway.auth.key_store import KeyStore
    from remit.gateway.auth.organisations import Directory, Owner, OwnerKind, id_of, shown_keys
    from remit.gateway.auth.projection import KEYS, check_epoch
    from remit.gateway.auth.virtual_key import (
        NewKey,
        VirtualKey,
        duration_of,
        expiry_of,
        tenant_of_key,
    )
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "CREDENTIAL_HEADERS",
    "KEYS",
    "PERMISSIONS",
    "ROLES",
    "AgentClaims",
    "AgentTokenProvider",
    "AgentTokens",
    "AuthLimits",
    "AuthProvider",
    "AuthUnavailableError",
    "AuthenticationError",
    "Directory",
    "Identity",
    "KeyStore",
    "LocalOperator",
    "NewKey",
    "Owner",
    "OwnerKind",
    "VirtualKey",
    "agent_secret",
    "check_epoch",
    "duration_of",
    "expiry_of",
    "id_of",
    "shown_keys",
    "tenant_of_key",
    "token_from_headers",
]

# Earlier names, for programs that catch them; they end with version 1.0.
VirtualKeyError = ConflictError
VirtualKeyNotFoundError = NotFoundError
