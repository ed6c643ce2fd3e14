"""A contract's examples as acceptance cases: run without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.contracts.contract import PromptContract
from remit.contracts.errors import ContractError
from remit.contracts.pack import PromptPack
from remit.kernel.schemas import first_problem

__all__ = ["check_examples"]

_KEYS = frozenset({"input", "output", "renders"})


def check_examples(contract: PromptContract, pack: PromptPack) -> list[str]:
    """What is wrong with the contract's examples, a sentence each; empty when all hold.

    An example is ``{"input": {…}, "output": …, "renders": [text, …]}``, the last two optional.
    It holds when its input satisfies the input schema, every section of the pack can be filled
    in with it, the messages contain each text of ``renders``, and its output satisfies the
    output schema.

    Args:
        contract: whose examples these are.
        pack: the one that it binds.
    """
    problems: list[str] = []
    if pack.prompt_pack_id != contract.prompt_pack_id:
        problems.append(f"{contract.contract_id} binds {contract.prompt_pack_id}, not this pack.")
    for number, example in enumerate(contract.examples, 1):
        where = f"{contract.contract_id} {contract.version}, example {number}"
        problems += [f"{where}: {problem}" for problem in _problems(contract, pack, example)]
    return problems


def _problems(contract: PromptContract, pack: PromptPack, example: Any) -> Iterator[str]:
    if not isinstance(example, Mapping) or not isinstance(example.get("input"), Mapping):
        yield "it has no input that is an object."
        return
    if unknown := example.keys() - _KEYS:
        yield f"{min(unknown)!r} is none of {', '.join(sorted(_KEYS))}."
    if problem := first_problem(contract.input_schema or {}, dict(example["input"])):
        yield f"the input, at {problem}."
    try:
        messages = pack.render(example["input"])
    except ContractError as error:
        yield error.message
    else:
        text = "\n".join(str(message["content"]) for message in messages)
        if not messages:
            yield "the pack makes no message of it."
        wanted = example.get("renders", ())
        if not isinstance(wanted, list | tuple) or not all(isinstance(one, str) for one in wanted):
            yield "renders is not a list of texts."
        else:
            for one in wanted:
                if one not in text:
                    yield f"the prompt does not contain {one!r}."
    schema = contract.output_schema or {}
    if "output" in example and (problem := first_problem(schema, example["output"])):
        yield f"the output, at {problem}."
