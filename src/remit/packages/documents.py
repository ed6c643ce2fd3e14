"""Documents in packages: specifications, frameworks, agents, schemas and acceptance cases.

The JSON Schemas of PKG-PHASE2-SCHEMAS-001 define their form. The functions here check a file
against its schema, and what no schema can express.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter

from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.schemas import first_problem, schema_problem, shipped_schema
from remit.packages.errors import PackageError
from remit.packages.permissions import Permissions

_MAX_MESSAGE = 300  # Characters of a problem, which may quote a long value.

_T = TypeVar("_T")
_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


@dataclass(frozen=True, slots=True)
class Specification:
    """The promises of a part of an installation, and the parts that the promises need; immutable.

    Attributes:
        spec_id: ``SPEC-NAME-001``; the name of its file.
        framework_id: the framework that the specification belongs to.
        version: its version.
        title: its name for people.
        text: the promises, in words.
        contracts: ids of contracts that must be installed and usable.
        tools: ids of tools that must exist.
        schemas: paths of JSON Schemas that must be installed and valid.
        agents: ids of agents that must be installed and valid.
    """

    spec_id: str
    framework_id: str
    version: str
    title: str
    text: str
    contracts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the specification in a JSON file.

        Whether its contracts, tools, schemas and agents exist is not checked.

        Args:
            data: the file's bytes.
            path: the file's path, for its name and for errors.

        Raises:
            PackageError: ``document_invalid``: the file is not strict JSON, does not fit its
                schema, or is not named after its id.
        """
        return _build(cls, _read("specification", data, path, "spec_id"))


@dataclass(frozen=True, slots=True)
class Framework:
    """The rules for the packages of some specifications, read from a JSON file; immutable.

    Attributes:
        framework_id: ``FMWK-NAME-001``; the name of its file.
        version: its version.
        title: its name for people.
        text: the rules, in words.
        expected_specs: ids of specifications that must be installed and name this framework.
        paths: files, and folders that end with ``/``, in which its packages may own files.
        permissions: the ceilings of their permissions; an absent budget has no ceiling.
        gates: names of gates that must pass before one of its packages is installed.
        config: by dotted setting, the JSON Schema of permitted values. Other settings are not
            restricted; a setting that does not exist is a finding of the gate.
    """

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
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the framework in a JSON file.

        Whether its specifications, gates and settings exist is not checked.

        Args:
            data: the file's bytes.
            path: the file's path, for its name and for errors.

        Raises:
            PackageError: ``document_invalid``: the file is not strict JSON, does not fit its
                schema, is not named after its id, or contains an invalid schema for a setting.
        """
        value = _read("framework", data, path, "framework_id")
        for setting, schema in value.get("config", {}).items():
            if problem := schema_problem(schema):
                raise invalid_document(f"{path}, config/{setting}: {problem[:_MAX_MESSAGE]}.")
        return _build(cls, {**value, **value.pop("rules")})


@dataclass(frozen=True, slots=True)
class AgentDocument:
    """An agent as its JSON file in a package states it; immutable.

    Attributes:
        agent_id: the id of the agent; the name of its file.
        title: its name for people.
        contract_id: the contract of its answers.
        instructions: its purpose, in words for the model.
        tools: ids of the tools that it may use.
        approve: those of its tools whose every call a person must approve.
        model: ``provider/model``, a model, or a route; empty for the root's default.
        token_budget: most tokens of one work order; ``None`` for the configured budget.
        usd_budget: most US dollars of one work order, as decimal text; ``None`` likewise.
        acceptance: criteria of the quality gate.
    """

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
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the agent in a JSON file.

        Whether its contract, tools and model exist is not checked.

        Args:
            data: the file's bytes.
            path: the file's path, for its name and for errors.

        Raises:
            PackageError: ``document_invalid``: the file is not strict JSON, does not fit its
                schema, is not named after its id, or ``approve`` names a tool that the agent does
                not have.
        """
        value = _read("agent", data, path, "agent_id")
        if unknown := sorted(set(value.get("approve", ())) - set(value.get("tools", ()))):
            raise invalid_document(
                f"{path}: {unknown[0]!r} is in approve, but not in the agent's tools.",
                "Add the tool to tools, or omit it from approve.",
            )
        return _build(cls, value)


def read_cases(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the acceptance cases in a JSON file, in their order; none is run.

    Each case has a ``name``, unique in the file, a ``kind`` (``contract``, ``schema`` or
    ``price``), and the keys of that kind.

    Args:
        data: the file's bytes.
        path: the file's path, for errors.

    Raises:
        PackageError: ``document_invalid``: the file is not strict JSON, does not fit its schema, or
            two cases have the same name.
    """
    cases: list[dict[str, Any]] = _read("acceptance", data, path)["cases"]
    names = [case["name"] for case in cases]
    if twice := [name for name in names if names.count(name) > 1]:
        raise invalid_document(f"{path} has two cases {twice[0]!r}.", "Rename one.")
    return cases


def read_schema(data: bytes, path: str) -> Mapping[str, Any]:
    """Return the JSON Schema (2020-12) in a file.

    Args:
        data: the file's bytes.
        path: the file's path, for errors.

    Raises:
        PackageError: ``document_invalid``: the file is not strict JSON or not an object, or the
            object is not a JSON Schema that Remit can use.
    """
    value = _json(data, path)
    if not isinstance(value, dict):
        raise invalid_document(f"{path} is not a JSON object.")
    if problem := schema_problem(value):
        raise invalid_document(f"{path} is {problem[:_MAX_MESSAGE]}.")
    return value


def invalid_document(message: str, next_step: str = "") -> PackageError:
    """Return (not raise) the error of a document that cannot be used (``document_invalid``).

    Args:
        message: the fault, as a sentence with the file's name.
        next_step: advice for the author; empty for none.
    """
    return PackageError("document_invalid", message, next_step=next_step)


def _read(kind: str, data: bytes, path: str, id_key: str = "") -> Any:
    """Return the JSON value of a document that fits the schema of its kind.

    ``id_key`` is the key of the id after which the file is named; empty if there is none.
    """
    value = _json(data, path)
    if problem := first_problem(shipped_schema(kind), value):
        raise invalid_document(
            f"{path} is not a valid {kind}, at {problem[:_MAX_MESSAGE]}.",
            f"HOT/schemas/{kind}.schema.json defines its form.",
        )
    if id_key and path.rpartition("/")[2] != f"{value[id_key]}.json":
        raise invalid_document(
            f"{path} contains {value[id_key]}.", f"Rename the file to {value[id_key]}.json."
        )
    return value


def _build(kind: type[_T], value: Any) -> _T:
    built: _T = _adapter(kind).validate_python(value)
    return built


def _json(data: bytes, path: str) -> Any:
    try:
        return load_unique(data)
    except JsonTextError as error:
        raise invalid_document(f"{path}: {error.message}", "Correct the file.") from error
