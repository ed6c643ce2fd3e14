"""Grades by programs: by a reference answer, a JSON Schema, or a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.schemas import first_problem, schema_problem
from remit.learning.evidence.feedback import Feedback, find_target, give_feedback
from remit.ledger import LedgerClient


def grade_by_reference(ledger: LedgerClient, target: str, reference: str, *, by: str) -> Feedback:
    """Record feedback of the source ``reference``: 1 if an answer equals the right one, else 0.

    Args:
        target: an id of any form that :func:`find_target` takes.
        by: name of the grader, for the ledger.

    Raises:
        InvalidInputError: the reference answer is empty.
        EntryNotFoundError: there is no such target.
        ConflictError: there is no answer, its content was erased, or the grader gave feedback on it
            100 times.
    """
    score = float(is_reference(answer_of(ledger, target), reference))
    return give_feedback(ledger, target, score=score, source="reference", by=by)


def is_reference(answer: str, reference: str) -> bool:
    """Return True if an answer equals the reference answer in :func:`normal_text`.

    InvalidInputError is raised if the reference answer is empty.
    """
    if not normal_text(reference):
        raise InvalidInputError("The reference answer is empty.")
    return normal_text(answer) == normal_text(reference)


def grade_by_schema(
    ledger: LedgerClient, target: str, schema: Mapping[str, Any], *, by: str
) -> Feedback:
    """Record feedback of the source ``schema``: 1 if an answer matches a JSON Schema, else 0.

    As :func:`grade_by_reference`; InvalidInputError is raised if the schema is not valid.
    """
    check_schema(schema)
    score = float(matches_schema(answer_of(ledger, target), schema))
    return give_feedback(ledger, target, score=score, source="schema", by=by)


def check_schema(schema: object) -> None:
    """Raise InvalidInputError if a value is not an object, or not a valid JSON Schema."""
    if not isinstance(schema, Mapping):
        raise InvalidInputError("A JSON Schema must be an object.")
    if problem := schema_problem(schema):
        raise InvalidInputError(f"The schema is {problem}.")


def matches_schema(answer: str, schema: Mapping[str, Any]) -> bool:
    """Return True if an answer is JSON, in a code fence or not, that matches a valid schema."""
    try:
        return not first_problem(schema, load_answer(answer))
    except JsonTextError:
        return False


def grade_by_test(
    ledger: LedgerClient, target: str, test: Callable[[str], bool | float], *, by: str
) -> Feedback:
    """Record feedback of the source ``test``: the score that a function gives to an answer.

    As :func:`grade_by_reference`; InvalidInputError is raised if the score is not from 0 to 1.

    Args:
        test: returns a score from 0 to 1, or True if the answer passes. Its exceptions are raised,
            and nothing is written.
    """
    found = test(answer_of(ledger, target))
    score = float(found) if isinstance(found, bool) else found
    return give_feedback(ledger, target, score=score, source="test", by=by)


def answer_of(ledger: LedgerClient, target: str) -> str:
    """Return the text of the answer of an exchange, turn, work order or decision.

    Data without a text is returned as JSON. The latest result of a work order counts, and the last
    attempt of a decision.

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


def normal_text(text: str) -> str:
    """Return a text in the form in which answers are compared.

    Case is folded, white space becomes single spaces, and a final full stop is removed.
    """
    return " ".join(text.split()).casefold().removesuffix(".")
