"""A prompt contract: versioned data that shapes one kind of call."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from remit.contracts.errors import ContractError
from remit.contracts.folder import UnusableFileError, text_of
from remit.contracts.schema import unusable
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem, shipped_schema

__all__ = ["Boundary", "PromptContract"]

_MAX_PROBLEM = 400  # characters; a problem may quote the file


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
    """One version of one contract.

    Attributes:
        digest: SHA-256 of the contract's canonical JSON (RFC 8785), 64 hex digits; the way
            its file is laid out does not matter to it.
    """

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
    digest: str = ""

    @classmethod
    def parse(cls, data: bytes, source: str) -> PromptContract:
        """The contract in a JSON file.

        Args:
            data: the file's bytes.
            source: its name, for the error.

        Raises:
            ContractError: ``contract_schema_invalid``: it is not JSON, or does not satisfy the
                contract schema; the message names the file and the place in it.
        """
        try:
            value = _json(data, source)
            if problem := first_problem(shipped_schema("prompt_contract"), value):
                raise ValueError(f"{source}, at {_brief(problem)}")
            digest = sha256_hex(canonical_json(value))
            schemas = {name: value.get(name) for name in ("input_schema", "output_schema")}
            schemas["boundary/structured_output"] = value["boundary"].get("structured_output")
            for name, schema in schemas.items():
                if isinstance(schema, dict) and (problem := unusable(schema)):
                    raise ValueError(f"{source}, {name}: {_brief(problem)}")
        except InvalidInputError as error:
            raise ContractError(
                "contract_schema_invalid", f"{source} is not plain JSON: {error.message}"
            ) from error
        except UnusableFileError as error:
            raise ContractError(
                "contract_schema_invalid", error.message, next_step=error.next_step
            ) from error
        except ValueError as error:
            raise ContractError("contract_schema_invalid", f"{error}.") from error
        limits = {**value["boundary"], "max_tokens": int(value["boundary"]["max_tokens"])}
        fields = {**value, "boundary": Boundary(**limits), "digest": digest}
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

    @property
    def prerelease(self) -> bool:
        """Whether the version comes before its release (``2.0.0-rc.1``)."""
        return "-" in self.version.partition("+")[0]


def _json(data: bytes, source: str) -> Any:
    text = text_of(data, source)
    try:
        orjson.loads(text)  # strict where the standard library is not
        return json.loads(text, object_pairs_hook=functools.partial(_object, source))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{source} is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{source} is nested too deeply") from error


def _object(source: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise ValueError(f"{source} has the key {name!r} twice in one object")
        value[name] = item
    return value


def _brief(problem: str) -> str:
    return problem if len(problem) <= _MAX_PROBLEM else f"{problem[:_MAX_PROBLEM]}…"
