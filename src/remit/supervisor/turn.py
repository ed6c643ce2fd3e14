"""What a turn comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TurnResult"]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A delivered turn.

    Attributes:
        response: the text for the user: the model's, or an honest word that there is none.
        wo_chain_summary: per work order its id, type, state, error and cost.
        cost_summary: the sum of the orders' costs.
        quality_gate_passed: whether the answer passed the check.
        tool_results: what tools gave back in this turn, as data.
        classification: what the message was taken for, when it was classified.
        degraded: whether a direct call answered because the loop failed.
        turn_entry_id: id of the ``TURN_RECORDED``.
    """

    response: str
    wo_chain_summary: tuple[Mapping[str, Any], ...]
    cost_summary: Mapping[str, Any]
    session_id: str
    quality_gate_passed: bool
    tool_results: tuple[Mapping[str, Any], ...] = ()
    classification: Mapping[str, Any] | None = None
    degraded: bool = False
    turn_entry_id: str = ""
