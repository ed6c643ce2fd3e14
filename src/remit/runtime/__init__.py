"""An open root with all its parts, and the agents that work in it.

The room owns assembly: ledger, gateway, router, packages and agents are put together only here. The
room owns no record format, and no rule for calls.

Invariants: several processes may open one root; the next process finds the unfinished work of a
dead one in the ledger and finishes it.

Start reading in :mod:`remit.runtime.runtime`. Doors: ``installation`` makes and recovers roots,
``prices`` changes price tables, ``replays`` runs recorded calls again, ``state`` checks the tables
next to the record, ``tenants`` holds further roots in one installation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.supervisor import TurnEnded
    from remit.runtime.agent import Agent
    from remit.runtime.agent_session import Conversation
    from remit.runtime.installation import make_root, package_manager
    from remit.runtime.operations_root import OpenRoot
    from remit.runtime.order_app import load_app
    from remit.runtime.order_handle import OrderHandle
    from remit.runtime.order_worker import OrderWorker
    from remit.runtime.providers import (
        assemble_providers,
        require_reachable,
        resolve_model,
        weight_store,
    )
    from remit.runtime.routing import rules_of
    from remit.runtime.runtime import Runtime
    from remit.runtime.schedules import Schedule
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Agent",
    "Conversation",
    "OpenRoot",
    "OrderHandle",
    "OrderWorker",
    "Runtime",
    "Schedule",
    "TurnEnded",
    "assemble_providers",
    "load_app",
    "make_root",
    "package_manager",
    "require_reachable",
    "resolve_model",
    "rules_of",
    "weight_store",
]
