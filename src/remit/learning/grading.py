"""Grades by programs, by a reference answer, a JSON Schema or a test; exchanges to be graded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remit.contracts import ContractError, ContractLoader, PromptContract
from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.json_text import JsonTextError, dump, load_answer
from remit.kernel.schemas import first_problem, schema_problem
from remit.learning.evidence.feedback import Feedback, find_target, give_feedback
from remit.learning.exchanges import is_evidence, is_whole, is_whole_exchange, prompt_key
from remit.ledger import LedgerClient, LedgerEntry, LedgerReader

Grade = Callable[[LedgerEntry, str], float | None]
"""Grades an answer to an exchange, 0 to 1; ``None`` if it cannot."""


def grade_by_reference(
    ledger: LedgerClient, target: str, reference: str, *, by: str, reason: str = "",
    idempotency_key: str = "",
) -> Feedback:  # fmt: skip
    """Record feedback of the source ``reference``: 1 if an answer equals the right one, else 0.

    Appends a ``FEEDBACK`` entry and returns the feedback. Answers are compared as by
    :func:`is_reference`.

    Args:
        target: an id of any form that :func:`find_target` takes.
        reference: the right answer.
        by: name of the grader, for the ledger.
        reason: free text of up to 2,000 characters; may be empty.
        idempotency_key: a second call with the key records nothing and returns the first feedback.

    Raises:
        InvalidInputError: the reference answer is empty.
        ConflictError: there is no answer.
        RemitError: any other error of :func:`give_feedback`.
    """
    score = float(is_reference(answer_of(ledger, target), reference))
    return give_feedback(ledger, target, score=score, source="reference", by=by, reason=reason,
                         idempotency_key=idempotency_key)  # fmt: skip


def is_reference(answer: str, reference: str) -> bool:
    """Return True if an answer equals the reference answer, without case, white space at the ends,
    repeated white space and a final full stop.

    InvalidInputError is raised if the reference answer is empty.
    """
    if not normal_text(reference):
        raise InvalidInputError("The reference answer is empty.")
    return normal_text(answer) == normal_text(reference)


def grade_by_schema(
    ledger: LedgerClient, target: str, schema: Mapping[str, Any], *, by: str, reason: str = "",
    idempotency_key: str = "",
) -> Feedback:  # fmt: skip
    """Record feedback of the source ``schema``: 1 if an answer matches a JSON Schema, else 0.

    Appends a ``FEEDBACK`` entry and returns the feedback. The answer may be in a code fence; an
    answer that is no JSON scores 0. The other arguments are those of :func:`give_feedback`.

    Raises:
        InvalidInputError: the schema is not valid.
        ConflictError: there is no answer.
        RemitError: any other error of :func:`give_feedback`.
    """
    check_schema(schema)
    score = float(matches_schema(answer_of(ledger, target), schema))
    return give_feedback(ledger, target, score=score, source="schema", by=by, reason=reason,
                         idempotency_key=idempotency_key)  # fmt: skip


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

    Appends a ``FEEDBACK`` entry and returns the feedback.

    Args:
        target: an id of any form that :func:`find_target` takes.
        test: returns a score from 0 to 1, or True if the answer passes. Its exceptions are raised,
            and nothing is written.
        by: name of the grader, for the ledger.

    Raises:
        ConflictError: there is no answer.
        InvalidInputError: the score is not a number from 0 to 1.
        RemitError: any other error of :func:`give_feedback`.
    """
    found = test(answer_of(ledger, target))
    score = float(found) if isinstance(found, bool) else found
    return give_feedback(ledger, target, score=score, source="test", by=by)


def answer_of(ledger: LedgerClient, target: str) -> str:
    """Return the text of the answer of an exchange, turn, work order or decision.

    An object without ``text`` as a work order's result is returned as JSON. The latest result of a
    work order counts, and the last attempt of a decision.

    Args:
        target: an id of any form that :func:`find_target` takes.

    Raises:
        EntryNotFoundError: there is no such target.
        ConflictError: there is no answer, or it was erased.
        LedgerError: the ledger cannot be read.
    """
    entry, kind = find_target(ledger, target)
    answer: Any
    if kind == "work_order":
        done = ledger.query(
            work_order_id=entry.submission_id, event_type="WO_COMPLETED", order="desc", limit=1
        )
        answer = result = next((one.metadata["output_result"] for one in done), None)
        if isinstance(result, dict):  # A text, or data.
            answer = result["text"] if "text" in result else dump(result).decode()
    elif kind == "decision":
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


def learnable_contract(
    ledger: LedgerReader, contracts: ContractLoader, contract_id: str
) -> PromptContract:
    """Return the newest version of a contract that can be learned about.

    Raises:
        InvalidInputError: the contract is recorded but belongs to no package, because a program
            used a folder of its own. Learned changes could not be installed there.
        ContractError: ``contract_not_found``: the contract does not exist and was never used; or
            another code: it is not valid, or was changed since its installation.
        ChangedFileError: the table of installed files cannot be read.
        LedgerError: the ledger cannot be read.
    """
    try:
        return contracts.load(contract_id)
    except ContractError as error:
        asked = ledger.query(
            event_type="EXCHANGE", contract_id=contract_id, limit=1, with_content=False
        )
        if error.code != "contract_not_found" or not any(asked):
            raise
        raise InvalidInputError(
            f"{contract_id} is of no package: a program loads it from a folder of its own "
            "(contracts=…), where no change could be installed.",
            next_step="Put the contract into a package: `remit package new`.",
        ) from error


def gradable_exchanges(
    ledger: LedgerReader, contract_id: str, version: PromptContract | None = None
) -> Iterator[str]:
    """Yield ids of successful exchanges of a contract with prompt and answer, oldest first.

    Learning's own calls, answers from the answer cache, and exchanges with erased content are left
    out.

    Args:
        version: restricts the exchanges to this version (``None`` for all); exchanges that name no
            version are matched by the version's prompt pack.

    Raises:
        LedgerError: during the iteration, if the ledger cannot be read.
    """
    for entry in ledger.query(event_type="EXCHANGE", contract_id=contract_id):
        data = entry.metadata
        if version is not None and (
            data["contract_version"] != version.version
            if data.get("contract_version")
            else version.prompt_pack_id not in entry.prompts_used
        ):
            continue
        if is_whole_exchange(entry) and is_evidence(data) and data.get("outcome") == "success":
            yield entry.id


def grader(schema: Any, references: Mapping[str, Any] | None = None) -> Grade:
    """Return a grader that gives 1 to a right answer and 0 to any other.

    Args:
        schema: JSON Schema that an answer must match, in a code fence or not; ignored if
            ``references`` are given.
        references: right answers by exchange id, perhaps none; ``None`` to grade by the schema.
            Case, white space at the ends, repeated white space and a final full stop are ignored.
            The grader returns ``None`` for exchanges without a right answer.

    Raises:
        InvalidInputError: without ``references``, the schema is missing, empty or not valid.
    """
    if references is not None:
        right = {name: normal_text(str(answer)) for name, answer in references.items()}

        def by_reference(entry: LedgerEntry, text: str) -> float | None:
            wanted = right.get(entry.id)
            return None if wanted is None else float(normal_text(text) == wanted)

        return by_reference
    if not schema:
        raise InvalidInputError(
            "Answers cannot be graded: the contract has no output schema.",
            next_step="Give a schema or references.",
        )
    check_schema(schema)
    return lambda _, text: float(matches_schema(text, schema))


def recorded_grader(
    ledger: LedgerReader, schema: Any, references: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a grader of :func:`grader` as JSON data of a proposal.

    ``kind`` is ``schema``, with ``schema``, or ``reference``, with ``answers``: the SHA-256 of the
    right answer's :func:`normal_text`, by the :func:`prompt_key` of the prompt without system
    messages, and no text. An exchange without its prompt is left out, and so are prompts that
    differ in system messages only and have different right answers.

    Raises:
        LedgerError: the exchanges of the references cannot be read.
    """
    if references is None:
        return {"kind": "schema", "schema": schema}
    right: dict[str, set[str]] = defaultdict(set)
    for entry in ledger.read_many(references):
        if is_whole(entry.metadata.get("prompt")):
            right[_key(entry)].add(_hash(str(references[entry.id])))
    answers = {key: next(iter(found)) for key, found in right.items() if len(found) == 1}
    return {"kind": "reference", "answers": answers}


def graded_by(recorded: Mapping[str, Any], entry: LedgerEntry) -> float | None:
    """Return the grade of an exchange by a proposal's :func:`recorded_grader`, 0 or 1.

    None if the answer is no text, if the prompt is missing, empty or erased in part, or if the
    grader has no reference for the prompt. References are found by the prompt without system
    messages.
    """
    answer = entry.metadata.get("response")
    if not (isinstance(answer, str) and is_whole(entry.metadata.get("prompt"))):
        return None
    if recorded["kind"] == "schema":
        return float(matches_schema(answer, recorded["schema"]))
    right = recorded["answers"].get(_key(entry))
    return None if right is None else float(_hash(answer) == right)


def _key(entry: LedgerEntry) -> str:
    prompt: Any = entry.metadata["prompt"]
    if isinstance(prompt, list):
        prompt = [one for one in prompt if one.get("role") != "system"]
    return prompt_key(prompt)


def _hash(answer: str) -> str:
    return sha256_hex(normal_text(answer).encode())
