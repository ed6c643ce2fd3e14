"""An open root with everything wired."""

from remit.runtime.agent import Agent
from remit.runtime.conversation import Conversation, TurnEnded
from remit.runtime.installation import known_tools, make_root, package_manager
from remit.runtime.order_handle import OrderHandle
from remit.runtime.providers import require_reachable, resolve_model, weight_store
from remit.runtime.runtime import Runtime
from remit.runtime.schedules import Schedule

__all__ = [
    "Agent",
    "Conversation",
    "OrderHandle",
    "Runtime",
    "Schedule",
    "TurnEnded",
    "known_tools",
    "make_root",
    "package_manager",
    "require_reachable",
    "resolve_model",
    "weight_store",
]
