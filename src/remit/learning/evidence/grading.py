"""Grades that a program gives: by a reference answer, a JSON Schema, or a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.schemas import first_problem, schema_problem
from remit.learning.evidence.feedback import Feedback, Source, give_feedback
from remit.learning.evidence.target import find_target
from remit.ledger import LedgerClient

__all__ = ["grade_by_reference", "grade_by_schema", "grade_by_test", "is_reference"]


def grade_by_reference(ledger: LedgerClient, target: str, reference: str, *, by: str) -> Feedback:
    """Score 1 where the answer is the reference answer, else 0.

    Raises:
        RemitError: what :func:`give_feedback`, :func:`answer_of` and :func:`is_reference` raise.
    """
    found = float(is_reference(answer_of(ledger, target), reference))
    return _give(ledger, target, "reference", found, by)


def is_reference(answer: str, reference: str) -> bool:
    """Whether an answer is the reference answer.

    Space at the ends, runs of space, case, and a full stop at the end make no difference.

    Raises:
        InvalidInputError: the reference answer is empty.
    """
    if not _squeezed(reference):
        raise InvalidInputError("The reference answer is empty.")
    return _squeezed(answer) == _squeezed(reference)


def grade_by_schema(
    ledger: LedgerClient, target: str, schema: Mapping[str, Any], *, by: str
) -> Feedback:
    """Score 1 where the answer is JSON that a JSON Schema takes, else 0.

    Raises:
        InvalidInputError: the schema is none.
        RemitError: what :func:`give_feedback` and :func:`answer_of` raise.
    """
    if not isinstance(schema, Mapping):
        raise InvalidInputError("A JSON Schema must be an object.")
    if problem := schema_problem(schema):
        raise InvalidInputError(f"The schema is {problem}.")
    answer = answer_of(ledger, target)
    try:
        found = float(not first_problem(schema, load_answer(answer)))
    except JsonTextError:
        found = 0.0
    return _give(ledger, target, "schema", found, by)


def grade_by_test(
    ledger: LedgerClient, target: str, test: Callable[[str], bool | float], *, by: str
) -> Feedback:
    """The score that a function gives an answer: a number from 0 to 1, or whether it passes.

    An exception of its own is raised, and nothing is written.

    Raises:
        RemitError: what :func:`give_feedback` and :func:`answer_of` raise.
    """
    found = test(answer_of(ledger, target))
    return _give(ledger, target, "test", float(found) if isinstance(found, bool) else found, by)


def answer_of(ledger: LedgerClient, target: str) -> str:
    """The text of an exchange's, turn's, work order's or decision's answer.

    Raises:
        EntryNotFoundError: there is no such target.
        ConflictError: there is no answer, or it was erased.
    """
    found = find_target(ledger, target)
    entry = found.entry
    answer: Any
    if found.kind == "work_order":
        done = ledger.query(
            work_order_id=entry.submission_id, event_type="WO_COMPLETED", order="desc", limit=1
        )
        answer = result = next((one.metadata["output_result"] for one in done), None)
        if isinstance(result, dict):  # A text, or data.
            answer = result["text"] if "text" in result else orjson.dumps(result).decode()
    elif found.kind == "decision":
        attempts = entry.metadata.get("attempts")
        last = attempts[-1] if isinstance(attempts, list) and attempts else {}
        exchange_id = str(last.get("exchange_entry_id", ""))
        answer = ledger.read(exchange_id).metadata["response"] if exchange_id else None
    else:
        answer = entry.metadata.get("response")
    if not isinstance(answer, str):
        raise ConflictError(
            f"{target} has no answer to grade, or the answer was erased.",
            next_step="Give an exchange with an answer.",
        )
    return answer


def _give(ledger: LedgerClient, target: str, source: Source, score: float, by: str) -> Feedback:
    return give_feedback(ledger, target, score=score, source=source, by=by)


def _squeezed(text: str) -> str:
    return " ".join(text.split()).casefold().removesuffix(".")
