"""Operations on feedback about exchanges, work orders, turns and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.operations.files import read_table
from remit.operations.operation import Answer, Feed, field, limit, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Table

if TYPE_CHECKING:
    from remit.learning import Feedback


@verb(
    route="POST /feedback", summary="Give feedback", needs="give_feedback", form="FeedbackGiven",
    result="FeedbackShape", status=201, fails=(404, 409), endpoint="give",
)  # fmt: skip
def grade(
    root: RootPort, caller: Caller, *,
    target: str = field(
        "Id of the target: `LED-…` of an exchange, turn or work order, `WO-…`, `DEC-…`, `SES-…/3` "
        "for a turn, or `SES-…` for the latest turn.", is_name=True,
    ),
    score: float | None = field("Score from 0 (bad) to 1 (good).", None, least=0, most=1),
    label: str = field(
        "Label, such as `wrong_unit`; equal labels are counted together.", "", most=64
    ),
    reason: str = field(
        "Reason; stored as content, which is erased with its target.", "", most=2000
    ),
    source: Literal["person", "program"] = field(
        "Whether a person or a program made the judgement.", "person"
    ),
    idempotency_key: str = field(
        "Idempotency key: a repetition with the same key is not recorded again.", "", most=256
    ),
) -> dict[str, Any]:  # fmt: skip
    """Grade an exchange, work order, turn or decision; an agent's key only its own.

    A later grade by the same party replaces the earlier one; both stay recorded.

    Returns:
        The recorded feedback; that of the first request if an idempotency key is repeated.

    Raises:
        NotFoundError: the target does not exist, or is another caller's.
        InvalidInputError: there is neither a score nor a label, or a value cannot be used.
        ConflictError: the idempotency key was used for other feedback, the target was erased, or
            this party graded it 100 times already.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.learning import give_feedback

    return asdict(give_feedback(
        root.ledger, target=target, score=score, label=label, reason=reason, source=source,
        idempotency_key=idempotency_key, by=caller.name, identity=caller.identity,
        subject_id=caller.subject_id,
    ))  # fmt: skip


@verb(
    route="GET /feedback", summary="List feedback", form="FeedbackQuery", result="FeedbackPage",
    fails=(404,), member="feedback", endpoint="listed",
)  # fmt: skip
def list_feedback(
    root: RootPort, caller: Caller, *,
    target: str | None = field(
        "Id of a target, as in `target` of POST; by default all feedback.", None
    ),
) -> Feed:  # fmt: skip
    """Return all feedback, or that on one target; replaced feedback is included.

    Returns:
        A list in ledger order, page by page. ``uncalibrated`` is True for a judge whose grades were
        not compared with those of people.

    Raises:
        NotFoundError: the target does not exist. This and all below are raised when the list is
            read.
        InvalidInputError: the cursor is no entry id.
        LedgerError: the ledger cannot be read.
    """
    from remit.learning import feedback_on
    from remit.learning.judges import calibrated_judges

    ledger = root.ledger
    judges = cache(lambda: calibrated_judges(ledger))

    def asks(one: Feedback) -> bool:
        if one.source != "judge":
            return False
        contract = ledger.read(one.target_entry_id).metadata.get("contract_id", "")
        return (one.by, str(contract)) not in judges()

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        for one in feedback_on(ledger, target, after=cursor):
            shown = {**asdict(one), "reason": one.reason, "uncalibrated": asks(one)}
            yield one.entry_id, shown

    return Feed(read)


def _line(item: dict[str, Any]) -> str:
    """Return target, grade and author, and the feedback that this one replaces."""
    score = "" if item["score"] is None else f"{item['score']:g}"
    said = " ".join(word for word in (score, item["label"]) if word)
    target = f"{item['target_type'].replace('_', ' ')} {item['target_entry_id']}"
    line = f"{item['entry_id']}  {target}: {said} ({item['source']}: {item['by']})"
    if item["reason"]:
        line += f"  {item['reason']}"
    if item["again"]:
        line += "  already recorded under this idempotency key"
    elif item["replaces"]:
        line += f"  replaces {item['replaces']}"
    return line + ("  UNCALIBRATED" if item.get("uncalibrated") else "")


def _shares(root: RootPort, limit: int | None) -> Answer:
    """Return the share of feedback of each author."""
    from remit.learning import rater_weights, read_samples

    counts = Counter(rater for sample in read_samples(root.ledger) for rater in sample.raters)
    weights = rater_weights(counts)
    total = sum(weights[rater] * graded for rater, graded in counts.items())
    raters: list[dict[str, Any]] = [
        {"rater": rater, "graded": graded, "weight": weights[rater],
         "share": weights[rater] * graded / total}
        for rater, graded in counts.most_common(limit)
    ]  # fmt: skip
    rows = [(one["rater"], str(one["graded"]), f"{one['weight']:.3f}",
             f"{100 * one['share']:.1f}%") for one in raters]  # fmt: skip
    table = Table(("who", "exchanges", "weight per grade", "share of a signal"), rows, limit or 50)
    return Answer({"raters": raters}, [table])


@verb(
    "feedback", command_member="feedback", changes=True, line=_line,
    nothing="No feedback yet. `remit feedback ID --score 1` rates an answer.",
    lines=lambda found: iter([_line(found)]),
    writes_with=("score", "label", "reference", "json_schema"),
)  # fmt: skip
def rate_answer(
    root: RootPort, caller: Caller, *,
    target: str | None = field("Id of the target.", None, flag="", metavar="[ID]"),
    score: float | None = field("Score from 0 (bad) to 1 (good).", None),
    label: str = field("Label to count by, such as wrong_unit.", ""),
    reason: str = field("Reason; erased together with its subject.", ""),
    by: str | None = field("Author of the feedback (default: the current user).", None),
    reference: str | None = field("Grade the answer by this reference: 1 if equal, else 0.", None),
    json_schema: dict[str, Any] | None = field(
        "Grade the answer by this JSON Schema: 1 if valid, else 0.", None, flag="--schema",
        metavar="FILE", read=read_table,
    ),
    idempotency_key: str = field(
        "Idempotency key: repeated feedback with the same key is recorded once.", ""
    ),
    shares: bool = field("Show the share of feedback of each author.", False),
    limit: int | None = limit(),
) -> dict[str, Any] | Answer | Feed:  # fmt: skip
    """Rate an answer. Without a score or label, list the recorded feedback.

    ID is an entry (LED-…) of an exchange, turn or work order, a work order (WO-…), a routing
    decision (DEC-…), a turn of a session (SES-…/3), or a session (SES-…) for its latest turn.

    Returns:
        The recorded feedback, the list of feedback, or with ``shares``, whatever else is given, the
        weight of each author. The feedback has the source ``person``, ``reference`` or ``schema``.

    Raises:
        InvalidInputError: several kinds of grade are given, or only a reason or idempotency key;
            a grade has no target; or a value, reference or schema cannot be used.
        NotFoundError: the target does not exist; of a list, raised when the list is read.
        ConflictError: the idempotency key was used for other feedback, the target was erased, this
            author graded it 100 times, or there is no answer to compare with a reference or schema.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.learning import grade_by_reference, grade_by_schema

    if shares:
        return _shares(root, limit)
    ways = {"reference": reference, "schema": json_schema, "score": score, "label": label or None}
    grades = [name for name, one in ways.items() if one is not None]
    if len(grades) > 1 and grades != ["score", "label"]:
        raise InvalidInputError("Give --score and --label, or --reference, or --schema.")
    if not grades:
        if reason or idempotency_key:
            raise InvalidInputError("Give --score, --label, --reference or --schema.")
        return list_feedback(root, caller, target=target)
    if target is None:
        raise InvalidInputError("Give the ID that the feedback is about.")
    words = {"by": caller.name, "reason": reason, "idempotency_key": idempotency_key}
    if reference is not None:
        return asdict(grade_by_reference(root.ledger, target, reference, **words))
    if json_schema is not None:
        return asdict(grade_by_schema(root.ledger, target, json_schema, **words))
    return grade(
        root, caller, target=target, score=score, label=label, reason=reason, source="person",
        idempotency_key=idempotency_key,
    )  # fmt: skip
