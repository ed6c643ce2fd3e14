"""The wired whole: one root, opened (SPEC 13)."""

from remit.runtime.conversation import Conversation
from remit.runtime.providers import default_model, weight_store
from remit.runtime.root import Root, RootError, find_root
from remit.runtime.runtime import Runtime

__all__ = [
    "Conversation",
    "Root",
    "RootError",
    "Runtime",
    "default_model",
    "find_root",
    "weight_store",
]
