"""The result of a turn, and the errors of turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from remit.agents.outputs import OutputT
from remit.agents.workorders import ApprovalNeeded
from remit.kernel.errors import RemitError


class TurnPendingError(RemitError):
    """The session's last turn waits for a person, so that no new turn can begin.

    Attributes:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries that wait for a decision.
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
    """The turn has no output, because it failed or waits for a person.

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
