"""HO2, the supervisor: plans a turn, has it worked on, checks it, delivers."""

from remit.agents.supervisor.aside import AsidePolicy, steps_aside
from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.classification import ClassificationRules
from remit.agents.supervisor.effects import session_effects
from remit.agents.supervisor.journal import UnfinishedTurn, unfinished_turn
from remit.agents.supervisor.plan import Plan, Planner, PlanStep, TurnContext
from remit.agents.supervisor.quality import DEFAULT_CRITERIA, check_criteria
from remit.agents.supervisor.services import Responder, Services
from remit.agents.supervisor.supervisor import HO2Supervisor
from remit.agents.supervisor.threads import open_threads, thread_tools
from remit.agents.supervisor.turn import (
    TurnCancelledError,
    TurnFailedError,
    TurnPendingError,
    TurnResult,
)

__all__ = [
    "DEFAULT_CRITERIA",
    "AsidePolicy",
    "Candidate",
    "ClassificationRules",
    "HO2Supervisor",
    "Plan",
    "PlanStep",
    "Planner",
    "Responder",
    "Services",
    "TurnCancelledError",
    "TurnContext",
    "TurnFailedError",
    "TurnPendingError",
    "TurnResult",
    "UnfinishedTurn",
    "check_criteria",
    "open_threads",
    "session_effects",
    "steps_aside",
    "thread_tools",
    "unfinished_turn",
]
