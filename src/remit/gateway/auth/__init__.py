"""Authentication and permissions: virtual keys, roles, agent tokens (SPEC 6)."""

from remit.gateway.auth.errors import (
    AgentKeyError,
    AuthenticationError,
    AuthUnavailableError,
    VirtualKeyError,
    VirtualKeyNotFoundError,
)
from remit.gateway.auth.identity import PERMISSIONS, ROLES, AuthProvider, Identity, LocalOperator
from remit.gateway.auth.key_cache import AuthLimits
from remit.gateway.auth.keys import KeyStore
from remit.gateway.auth.tokens import (
    AgentClaims,
    AgentTokenProvider,
    AgentTokens,
    ByTokenKind,
    agent_secret,
    token_from_headers,
)
from remit.gateway.auth.virtual_key import NewKey, VirtualKey, duration_of, expiry_of

__all__ = [
    "PERMISSIONS",
    "ROLES",
    "AgentClaims",
    "AgentKeyError",
    "AgentTokenProvider",
    "AgentTokens",
    "AuthLimits",
    "AuthProvider",
    "AuthUnavailableError",
    "AuthenticationError",
    "ByTokenKind",
    "Identity",
    "KeyStore",
    "LocalOperator",
    "NewKey",
    "VirtualKey",
    "VirtualKeyError",
    "VirtualKeyNotFoundError",
    "agent_secret",
    "duration_of",
    "expiry_of",
    "token_from_headers",
]
