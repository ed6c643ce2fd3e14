"""Exchanges that can be asked again, and graders by schema and by right answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remit.contracts import ContractError, ContractLoader, PromptContract
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.schemas import first_problem, schema_problem
from remit.learning.calls import is_own_call
from remit.learning.held_out import is_whole
from remit.ledger import LedgerEntry, LedgerReader

__all__ = ["Grade", "gradable_exchanges", "grader", "learnable_contract"]

Grade = Callable[[LedgerEntry, str], float | None]
"""Grades an answer to an exchange, 0 to 1; ``None`` where it cannot."""


def learnable_contract(
    ledger: LedgerReader, contracts: ContractLoader, contract_id: str
) -> PromptContract:
    """The version in force of a contract that something can be learned of.

    Raises:
        InvalidInputError: it is on record, and of no package: a program brought a folder of its
            own, where nothing that is learned could be put.
        ContractError: there is none, or it cannot be used.
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
            f"{contract_id} does not belong to a package, so Remit cannot learn about it: a "
            "program loaded it from its own folder (contracts=…).",
            next_step="Put the contract into a package with `remit package new`.",
        ) from error


def gradable_exchanges(
    ledger: LedgerReader, contract_id: str, version: PromptContract | None = None
) -> Iterator[str]:
    """Yield ids of answered exchanges in Remit's own form; learning's own calls are left out.

    Args:
        ledger: the record.
        contract_id: id of the contract.
        version: restricts the exchanges to this version; exchanges that name no version are matched
            by the version's prompt pack.
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
        if whole and not is_own_call(data) and data.get("outcome") == "success":
            yield entry.id


def grader(schema: Any, references: Mapping[str, Any] | None = None) -> Grade:
    """A grader that gives 1 to an answer that is right, else 0.

    Args:
        schema: a JSON Schema that an answer has to satisfy; not looked at beside ``references``.
        references: right answers by exchange id, compared without case, spaces and a last stop.

    Raises:
        InvalidInputError: neither is given, or the schema is not one.
    """
    if references is not None:
        right = {name: _plain(str(answer)) for name, answer in references.items()}

        def by_reference(entry: LedgerEntry, text: str) -> float | None:
            wanted = right.get(entry.id)
            return None if wanted is None else float(_plain(text) == wanted)

        return by_reference
    if not schema or (problem := schema_problem(schema)):
        raise InvalidInputError(
            "Answers cannot be graded: the contract has no output schema."
            if not schema
            else f"The schema is {problem}.",
            next_step="Give a schema or references.",
        )

    def by_schema(entry: LedgerEntry, text: str) -> float:
        try:
            return float(not first_problem(schema, load_answer(text)))
        except JsonTextError:
            return 0.0

    return by_schema


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold().removesuffix(".")
