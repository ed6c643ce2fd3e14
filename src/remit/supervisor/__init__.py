"""HO2, the supervisor: plans a turn, has it worked on, checks it, delivers (SPEC 9.1)."""

from remit.supervisor.supervisor import HO2Supervisor
from remit.supervisor.turn import TurnResult

__all__ = ["HO2Supervisor", "TurnResult"]
