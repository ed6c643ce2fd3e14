"""A prompt contract: versioned data that shapes one kind of call."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from remit.contracts.folder import ContractError, text_of
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem, schema_problem, shipped_schema

_MAX_PROBLEM = 400  # characters; a problem may quote the file
_MAX_AT_ONCE = 10_000  # subschemas that one value may meet; two refs doubled 14 times are more


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
        package_id: the installed package that owns its file, whatever the contract itself says;
            empty where none does.
        framework_id: that package's; empty without one.
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
                if isinstance(schema, dict) and (problem := _unusable(schema)):
                    raise ValueError(f"{source}, {name}: {_brief(problem)}")
        except InvalidInputError as error:
            raise ContractError(
                "contract_schema_invalid", f"{source} is not plain JSON: {error.message}"
            ) from error
        except ValueError as error:
            raise ContractError("contract_schema_invalid", f"{error}.") from error
        limits = {**value["boundary"], "max_tokens": int(value["boundary"]["max_tokens"])}
        fields = {**value, "boundary": Boundary(**limits), "digest": digest}
        fields["examples"] = tuple(value.get("examples", ()))
        return cls(**fields)

    @property
    def name(self) -> str:
        """``PRC-ANSWER-001@1.2.0``: one version of one contract."""
        return f"{self.contract_id}@{self.version}"

    def allows_no_more_than(self, other: PromptContract) -> bool:
        """Whether it can stand in for another version: like it but for prompt and temperature.

        It asks the same model for no more tokens, in the same tier and class, and takes and gives
        the same data.
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


def _unusable(schema: Mapping[str, Any]) -> str:
    """Why ``schema`` cannot hold inputs or outputs; empty when it can.

    Beside what JSON Schema 2020-12 asks: every reference leads to a place in the schema itself
    (nothing is ever fetched) and not in a circle, and every pattern is one.
    """
    if problem := schema_problem(schema):
        return problem
    try:
        return _problem(schema)
    except Unresolvable as error:
        return f"it refers to {error.ref!r}, which is not in it"
    except re.error as error:
        return f"{error.pattern!r} is not a pattern: {error}"
    except RecursionError:
        return "its references are nested too deeply"


def _problem(schema: Mapping[str, Any]) -> str:
    root = DRAFT202012.create_resource(schema)
    registry: Registry[Any] = Registry()
    left = [(root, registry.resolver_with_root(root))]
    applied: dict[int, list[Any]] = {}
    while left:
        resource, resolver = left.pop()
        inner = resource.contents
        if not isinstance(inner, Mapping):
            continue
        for pattern in [inner.get("pattern", ""), *inner.get("patternProperties", ())]:
            re.compile(pattern)
        targets = [
            resolver.lookup(inner[name]).contents
            for name in ("$ref", "$dynamicRef")
            if name in inner
        ]
        applied[id(inner)] = targets + _in_place(inner)
        left += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]
    sizes: dict[int, int | None] = {}
    for inner in applied:
        if _size(inner, applied, sizes) > _MAX_AT_ONCE:
            return "its references lead round in a circle, or to too many places at once"
    return ""


def _in_place(schema: Mapping[str, Any]) -> list[Any]:
    """The subschemas that look at the same value as ``schema``."""
    found = [schema[name] for name in ("not", "if", "then", "else") if name in schema]
    for name in ("allOf", "anyOf", "oneOf"):
        found += schema.get(name, ())
    return found + list(schema.get("dependentSchemas", {}).values())


def _size(schema: int, applied: Mapping[int, list[Any]], sizes: dict[int, int | None]) -> int:
    """How many subschemas one value meets at ``schema``; too many where they go in a circle."""
    if schema in sizes:
        known = sizes[schema]
        return _MAX_AT_ONCE + 1 if known is None else known
    sizes[schema] = None  # being counted: a reference back to here is a circle
    total = 1 + sum(_size(id(inner), applied, sizes) for inner in applied.get(schema, ()))
    sizes[schema] = total
    return total
