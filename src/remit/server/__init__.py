"""HTTP: the endpoints for OpenAI and Anthropic clients, and Remit's own API (SPEC 12)."""

from remit.server.listening import ServerError
from remit.server.serving import serve

__all__ = ["ServerError", "serve"]
