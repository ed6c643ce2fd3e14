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
    from remit.runtime.agent import Agent
    from remit.runtime.agent_session import Conversation, TurnEnded
    from remit.runtime.installation import known_tools, make_root, package_manager
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
    from remit.runtime.route_graders import (
        Graders,
        command_test,
        grade_recorded,
        load_grader,
        right_answers,
    )
    from remit.runtime.route_learner import (
        RouteLearned,
        RoutePlan,
        RouteWanted,
        figures_of,
        learn_route,
        plan_route,
        prompts_of,
        propose_route,
    )
    from remit.runtime.routing import rules_of
    from remit.runtime.runtime import Runtime
    from remit.runtime.schedules import Schedule
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Agent",
    "Conversation",
    "Graders",
    "OpenRoot",
    "OrderHandle",
    "OrderWorker",
    "RouteLearned",
    "RoutePlan",
    "RouteWanted",
    "Runtime",
    "Schedule",
    "TurnEnded",
    "assemble_providers",
    "command_test",
    "figures_of",
    "grade_recorded",
    "known_tools",
    "learn_route",
    "load_app",
    "load_grader",
    "make_root",
    "package_manager",
    "plan_route",
    "prompts_of",
    "propose_route",
    "require_reachable",
    "resolve_model",
    "right_answers",
    "rules_of",
    "weight_store",
]
