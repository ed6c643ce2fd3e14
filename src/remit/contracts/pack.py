"""Prompt packs: the template text of a contract.

A pack is a sequence of sections. A line with only ``[system]``, ``[user]``, ``[assistant]`` or
``[history]`` begins each. A section becomes a message; ``[history]`` is the place of the
conversation's turns. A pack without such a line is one user message. Sections are cut before values
are inserted, so a value cannot begin one. Values are inserted unchanged and never read as template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Template, TemplateError

from remit.contracts.contract import PromptContract
from remit.contracts.folder import ContractError
from remit.contracts.template_language import Value, compile_section, pieces
from remit.kernel.canonical import sha256_hex
from remit.kernel.exchange import Message
from remit.kernel.schemas import first_problem

_UNFILLED = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError,
    RecursionError,
)  # fmt: skip
_EXAMPLE_KEYS = frozenset({"input", "output", "renders"})

_SECTION = re.compile(r"^\[(system|user|assistant|history)\][ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PromptPack:
    """A pack that can be rendered. Immutable.

    Attributes:
        prompt_pack_id: ``PRM-NAME-001``.
        sections: role and template of each section, in order.
        digest: SHA-256 of the text in UTF-8, 64 hex digits.
    """

    prompt_pack_id: str
    sections: tuple[tuple[str, Template], ...]
    digest: str

    @classmethod
    def parse(cls, prompt_pack_id: str, text: str) -> PromptPack:
        """Return the pack in a template's text.

        Args:
            prompt_pack_id: id of the pack; its form is not checked.
            text: the template's text.

        Raises:
            ContractError: ``contract_schema_invalid``: a section is not a template, or uses a
                feature that packs may not use, and the message names the line; or the text contains
                a lone surrogate.
        """
        compiled = []
        try:
            digest = sha256_hex(text.encode())
            for role, first_line, source in cut_sections(text):
                compiled.append((role, compile_section(source, first_line)))
        except ValueError as error:
            raise ContractError(
                "contract_schema_invalid", f"{prompt_pack_id} is not a valid prompt pack: {error}."
            ) from error
        return cls(prompt_pack_id, tuple(compiled), digest)

    def render(
        self, variables: Mapping[str, Any], history: Sequence[Message] = ()
    ) -> list[Message]:
        """Return the messages of the pack with ``variables`` inserted, without empty messages.

        White space of the template at the ends of a section is removed; that of a value remains. A
        section that is blank with its values gives no message. A missing variable counts as empty
        text. The result may be empty.

        Args:
            variables: values by name.
            history: messages in the place of ``[history]``; ignored by a pack without one.

        Raises:
            ContractError: ``contract_schema_invalid``: the template uses something that the values
                do not have, or exceeds the limits of a section.
        """
        messages: list[Message] = []
        for number, (role, template) in enumerate(self.sections, 1):
            if role == "history":
                messages.extend(history)
                continue
            try:
                text = _trimmed(pieces(template, variables))
            except _UNFILLED as error:
                raise ContractError(
                    "contract_schema_invalid",
                    f"{self.prompt_pack_id} cannot be filled in, section {number} [{role}]: "
                    f"{error}.",
                ) from error
            if text:
                messages.append({"role": role, "content": text})
        return messages


def cut_sections(text: str) -> list[tuple[str, int, str]]:
    """Return role, number of the first line (from 1), and source of each section, in order.

    The first line of a section is the line with its role, of which the source contains only the
    line break. Text before the first such line is a ``user`` section from line 1, unless blank.

    Args:
        text: the text of a pack.
    """
    marks = list(_SECTION.finditer(text))
    begin, *ends = [*(mark.start() for mark in marks), len(text)]
    cut = [("user", 1, text[:begin])] if text[:begin].strip() else []
    for mark, end in zip(marks, ends, strict=True):
        line = text.count("\n", 0, mark.end()) + 1
        cut.append((mark[1], line, text[mark.end() : end]))
    return cut


def _trimmed(made: Iterable[str]) -> str:
    """Return the text without the template's white space at its ends; empty if it is blank."""
    parts = [part for part in made if part]
    if not "".join(parts).strip():
        return ""
    while not isinstance(parts[0], Value):
        parts[0] = parts[0].lstrip()
        if parts[0]:
            break
        del parts[0]
    while not isinstance(parts[-1], Value):
        parts[-1] = parts[-1].rstrip()
        if parts[-1]:
            break
        del parts[-1]
    return "".join(parts)


def check_examples(contract: PromptContract, pack: PromptPack) -> list[str]:
    """Return the problems of the contract's examples, a sentence each; empty if all hold.

    An example is ``{"input": {…}, "output": …, "renders": [text, …]}``, the last two optional; any
    other key is a problem. It holds if its input satisfies the input schema, every section of the
    pack can be rendered with it, there is a message, the messages contain each text of ``renders``,
    and its output satisfies the output schema. Of an example without an object as input nothing
    else is examined. A pack that the contract does not name is a problem too.

    Args:
        contract: the contract that holds the examples.
        pack: the pack that the contract names.
    """
    problems: list[str] = []
    if pack.prompt_pack_id != contract.prompt_pack_id:
        problems.append(f"{contract.contract_id} uses {contract.prompt_pack_id}, not this pack.")
    for number, example in enumerate(contract.examples, 1):
        where = f"{contract.contract_id} {contract.version}, example {number}"
        problems += [
            f"{where}: {problem}" for problem in _example_problems(contract, pack, example)
        ]
    return problems


def _example_problems(contract: PromptContract, pack: PromptPack, example: Any) -> Iterator[str]:
    if not isinstance(example, Mapping) or not isinstance(example.get("input"), Mapping):
        yield "it requires an object as input."
        return
    if unknown := example.keys() - _EXAMPLE_KEYS:
        yield f"{min(unknown)!r} is none of {', '.join(sorted(_EXAMPLE_KEYS))}."
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
        is_list = isinstance(wanted, list | tuple)
        if not is_list or not all(isinstance(part, str) for part in wanted):
            yield "renders is not a list of texts."
        else:
            for part in wanted:
                if part not in text:
                    yield f"the prompt does not contain {part!r}."
    schema = contract.output_schema or {}
    if "output" in example and (problem := first_problem(schema, example["output"])):
        yield f"the output, at {problem}."
