"""The documents that packages bring: specifications, frameworks, agents, acceptance cases.

Their form is stated by the JSON Schemas in PKG-PHASE2-SCHEMAS-001; here they are read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter
from typing_extensions import override

from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.schemas import first_problem, schema_problem, shipped_schema
from remit.packages.errors import PackageError
from remit.packages.permissions import Permissions

__all__ = [
    "Acceptance",
    "AcceptanceCase",
    "AgentDocument",
    "DocumentError",
    "Framework",
    "Specification",
    "read_schema",
]

_MAX_MESSAGE = 300  # characters of a problem, which may quote a long value


class DocumentError(PackageError):
    """A document is not what its kind has to be; its code is ``document_invalid``."""

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__("document_invalid", message, next_step=next_step)


_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


class _Document:
    """A document whose schema has the name of its kind."""

    kind: ClassVar[str]
    id_key: ClassVar[str] = ""
    """Key of the id that the file is named after."""

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """The document in a file.

        Args:
            data: the file's bytes.
            path: where it is, for its name and for errors.

        Raises:
            DocumentError: it is not a document of this kind, or has another id than its file.
        """
        value = _json(data, path)
        if problem := first_problem(shipped_schema(cls.kind), value):
            raise DocumentError(
                f"{path} is not a valid {cls.kind}, at {problem[:_MAX_MESSAGE]}.",
                next_step=f"HOT/schemas/{cls.kind}.schema.json says what it has to be.",
            )
        if cls.id_key and path.rpartition("/")[2] != f"{value[cls.id_key]}.json":
            raise DocumentError(
                f"{path} holds {value[cls.id_key]}.",
                next_step=f"Call the file {value[cls.id_key]}.json.",
            )
        found: Self = _adapter(cls).validate_python(cls._values(value, path))
        return found

    @classmethod
    def _values(cls, value: dict[str, Any], path: str) -> dict[str, Any]:
        """Return the fields of a value that fits its schema; refuse what no schema can say."""
        return value


@dataclass(frozen=True, slots=True)
class Specification(_Document):
    """The promises of a part of an installation, and the parts that they need.

    Attributes:
        contracts: ids of contracts that have to be installed and usable.
        tools: ids of tools that have to exist.
        schemas: paths of JSON Schemas that have to be installed and valid.
        agents: ids of agents that have to be installed and valid.
    """

    kind = "specification"
    id_key = "spec_id"

    spec_id: str
    framework_id: str
    version: str
    title: str
    text: str
    contracts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Framework(_Document):
    """The rules for the packages of some specifications.

    Attributes:
        expected_specs: ids of specifications that have to be there and name this framework.
        paths: where files of its packages may be: files, and folders that end with ``/``.
        permissions: the most they may be permitted; a budget that is absent has no ceiling.
        gates: names of gates that have to pass with a package before it is installed.
        config: by dotted setting, the JSON Schema that its value has to satisfy.
    """

    kind = "framework"
    id_key = "framework_id"

    framework_id: str
    version: str
    title: str
    text: str
    expected_specs: tuple[str, ...]
    paths: tuple[str, ...] = ()
    permissions: Permissions = field(default_factory=Permissions)
    gates: tuple[str, ...] = ()
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    @override
    def _values(cls, value: dict[str, Any], path: str) -> dict[str, Any]:
        for setting, schema in value.get("config", {}).items():
            if problem := schema_problem(schema):
                raise DocumentError(f"{path}, config/{setting}: {problem[:_MAX_MESSAGE]}.")
        rules = value.pop("rules")
        return {**value, **rules}


@dataclass(frozen=True, slots=True)
class AgentDocument(_Document):
    """An agent that a package brings.

    Attributes:
        contract_id: under which it answers.
        instructions: what it is for.
        tools: ids of those it may use.
        approve: those of its tools that a person releases each time.
        model: ``provider/model``, a model, or a route; empty: the root's default.
        token_budget: most tokens of one work order; ``None``: as configured.
        usd_budget: most US dollars of one work order, decimal text; ``None``: as configured.
        acceptance: criteria of the quality gate.
    """

    kind = "agent"
    id_key = "agent_id"

    agent_id: str
    title: str
    contract_id: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    model: str = ""
    token_budget: int | None = None
    usd_budget: str | None = None
    acceptance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    @override
    def _values(cls, value: dict[str, Any], path: str) -> dict[str, Any]:
        if unknown := sorted(set(value.get("approve", ())) - set(value.get("tools", ()))):
            raise DocumentError(
                f"{path}: {unknown[0]!r} is to be approved, but is none of the agent's tools.",
                next_step="Name it under tools as well, or take it out of approve.",
            )
        return value


@dataclass(frozen=True, slots=True)
class AcceptanceCase:
    """An acceptance case, which needs no model.

    Attributes:
        kind: ``contract``, ``schema`` or ``price``.
        fields: the rest of the case, by its keys.
    """

    name: str
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Acceptance(_Document):
    """The acceptance cases of a package."""

    kind = "acceptance"

    cases: tuple[AcceptanceCase, ...]

    @classmethod
    @override
    def _values(cls, value: dict[str, Any], path: str) -> dict[str, Any]:
        names = [case["name"] for case in value["cases"]]
        if twice := [name for name in names if names.count(name) > 1]:
            raise DocumentError(f"{path} has two cases {twice[0]!r}.", next_step="Rename one.")
        cases = [
            {"name": case.pop("name"), "kind": case.pop("kind"), "fields": case}
            for case in value["cases"]
        ]
        return {"cases": cases}


def read_schema(data: bytes, path: str) -> Mapping[str, Any]:
    """The JSON Schema (2020-12) in a file of the classification ``schema``.

    Raises:
        DocumentError: it is not a JSON Schema.
    """
    value = _json(data, path)
    if not isinstance(value, dict):
        raise DocumentError(f"{path} is not a JSON object.")
    if problem := schema_problem(value):
        raise DocumentError(f"{path} is {problem[:_MAX_MESSAGE]}.")
    return value


def _json(data: bytes, path: str) -> Any:
    try:
        return load_unique(data)
    except JsonTextError as error:
        raise DocumentError(f"{path}: {error.message}", next_step="Correct the file.") from error
