"""The documents that packages bring: specifications, frameworks, agents, acceptance cases.

Their form is stated by the JSON Schemas in PKG-PHASE2-SCHEMAS-001; here they are read (SPEC 10).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from remit.kernel.schemas import first_problem, schema_problem, shipped_schema
from remit.packages.errors import PackageError

__all__ = [
    "Acceptance",
    "AcceptanceCase",
    "AgentDocument",
    "Ceilings",
    "DocumentError",
    "Framework",
    "Specification",
    "read_schema",
]

_MAX_SAID = 300  # characters of a problem; the rest of a quoted value helps nobody


class DocumentError(PackageError):
    """A document is not what its kind has to be.

    Attributes:
        code: ``document_invalid``.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__("document_invalid", message, next_step=next_step)


@dataclass(frozen=True, slots=True)
class Specification:
    """What a part of an installation promises, and what has to be there for it.

    Attributes:
        contracts: ids of contracts that have to be installed and usable.
        tools: ids of tools that have to exist.
        schemas: paths of JSON Schemas that have to be installed and valid.
        agents: ids of agents that have to be installed and valid.
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
        """The specification in a file of the classification ``spec``.

        Args:
            data: the file's bytes.
            path: where it lies, for its name and for errors.

        Raises:
            DocumentError: it is not one, or has another id than its file.
        """
        value = _read(data, path, "specification")
        _named(value["spec_id"], path)
        return cls(**_tuples(value))


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that a package of a framework may be permitted.

    Attributes:
        tools: names and patterns.
        models: ``provider/model``, or patterns.
        budgets: ``token_budget`` (tokens) and ``usd_budget`` (decimal text, US dollars); one that
            is absent has no ceiling.
        paths: files, and folders that end with ``/``.
    """

    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    budgets: Mapping[str, int | str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Framework:
    """What the packages of some specifications may be and do.

    Attributes:
        expected_specs: ids of specifications that have to be there and name this framework.
        paths: where files of its packages may lie: files, and folders that end with ``/``.
        permissions: the most they may be permitted.
        gates: names of gates that have to pass with a package before it is installed.
        config: by dotted setting, the JSON Schema that its value has to satisfy.
    """

    framework_id: str
    version: str
    title: str
    text: str
    expected_specs: tuple[str, ...]
    paths: tuple[str, ...] = ()
    permissions: Ceilings = field(default_factory=Ceilings)
    gates: tuple[str, ...] = ()
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """The framework in a file of the classification ``framework``; see
        :meth:`Specification.parse`.

        Raises:
            DocumentError: it is not one, has another id than its file, or states a ceiling that is
                no JSON Schema.
        """
        value = _read(data, path, "framework")
        _named(value["framework_id"], path)
        for setting, schema in value.get("config", {}).items():
            if problem := schema_problem(schema):
                raise DocumentError(f"{path}, config/{setting}: {_brief(problem)}.")
        rules = value.pop("rules")
        return cls(
            **{**_tuples(value), "config": value.get("config", {})},
            paths=tuple(rules.get("paths", ())),
            permissions=Ceilings(**_tuples(rules.get("permissions", {}))),
            gates=tuple(rules.get("gates", ())),
        )


@dataclass(frozen=True, slots=True)
class AgentDocument:
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
        """The agent in a file of the classification ``agent``; see :meth:`Specification.parse`.

        Raises:
            DocumentError: it is not one, has another id than its file, or has a tool approved
                that is none of its own.
        """
        value = _read(data, path, "agent")
        _named(value["agent_id"], path)
        if unknown := sorted(set(value.get("approve", ())) - set(value.get("tools", ()))):
            raise DocumentError(
                f"{path}: {unknown[0]!r} is to be approved, but is none of the agent's tools.",
                next_step="Name it under tools as well, or take it out of approve.",
            )
        return cls(**_tuples(value))


@dataclass(frozen=True, slots=True)
class AcceptanceCase:
    """One thing that has to hold, shown without a model.

    Attributes:
        kind: ``contract``, ``schema`` or ``price``.
        told: the rest of the case, by its keys.
    """

    name: str
    kind: str
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance cases of a package."""

    cases: tuple[AcceptanceCase, ...]

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """The cases in a file of the classification ``acceptance``; see
        :meth:`Specification.parse`.

        Raises:
            DocumentError: they are not cases, or two have one name.
        """
        value = _read(data, path, "acceptance")
        names = [case["name"] for case in value["cases"]]
        for name in names:
            if names.count(name) > 1:
                raise DocumentError(f"{path} has two cases {name!r}.", next_step="Rename one.")
        return cls(
            tuple(
                AcceptanceCase(
                    case["name"],
                    case["kind"],
                    {key: item for key, item in case.items() if key not in ("name", "kind")},
                )
                for case in value["cases"]
            )
        )


def read_schema(data: bytes, path: str) -> Mapping[str, Any]:
    """The JSON Schema (2020-12) in a file of the classification ``schema``.

    Raises:
        DocumentError: it is not a JSON Schema.
    """
    value = _json(data, path)
    if not isinstance(value, dict):
        raise DocumentError(f"{path} is not a JSON object.")
    if problem := schema_problem(value):
        raise DocumentError(f"{path} is {_brief(problem)}.")
    return value


def _read(data: bytes, path: str, kind: str) -> dict[str, Any]:
    value = _json(data, path)
    if problem := first_problem(shipped_schema(kind), value):
        raise DocumentError(
            f"{path} is not a valid {kind}, at {_brief(problem)}.",
            next_step=f"HOT/schemas/{kind}.schema.json says what it has to be.",
        )
    found: dict[str, Any] = value
    return found


def _json(data: bytes, path: str) -> Any:
    """A JSON value without a key twice in one object and without NaN."""
    try:
        text = data.decode()
        orjson.loads(text)  # strict where the standard library is not
        return json.loads(text, object_pairs_hook=functools.partial(_object, path))
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not UTF-8.", next_step="Save it as plain UTF-8.") from error
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{path} is not JSON: {error}.") from error
    except RecursionError as error:
        raise DocumentError(f"{path} is nested too deeply.") from error


def _object(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f"{path} has the key {twice!r} twice in one object.")
    return value


def _named(document_id: str, path: str) -> None:
    name = path.rpartition("/")[2]
    if name != f"{document_id}.json":
        raise DocumentError(
            f"{path} holds {document_id}.", next_step=f"Call the file {document_id}.json."
        )


def _tuples(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}


def _brief(problem: str) -> str:
    return problem if len(problem) <= _MAX_SAID else f"{problem[:_MAX_SAID]}…"
