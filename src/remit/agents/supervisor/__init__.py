"""HO2, the supervisor: plans a turn, runs its work orders, verifies the answer and delivers it.

This subpackage owns the turn of a session, its plan, the quality gate, threads, and the exclusion
of what keeps failing. It calls no model and runs no tool itself: its orders go to the worker. It
sees other sessions only through a port that the tier above fills.

Invariants: only one process at a time works on a session; a turn is delivered only after its
``TURN_RECORDED`` is durable; a recorded step is never repeated.

Start reading in ``supervisor.py``, then ``turn.py``.
"""

from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.carried_effects import session_effects
from remit.agents.supervisor.entries import UnfinishedTurn, unfinished_sessions, unfinished_turn
from remit.agents.supervisor.operational_loop import exclusion_entries
from remit.agents.supervisor.plan import ClassificationRules, Plan, Planner, PlanStep, TurnContext
from remit.agents.supervisor.quality_gate import DEFAULT_CRITERIA, check_criteria
from remit.agents.supervisor.services import Responder, Services
from remit.agents.supervisor.supervisor import HO2Supervisor
from remit.agents.supervisor.threads import open_threads, thread_tools
from remit.agents.supervisor.turn_result import (
    TurnCancelledError,
    TurnEnded,
    TurnFailedError,
    TurnPendingError,
    TurnResult,
)

__all__ = [
    "DEFAULT_CRITERIA",
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
    "TurnEnded",
    "TurnFailedError",
    "TurnPendingError",
    "TurnResult",
    "UnfinishedTurn",
    "check_criteria",
    "exclusion_entries",
    "open_threads",
    "session_effects",
    "thread_tools",
    "unfinished_sessions",
    "unfinished_turn",
]
