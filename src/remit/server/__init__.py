"""HTTP: the endpoints for OpenAI and Anthropic clients, and Remit's own API (SPEC 12)."""

from remit.server.serving import ServerError, serve

__all__ = ["ServerError", "serve"]
