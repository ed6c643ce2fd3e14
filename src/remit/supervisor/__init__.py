"""HO2, the supervisor: plans a turn, has it worked on, checks it, delivers (SPEC 9.1)."""

from remit.supervisor.attention import Candidate
from remit.supervisor.consolidation import consolidate
from remit.supervisor.journal import SupervisorJournal
from remit.supervisor.plan import Plan, Planner, PlanStep, TurnContext
from remit.supervisor.quality import check_criteria
from remit.supervisor.single import SingleOrders
from remit.supervisor.supervisor import HO2Supervisor
from remit.supervisor.threads import open_threads, thread_tools
from remit.supervisor.turn import TurnCancelledError, TurnPendingError, TurnResult
from remit.supervisor.unfinished import UnfinishedTurn, unfinished_turn

__all__ = [
    "Candidate",
    "HO2Supervisor",
    "Plan",
    "PlanStep",
    "Planner",
    "SingleOrders",
    "SupervisorJournal",
    "TurnCancelledError",
    "TurnContext",
    "TurnPendingError",
    "TurnResult",
    "UnfinishedTurn",
    "check_criteria",
    "consolidate",
    "open_threads",
    "thread_tools",
    "unfinished_turn",
]
