"""The result of a turn, the errors of turns, and which failures another attempt may avoid."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from remit.agents.output_type import OutputT
from remit.agents.workorders import ApprovalNeeded, WorkOrder, WorkOrderState
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


class TurnPendingError(RemitError):
    """The session's last turn waits for a person, so that no new turn can begin.

    Args:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries that wait for a decision.

    Attributes:
        request_ids: these ids.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"The last turn of this session waits for {', '.join(request_ids)}.",
            next_step="Decide with `remit approve`, then resume the session; or cancel the turn.",
        )
        self.request_ids = request_ids


class TurnCancelledError(RemitError):
    """Somebody requested the turn to stop; completed steps are recorded.

    The end of the turn is recorded too.
    """


class TurnFailedError(RemitError):
    """A turn has no output: the turn failed, or waits for a person.

    Raised by :attr:`TurnResult.output`, and inside a turn if its loop fails. The message contains
    code and detail, or says that the turn waits.

    Args:
        code: ``error_code`` of the turn; empty while it waits.
        detail: ``error_detail`` of the turn.

    Attributes:
        code: ``error_code`` of the turn; empty while it waits.
        detail: ``error_detail`` of the turn.
    """

    def __init__(self, code: str, detail: str) -> None:
        if code:
            said = detail if detail.startswith(code) else f"{code}: {detail}"
            message, step = f"The turn failed: {said}.", "Look at `failed` before `output`."
        else:
            message, step = "The turn waits for a person.", "Decide, then resume the session."
        super().__init__(message, next_step=step)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class TurnResult(Generic[OutputT]):
    """A turn that was delivered, or that waits for a person.

    Immutable. Exactly one of an answer, a failure (:attr:`failed`) and a wait (:attr:`waiting`)
    applies.

    Attributes:
        response: text for the user: the agent's answer, or a sentence that explains why there is
            none.
        error_code: why the turn failed; empty otherwise. The failure code of the work order,
            ``answer_rejected`` after the quality gate, or the code of a failed loop.
        error_detail: details for logs and support; never shown to the customer.
        wo_chain_summary: id, type, state, error and cost of each work order.
        cost_summary: sum of the orders' usage; see :class:`WorkOrderCost` for its names.
        session_id: the session of the turn.
        quality_gate_passed: True if the response is the agent's answer and passed the gate; False
            for a notice and for a degraded answer.
        tool_results: results of tools in this turn, as data.
        classification: classification of the message; None without one.
        degraded: True if the loop failed. A response that is not a notice then comes from a direct
            call, and meets the agent's acceptance criteria.
        turn_entry_id: id of the ``TURN_RECORDED``; empty while the turn waits.
        turn_number: number of the turn in the session, from 1.
        waiting_for: tool calls that wait for a person. After the decision, ``resume()`` continues
            the turn in any process.
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
    turn_number: int = 0
    waiting_for: tuple[ApprovalNeeded, ...] = ()
    error_code: str = ""
    error_detail: str = ""
    _output: Any = None

    @property
    def output(self) -> OutputT:
        """The answer: a value of the output type, the data of the contract, or the text.

        Raises:
            TurnFailedError: the turn failed or waits; ``failed`` and ``waiting`` tell.
        """
        if self.failed or self.waiting:
            raise TurnFailedError(self.error_code, self.error_detail)
        return cast(OutputT, self._output)

    @property
    def failed(self) -> bool:
        """True if the turn ended without an answer; ``error_code`` has the reason."""
        return bool(self.error_code)

    @property
    def notice(self) -> bool:
        """True if the response explains why there is no answer, or that the turn waits."""
        return self.failed or self.waiting

    @property
    def waiting(self) -> bool:
        """True if the turn waits for a person."""
        return bool(self.waiting_for)


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

    Args:
        order: the order as it ended.
    """
    failed = order.state is WorkOrderState.FAILED
    return failed and (order.error or {}).get("code") not in _UNCERTAIN_FAILURES


def loop_failure(error: Exception) -> tuple[str, str]:
    """Return the recorded code and message of a failed loop.

    An unexpected error is logged; its message is recorded only if it is Remit's own. The code is
    the error's own for a TurnFailedError or ContractError, the class name for another RemitError,
    and ``internal_error`` otherwise.

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


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The last event of a streamed turn, also of a turn that failed or waits for a person.

    Immutable.

    If the turn raises an error, or the iterator is closed early, there is no such event.

    Attributes:
        result: the turn, as :meth:`Conversation.aturn` returns it; see its ``error_code`` and
            ``waiting_for``.
    """

    result: TurnResult[Any]


def summary_of(order: WorkOrder) -> dict[str, Any]:
    """Return an order's id, type, state, error and cost as data.

    The keys are ``wo_id``, ``wo_type``, ``state``, ``error`` (None without one), ``llm_calls``,
    ``tool_calls``, ``total_tokens``, ``cost_usd`` (None if unknown) and ``elapsed_ms``.

    Args:
        order: an order of the turn.
    """
    cost = order.cost.to_dict()
    names = ("llm_calls", "tool_calls", "total_tokens", "cost_usd", "elapsed_ms")
    return {
        "wo_id": order.wo_id,
        "wo_type": str(order.wo_type),
        "state": str(order.state),
        "error": dict(order.error) if order.error else None,
        **{name: cost[name] for name in names},
    }
