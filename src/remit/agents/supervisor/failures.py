"""Failures of a turn: which may be retried, and the text that the customer reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from remit.agents.supervisor.turn import TurnFailedError
from remit.agents.workorders import WorkOrder, WorkOrderState
from remit.contracts import ContractError
from remit.kernel.errors import RemitError

_log = logging.getLogger("remit.supervisor")

PROVIDER_FAILURES = frozenset({"SERVER_ERROR", "RATE_LIMITED"})
"""Temporary failures of a provider."""

_TEMPORARY_FAILURES = PROVIDER_FAILURES | {"output_schema_invalid"}
"""Failures that a further attempt may avoid.

Other failures are permanent, such as a spent budget or a missing tool, or may have cost money, such
as a timeout.
"""

_UNCERTAIN_FAILURES = frozenset({"timeout", "tool_outcome_unknown"})
"""Failures after which nothing is repeated, because the work may have taken effect."""

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
"""Texts for the customer in place of an answer, keyed by error code, without internal details."""

LOOP_FAILURES = frozenset(
    {"contract_not_found", "contract_schema_invalid", "prompt_pack_not_found",
     "input_schema_invalid"}
)  # fmt: skip
"""Failures around the model, after which a direct call can still answer."""


def no_answer(code: str) -> str:
    """Return the text that the customer reads in place of an answer.

    Args:
        code: error code of the turn; a general text answers an unknown one.
    """
    return _NO_ANSWER.get(code, _NO_ANSWER[""])


def can_change(order: WorkOrder) -> bool:
    """Return True if another attempt at a rejected order can end differently.

    A failed order can if the provider failed (``SERVER_ERROR``, ``RATE_LIMITED``) or the answer
    broke its schema (``output_schema_invalid``). Other failures count as permanent, also timeouts,
    which may have cost money. A completed order can unless code, not a model, wrote its answer.

    Args:
        order: an order that failed, or whose answer was rejected.
    """
    if order.state is WorkOrderState.FAILED:
        return (order.error or {}).get("code") in _TEMPORARY_FAILURES
    result = order.output_result
    return not (
        isinstance(result, Mapping) and result.get("printed")
    )  # Printed answers do not change.


def may_be_repeated(order: WorkOrder) -> bool:
    """Return True if a person or program may request another attempt at a failed order.

    False for an order that has not failed, and after a timeout or an unknown outcome of a tool.
    """
    failed = order.state is WorkOrderState.FAILED
    return failed and (order.error or {}).get("code") not in _UNCERTAIN_FAILURES


def loop_failure(error: Exception) -> tuple[str, str]:
    """Return the recorded code and message of a failed loop.

    An unexpected error is logged; its message is recorded only if it is Remit's own.

    Args:
        error: the error that ended the loop.
    """
    if isinstance(error, TurnFailedError) and error.code:
        return error.code, error.detail
    if isinstance(error, ContractError):
        return error.code, error.message
    _log.warning("the turn's loop failed: %s", type(error).__name__)
    _log.debug("where it failed", exc_info=error)
    if isinstance(error, RemitError):
        return type(error).__name__, error.message
    return "internal_error", f"{type(error).__name__} in the loop"
