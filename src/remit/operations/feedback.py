"""Operations on feedback about exchanges, work orders, turns and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Literal

from remit.operations.operation import Caller, Feed, Operation, RootPort, field


class GiveFeedback(Operation):
    """Grade an exchange, work order, turn or decision; an agent's key only its own.

    A later grade by the same party replaces the earlier one; both stay recorded.
    """

    route, summary, needs = "POST /feedback", "Give feedback", "give_feedback"
    form, result, status, fails = "FeedbackGiven", "FeedbackShape", 201, (404, 409)
    endpoint = "give"

    target: str = field(
        "Id of the target: `LED-…` of an exchange, turn or work order, `WO-…`, `DEC-…`, `SES-…/3` "
        "for a turn, or `SES-…` for the latest turn.", is_name=True,
    )  # fmt: skip
    score: float | None = field("Score from 0 (bad) to 1 (good).", None, least=0, most=1)
    label: str = field(
        "Label, such as `wrong_unit`; equal labels are counted together.", "", most=64
    )
    reason: str = field(
        "Reason; stored as content, which is erased with its target.", "", most=2000
    )
    source: Literal["person", "program"] = field(
        "Whether a person or a program made the judgement.", "person"
    )
    idempotency_key: str = field(
        "Idempotency key: a repetition with the same key is not recorded again.", "", most=256
    )

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Record the feedback.

        Raises:
            NotFoundError: the target does not exist, or is another caller's.
            InvalidInputError: there is neither a score nor a label.
            ConflictError: the idempotency key was used for other feedback.
        """
        from remit.learning import give_feedback

        given: dict[str, Any] = {name: getattr(self, name) for name in self._declared()}
        identity = caller.identity
        return asdict(give_feedback(
            root.ledger, **given, by=caller.name, identity=identity, subject_id=caller.subject_id
        ))  # fmt: skip


class ListFeedback(Operation):
    """Return all feedback, or that on one target; replaced feedback is included."""

    route, summary, form, result = "GET /feedback", "List feedback", "FeedbackQuery", "FeedbackPage"
    fails, member, endpoint = (404,), "feedback", "listed"

    target: str | None = field(
        "Id of a target, as in `target` of POST; by default all feedback.", None
    )

    def run(self, root: RootPort, caller: Caller) -> Feed:
        """Return the feedback, oldest first.

        Raises:
            NotFoundError: the target does not exist.
        """
        from remit.learning import feedback_on
        from remit.learning.judges import is_uncalibrated

        ledger = root.ledger

        def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
            asks = is_uncalibrated(ledger)
            for one in feedback_on(ledger, self.target, after=cursor):
                shown = {**asdict(one), "reason": one.reason, "uncalibrated": asks(one)}
                yield one.entry_id, shown

        return Feed(read)
