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
    PERMISSIONS as PERMISSIONS,
    ROLES as ROLES,
    AuthenticationError as AuthenticationError,
    AuthProvider as AuthProvider,
    AuthUnavailableError as AuthUnavailableError,
    Identity as Identity,
    LocalOperator as LocalOperator,
)
from remit.kernel import lazy_names
from remit.kernel.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from remit.gateway.auth.agent_tokens import (
        CREDENTIAL_HEADERS as CREDENTIAL_HEADERS,
        AgentClaims as AgentClaims,
        AgentTokenProvider as AgentTokenProvider,
        AgentTokens as AgentTokens,
        agent_secret as agent_secret,
        token_from_headers as token_from_headers,
    )
    from remit.gateway.auth.key_cache import AuthLimits as AuthLimits
    from remit.gateway.auth.key_store import KeyStore as KeyStore
    from remit.gateway.auth.organisations import (
        Directory as Directory,
        Owner as Owner,
        OwnerKind as OwnerKind,
        id_of as id_of,
        scope_of as scope_of,
        shown_keys as shown_keys,
    )
    from remit.gateway.auth.projection import KEYS as KEYS, check_epoch as check_epoch
    from remit.gateway.auth.virtual_key import (
        NewKey as NewKey,
        VirtualKey as VirtualKey,
        duration_of as duration_of,
        expiry_of as expiry_of,
        tenant_of_key as tenant_of_key,
    )
else:
    __getattr__ = lazy_names(__name__)

# Earlier names, for programs that catch them; they end with version 1.0.
VirtualKeyError = ConflictError
VirtualKeyNotFoundError = NotFoundError
