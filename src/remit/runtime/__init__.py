"""The wired whole: one root, opened (SPEC 13)."""

from remit.runtime.conversation import Conversation
from remit.runtime.providers import require_reachable, resolve_model, weight_store
from remit.runtime.runtime import Runtime

__all__ = ["Conversation", "Runtime", "require_reachable", "resolve_model", "weight_store"]
