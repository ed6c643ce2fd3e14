"""HO2, the supervisor: plans a turn, runs its work orders, verifies the answer and delivers it.

This subpackage owns the turn of a session, its plan, the quality gate, threads, and the exclusion
of what keeps failing. It calls no model and runs no tool itself: its orders go to the worker. It
sees other sessions only through a port that the tier above fills.

Invariants: only one process at a time works on a session; a turn is delivered only after its
``TURN_RECORDED`` is durable; a recorded step is never repeated.

Start reading in ``supervisor.py``, then ``turn.py``.
"""

from remit.agents.supervisor.attention import Candidate as Candidate
from remit.agents.supervisor.carried_effects import session_effects as session_effects
from remit.agents.supervisor.entries import (
    UnfinishedTurn as UnfinishedTurn,
    unfinished_sessions as unfinished_sessions,
    unfinished_turn as unfinished_turn,
)
from remit.agents.supervisor.operational_loop import exclusion_entries as exclusion_entries
from remit.agents.supervisor.plan import (
    ClassificationRules as ClassificationRules,
    Plan as Plan,
    Planner as Planner,
    PlanStep as PlanStep,
    TurnContext as TurnContext,
)
from remit.agents.supervisor.quality_gate import (
    DEFAULT_CRITERIA as DEFAULT_CRITERIA,
    check_criteria as check_criteria,
)
from remit.agents.supervisor.services import Responder as Responder, Services as Services
from remit.agents.supervisor.supervisor import HO2Supervisor as HO2Supervisor
from remit.agents.supervisor.threads import (
    open_threads as open_threads,
    thread_tools as thread_tools,
)
from remit.agents.supervisor.turn_result import (
    TurnCancelledError as TurnCancelledError,
    TurnEnded as TurnEnded,
    TurnFailedError as TurnFailedError,
    TurnPendingError as TurnPendingError,
    TurnResult as TurnResult,
)
