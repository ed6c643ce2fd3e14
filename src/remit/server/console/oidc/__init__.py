"""People who sign in with their account at an OpenID Connect provider (extra ``oidc``)."""
