"""Exchanges that can be asked again, and graders by schema or reference answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remit.contracts import ContractError, ContractLoader, PromptContract
from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.grading import check_schema, matches_schema, normal_text
from remit.learning.exchanges import is_evidence, is_whole, prompt_key
from remit.ledger import LedgerEntry, LedgerReader

Grade = Callable[[LedgerEntry, str], float | None]
"""Grades an answer to an exchange, 0 to 1; ``None`` if it cannot."""


def learnable_contract(
    ledger: LedgerReader, contracts: ContractLoader, contract_id: str
) -> PromptContract:
    """Return the newest version of a contract that can be learned about.

    Raises:
        InvalidInputError: the contract is recorded but belongs to no package, because a program
            used a folder of its own. Learned changes could not be installed there.
        ContractError: ``contract_not_found``: the contract does not exist and was never used; or
            another code: it is not valid.
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
        whole = is_whole(data.get("prompt")) and is_whole(data.get("response"))
        if whole and is_evidence(data) and data.get("outcome") == "success":
            yield entry.id


def grader(schema: Any, references: Mapping[str, Any] | None = None) -> Grade:
    """Return a grader that gives 1 to a right answer and 0 to any other.

    Args:
        schema: JSON Schema that an answer must match; ignored if there are ``references``.
        references: right answers by exchange id; ``None`` to grade by the schema. Case, white space
            and a final full stop are ignored. The grader returns ``None`` for exchanges without
            one.

    Raises:
        InvalidInputError: neither is given, or the schema is not valid.
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

    References are stored without text: the hash of the right answer by the key of the prompt
    without system messages. An exchange without its prompt is left out.
    """
    if references is None:
        return {"kind": "schema", "schema": schema}
    right = {
        _key(entry): _hash(str(references[entry.id]))
        for entry in ledger.read_many(references)
        if is_whole(entry.metadata.get("prompt"))
    }
    return {"kind": "reference", "answers": right}


def graded_by(recorded: Mapping[str, Any], entry: LedgerEntry) -> float | None:
    """Return the grade of an exchange by a proposal's grader, 0 or 1.

    None if its answer is no text, its content was erased, or the grader has no reference for it.

    Args:
        recorded: the grader, as :func:`recorded_grader` returns it.
        entry: the ``EXCHANGE``, with content.
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
