"""Who asks (SPEC 6). Virtual keys and roles come with the server."""

from remit.auth.identity import AuthenticationError, AuthProvider, Identity, LocalOperator

__all__ = ["AuthProvider", "AuthenticationError", "Identity", "LocalOperator"]
