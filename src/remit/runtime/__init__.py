"""An open root with everything wired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.runtime.agent import Agent
from remit.runtime.conversation import Conversation, TurnEnded
from remit.runtime.installation import known_tools, make_root, package_manager
from remit.runtime.order_handle import OrderHandle
from remit.runtime.providers import require_reachable, resolve_model, weight_store
from remit.runtime.routing import rules_of
from remit.runtime.runtime import Runtime
from remit.runtime.schedules import Schedule

if TYPE_CHECKING:
    from remit.runtime.order_app import load_app
    from remit.runtime.order_worker import OrderWorker
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "order_app": "load_app",
            "order_worker": "OrderWorker",
        },
    )

__all__ = [
    "Agent",
    "Conversation",
    "OrderHandle",
    "OrderWorker",
    "Runtime",
    "Schedule",
    "TurnEnded",
    "known_tools",
    "load_app",
    "make_root",
    "package_manager",
    "require_reachable",
    "resolve_model",
    "rules_of",
    "weight_store",
]
