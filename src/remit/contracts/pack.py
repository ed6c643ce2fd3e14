"""A prompt pack: the template text of a contract.

A pack is a sequence of sections, each begun by a line that holds only ``[system]``,
``[user]``, ``[assistant]`` or ``[history]``. A section becomes one message; ``[history]``
marks where the turns of the conversation go. A pack without such a line is one user message.
Sections are cut before anything is filled in, so no value can begin one; values are inserted
as text and never read as template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Template, TemplateError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from remit.contracts.contract import ContractError
from remit.exchange import Message

__all__ = ["PromptPack"]

_SECTION = re.compile(r"^\[(system|user|assistant|history)\][ \t]*$", re.MULTILINE)
_environment = ImmutableSandboxedEnvironment(
    undefined=Undefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
)


@dataclass(frozen=True, slots=True)
class PromptPack:
    """A pack, ready to render."""

    prompt_pack_id: str
    sections: tuple[tuple[str, Template], ...]

    @classmethod
    def parse(cls, prompt_pack_id: str, text: str) -> PromptPack:
        """The pack in a template file.

        Raises:
            ContractError: a section is not a template.
        """
        parts = _SECTION.split(text)
        sections = [("user", parts[0])] if parts[0].strip() else []
        sections += list(zip(parts[1::2], parts[2::2], strict=True))
        try:
            compiled = tuple((role, _environment.from_string(text)) for role, text in sections)
        except TemplateError as error:
            raise ContractError(
                "contract_schema_invalid", f"{prompt_pack_id} is not a template: {error}."
            ) from error
        return cls(prompt_pack_id, compiled)

    def render(
        self, variables: Mapping[str, Any], history: Sequence[Message] = ()
    ) -> list[Message]:
        """The messages of the pack with ``variables`` filled in; empty ones are left out.

        Raises:
            ContractError: the template asks for something that values do not have.
        """
        messages: list[Message] = []
        for role, template in self.sections:
            if role == "history":
                messages.extend(history)
                continue
            try:
                text = template.render(variables).strip()
            except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
                raise ContractError(
                    "contract_schema_invalid",
                    f"{self.prompt_pack_id} cannot be filled in: {error}.",
                ) from error
            if text:
                messages.append({"role": role, "content": text})
        return messages
