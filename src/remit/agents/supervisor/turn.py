"""What a turn comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from remit.agents.outputs import OutputT
from remit.agents.workorders import ApprovalNeeded
from remit.kernel.errors import RemitError


class TurnPendingError(RemitError):
    """The session's last turn waits for a person; a new one cannot begin before it ends.

    Attributes:
        request_ids: what it waits for.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"The last turn of this session waits for {', '.join(request_ids)}.",
            next_step="Decide with `remit approve`, then resume the session; or cancel the turn.",
        )
        self.request_ids = request_ids


class TurnCancelledError(RemitError):
    """Somebody asked the turn to stop; what was done is on record."""


class TurnFailedError(RemitError):
    """A turn has no output: it failed, or waits for a person.

    Attributes:
        code: the turn's ``error_code``; empty while it waits.
    """

    def __init__(self, code: str, detail: str) -> None:
        if code:
            said = detail if detail.startswith(code) else f"{code}: {detail}"
            message, step = f"The turn failed: {said}.", "Look at `failed` before `output`."
        else:
            message, step = "The turn waits for a person.", "Decide, then resume the session."
        super().__init__(message, next_step=step)
        self.code = code


@dataclass(frozen=True, slots=True)
class TurnResult(Generic[OutputT]):
    """A turn that was delivered, or that waits for a person.

    Attributes:
        response: the text for the user: the model's, or a sentence that says that there is none.
        error_code: why the turn failed; empty where it did not. A failure code of the work order
           , ``answer_rejected`` for an answer that did not pass the quality gate, or
            the code of the failure that a direct call could not make good either.
        error_detail: what happened inside, for logs and support; never meant for the customer.
        wo_chain_summary: per work order its id, type, state, error and cost.
        cost_summary: the sum of the orders' costs.
        quality_gate_passed: True if the response is the agent's answer and the quality gate has
            accepted it; False for a notice and for a degraded answer.
        tool_results: results of tools in this turn, as data.
        classification: what the message was taken for, when it was classified.
        degraded: True if the loop failed; a response that is no notice then comes from one direct
            call, and has passed the agent's acceptance.
        turn_entry_id: id of the ``TURN_RECORDED``; empty while the turn waits.
        turn_number: counted from 1 in the session.
        waiting_for: the tool calls that wait for a person; the turn goes on with
            ``resume()`` once they are decided, in this process or another.
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
            TurnFailedError: there is none: the turn failed, or waits.
        """
        if self.failed or self.waiting:
            raise TurnFailedError(self.error_code, self.error_detail)
        return cast(OutputT, self._output)

    @property
    def failed(self) -> bool:
        """Whether the turn ended without an answer; ``error_code`` says why."""
        return bool(self.error_code)

    @property
    def notice(self) -> bool:
        """True if the response is not the agent's answer: it says why there is none, or waits."""
        return self.failed or self.waiting

    @property
    def waiting(self) -> bool:
        """Whether the turn waits for a person."""
        return bool(self.waiting_for)
