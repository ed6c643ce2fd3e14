"""Failures of a turn: which may be retried, and the text that the customer reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from remit.agents.workorders import WorkOrder, WorkOrderState
from remit.contracts import ContractError
from remit.kernel.errors import RemitError

_log = logging.getLogger("remit.supervisor")

OF_PROVIDER = frozenset({"SERVER_ERROR", "RATE_LIMITED"})
"""Failures of a provider that another attempt may not meet."""

_MAY_PASS = OF_PROVIDER | {"output_schema_invalid"}
"""Failures that another attempt may not meet. All others stay: a spent budget, an open circuit,
a tool that is not there; and a call that took too long may have been paid for."""

_MAY_BE_PAID = frozenset({"timeout", "tool_outcome_unknown"})
"""Failures after which no level tries again: what was asked for may have been done."""

_NO_ANSWER = {
    "": "I cannot answer this right now.",
    "answer_rejected": "I have no answer to this that I can stand behind.",
    "budget_exhausted": "I cannot answer this: the budget that I was given for it is used up.",
    "UNPRICED": "I cannot answer this: my model has no price, and what I may spend is limited in "
    "US dollars. Have the model priced, or that limit lifted.",
    "turn_limit_exceeded": "I could not finish this within the number of steps I am allowed.",
    "refusal": "I cannot help with this.",
    "content_filter": "I cannot help with this.",
    "length": "I could not finish this: my answer was longer than it may be.",
    "timeout": "I stopped, because an answer to this took too long.",
    "tool_outcome_unknown": "I cannot say whether what you asked for was done. Please have it "
    "checked before you ask again.",
}
"""What is said in place of an answer, by error code: for customers, so without what happened."""

LOOP_FAILURES = frozenset(
    {"contract_not_found", "contract_schema_invalid", "prompt_pack_not_found",
     "input_schema_invalid"}
)  # fmt: skip
"""Failures of the machinery around the model: a direct call can still answer."""


class LoopFailedError(RemitError):
    """The loop of a turn failed, not the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def no_answer(code: str) -> str:
    """Return the text that the customer reads in place of an answer."""
    return _NO_ANSWER.get(code, _NO_ANSWER[""])


def can_change(order: WorkOrder) -> bool:
    """Return True if another attempt at a rejected order can end differently."""
    if order.state is WorkOrderState.FAILED:
        return (order.error or {}).get("code") in _MAY_PASS
    result = order.output_result
    return not (isinstance(result, Mapping) and result.get("printed"))  # by code, from a tool


def may_be_repeated(order: WorkOrder) -> bool:
    """Return True if a person or program may request another attempt at a failed order."""
    failed = order.state is WorkOrderState.FAILED
    return failed and (order.error or {}).get("code") not in _MAY_BE_PAID


def loop_failure(error: Exception) -> LoopFailedError:
    """Return the failure of the loop as it is recorded; log an unexpected error."""
    if isinstance(error, LoopFailedError):
        return error
    if isinstance(error, ContractError):
        return LoopFailedError(error.code, error.message)
    _log.warning("the turn's loop failed: %s", type(error).__name__)
    _log.debug("where it failed", exc_info=error)
    if isinstance(error, RemitError):
        return LoopFailedError(type(error).__name__, error.message)
    return LoopFailedError("internal_error", f"{type(error).__name__} in the loop")
