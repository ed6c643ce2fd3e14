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
    from remit.runtime.agent import Agent as Agent
    from remit.runtime.agent_session import Conversation as Conversation, TurnEnded as TurnEnded
    from remit.runtime.installation import (
        known_tools as known_tools,
        make_root as make_root,
        package_manager as package_manager,
    )
    from remit.runtime.operations_root import OpenRoot as OpenRoot
    from remit.runtime.order_app import load_app as load_app
    from remit.runtime.order_handle import OrderHandle as OrderHandle
    from remit.runtime.order_worker import OrderWorker as OrderWorker
    from remit.runtime.providers import (
        assemble_providers as assemble_providers,
        require_reachable as require_reachable,
        resolve_model as resolve_model,
        weight_store as weight_store,
    )
    from remit.runtime.route_graders import (
        Graders as Graders,
        command_test as command_test,
        grade_recorded as grade_recorded,
        load_grader as load_grader,
        right_answers as right_answers,
    )
    from remit.runtime.route_learner import (
        RouteLearned as RouteLearned,
        RoutePlan as RoutePlan,
        RouteWanted as RouteWanted,
        figures_of as figures_of,
        learn_route as learn_route,
        plan_route as plan_route,
        prompts_of as prompts_of,
        propose_route as propose_route,
    )
    from remit.runtime.routing import rules_of as rules_of
    from remit.runtime.runtime import Runtime as Runtime
    from remit.runtime.schedules import Schedule as Schedule
else:
    __getattr__ = lazy_names(__name__)
