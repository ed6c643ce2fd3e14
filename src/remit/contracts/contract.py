"""A prompt contract: versioned data that shapes one kind of call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.contracts.folder import ContractError, text_of
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import load_unique
from remit.kernel.schemas import first_problem, schema_problem, shipped_schema

Precedence = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]

_MAX_PROBLEM = 400  # characters; a problem may quote the file


def precedence(version: str) -> Precedence:
    """Return a sort key for a version, by section 11 of Semantic Versioning 2.0.0.

    The key has major, minor, patch, True for a release, and the pre-release identifiers. A
    pre-release comes before its release. Versions that differ only in build metadata have equal
    keys.

    Args:
        version: a version such as ``1.0.0-rc.1``. ValueError if its core is not three integers;
            the rest is not checked.
    """
    core, _, pre = version.partition("+")[0].partition("-")
    major, minor, patch = (int(part) for part in core.split("."))
    identifiers = tuple(
        (0, int(part), "") if re.fullmatch("[0-9]+", part) else (1, 0, part)
        for part in pre.split(".")
        if pre
    )
    return major, minor, patch, not pre, identifiers


@dataclass(frozen=True, slots=True)
class Boundary:
    """Limits of every call under a contract. Immutable.

    Attributes:
        max_tokens: largest number of output tokens.
        temperature: the sampling temperature of the model.
        provider_id: provider of the calls; ``None`` leaves the choice to the caller.
        model_id: model of the calls; ``None`` leaves the choice to the caller.
        structured_output: JSON Schema of the output, or True for the contract's output schema.
            ``None`` or False asks for plain text.
    """

    max_tokens: int
    temperature: float
    provider_id: str | None = None
    model_id: str | None = None
    structured_output: Mapping[str, Any] | bool | None = None


@dataclass(frozen=True, slots=True)
class PromptContract:
    """A version of a contract. Immutable.

    Attributes:
        contract_id: ``PRC-NAME-001``.
        version: version of the contract, as its file states it.
        prompt_pack_id: the pack with the prompt text.
        boundary: limits of every call.
        agent_class: ``KERNEL.syntactic``, ``KERNEL.semantic``, ``ADMIN`` or ``RESIDENT``; empty if
            not stated.
        tier: the tier of the calls, in lower case.
        required_context: ledger queries, frameworks and files to add to the prompt.
        input_schema: JSON Schema of the input; ``None`` for no check.
        output_schema: JSON Schema of the output; ``None`` for no check.
        examples: examples, see :func:`check_examples`.
        metadata: further data of the file, which calls do not use.
        digest: SHA-256 of the contract's canonical JSON (RFC 8785), 64 hex digits; the layout of
            its file does not matter.
        package_id: the installed package that owns the file, whatever the contract itself says;
            empty if no package does.
        framework_id: the framework of that package; empty without a package.
    """

    contract_id: str
    version: str
    prompt_pack_id: str
    boundary: Boundary
    agent_class: str = ""
    tier: str = "ho1"
    required_context: Mapping[str, Any] = field(default_factory=dict)
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    examples: tuple[Any, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    package_id: str = ""
    framework_id: str = ""

    @classmethod
    def parse(cls, data: bytes, source: str) -> PromptContract:
        """Return the contract in a JSON file. ``package_id`` and ``framework_id`` stay empty.

        ``digest`` ignores white space. The file's name and the prompt pack are not checked.

        Args:
            data: the file's bytes.
            source: the file's name in errors.

        Raises:
            ContractError: ``contract_schema_invalid``: the file is not UTF-8 or begins with a byte
                order mark, is not JSON or has a name twice, does not match the contract schema,
                contains an invalid JSON Schema, or a number that RFC 8785 cannot express; the
                message names the file and mostly the place.
        """
        try:
            value = load_unique(text_of(data, source))
            if problem := first_problem(shipped_schema("prompt_contract"), value):
                raise ValueError(f"{source}, at {excerpt(problem, _MAX_PROBLEM)}")
            digest = sha256_hex(canonical_json(value))
            schemas = {name: value.get(name) for name in ("input_schema", "output_schema")}
            schemas["boundary/structured_output"] = value["boundary"].get("structured_output")
            for name, schema in schemas.items():
                if isinstance(schema, dict) and (problem := schema_problem(schema)):
                    raise ValueError(f"{source}, {name}: {excerpt(problem, _MAX_PROBLEM)}")
        except InvalidInputError as error:
            raise ContractError("contract_schema_invalid", f"{source}: {error.message}") from error
        except ValueError as error:
            raise ContractError("contract_schema_invalid", f"{error}.") from error
        limits = {**value["boundary"], "max_tokens": int(value["boundary"]["max_tokens"])}
        fields = {**value, "boundary": Boundary(**limits), "digest": digest}
        fields["examples"] = tuple(value.get("examples", ()))
        return cls(**fields)

    @property
    def name(self) -> str:
        """Id and version of the contract: ``PRC-ANSWER-001@1.2.0``."""
        return f"{self.contract_id}@{self.version}"

    def allows_no_more_than(self, other: PromptContract) -> bool:
        """Return True if this version may replace ``other``.

        Id, provider, model, agent class, tier, required context and all schemas must be equal, and
        ``max_tokens`` must not be larger. Prompt pack, temperature, version, examples, metadata and
        package are not compared.

        Args:
            other: the version to replace.
        """
        own, its = self.boundary, other.boundary
        return own.max_tokens <= its.max_tokens and all(
            getattr(mine, name) == getattr(theirs, name)
            for mine, theirs, names in (
                (own, its, ("provider_id", "model_id", "structured_output")),
                (self, other, ("contract_id", "agent_class", "tier", "required_context",
                               "input_schema", "output_schema")),
            )
            for name in names
        )  # fmt: skip

    @property
    def precedence(self) -> Precedence:
        """A sort key of the version; see :func:`precedence`."""
        return precedence(self.version)

    @property
    def prerelease(self) -> bool:
        """True if the version is a pre-release (``2.0.0-rc.1``)."""
        return "-" in self.version.partition("+")[0]
