"""A prompt contract: versioned data that shapes one kind of call."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import orjson

from remit.errors import RemitError
from remit.schemas import first_problem, schema_problem

__all__ = ["Boundary", "ContractError", "PromptContract"]


class ContractError(RemitError):
    """A contract or pack cannot be used.

    Attributes:
        code: ``contract_not_found``, ``contract_schema_invalid`` or ``prompt_pack_not_found``.
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


@dataclass(frozen=True, slots=True)
class Boundary:
    """Limits that every call under the contract keeps."""

    max_tokens: int
    temperature: float
    provider_id: str | None = None
    model_id: str | None = None
    structured_output: Mapping[str, Any] | bool | None = None


@dataclass(frozen=True, slots=True)
class PromptContract:
    """One version of one contract."""

    contract_id: str
    version: str
    prompt_pack_id: str
    boundary: Boundary
    agent_class: str = "RESIDENT"
    tier: str = "ho1"
    required_context: Mapping[str, Any] = field(default_factory=dict)
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    examples: tuple[Any, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes, source: str) -> PromptContract:
        """The contract in a JSON file.

        Args:
            data: the file's bytes.
            source: its name, for the error.

        Raises:
            ContractError: it is not JSON, or does not satisfy the contract schema.
        """
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ContractError(
                "contract_schema_invalid", f"{source} is not JSON: {error}."
            ) from error
        if problem := first_problem(_contract_schema(), value):
            raise ContractError("contract_schema_invalid", f"{source}, at {problem}.")
        for name in ("input_schema", "output_schema"):
            if problem := schema_problem(value.get(name, {})):
                raise ContractError("contract_schema_invalid", f"{source}, {name}: {problem}.")
        fields = {**value, "boundary": Boundary(**value["boundary"])}
        fields["examples"] = tuple(value.get("examples", ()))
        return cls(**fields)

    @property
    def precedence(self) -> tuple[Any, ...]:
        """Sorts versions as Semantic Versioning 2.0.0 §11 orders them."""
        core, _, pre = self.version.partition("+")[0].partition("-")
        numbers = tuple(int(part) for part in core.split("."))
        identifiers = tuple(
            (0, int(part), "") if re.fullmatch("[0-9]+", part) else (1, 0, part)
            for part in pre.split(".")
            if pre
        )
        return (*numbers, not pre, identifiers)


@functools.cache
def _contract_schema() -> dict[str, Any]:
    path = "assets/schemas/prompt_contract.schema.json"
    schema: dict[str, Any] = orjson.loads(resources.files("remit").joinpath(path).read_bytes())
    return schema
