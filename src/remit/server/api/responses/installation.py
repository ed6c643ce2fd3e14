"""The forms of health, packages and gates."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from remit.operations.results import listing


class Breaker(BaseModel):
    """The circuit breaker of one provider and model, shared by all processes of the root.

    `state` is `open` if calls of `model_id` at `provider_id` are refused, and `half_open` if a
    trial call is allowed.
    """

    provider_id: str
    model_id: str
    state: Literal["closed", "open", "half_open"]


class Health(BaseModel):
    """The state of this process.

    `version` is Remit's; `in_flight` and `breakers` are of the root, `refused` of this process.
    """

    version: str
    in_flight: int = Field(description="Number of model calls in flight, of all processes.")
    refused: int = Field(
        description="Number of requests without a valid key since this process started."
    )
    breakers: list[Breaker] = Field(
        description="Circuit breakers of the root; a breaker that is not listed is closed."
    )


class PermissionsShape(BaseModel):
    """Permissions of a package's agents; `*` in a name matches any text.

    `tools`, `models` and `paths` are lists of names; `budgets` is the limit keyed by kind.
    """

    tools: list[str]
    models: list[str]
    paths: list[str]
    budgets: dict[str, int | str]


class PackageShape(BaseModel):
    """An installed package.

    `package_id` and `version` identify the package; `plane_id`, `spec_id` and `framework_id` place
    it; `files` counts its files; `operation`, `installed_at`, `entry_id`, `source`,
    `archive_sha256`, `signed` and `approved_by` tell how it was installed.
    """

    package_id: str
    version: str
    title: str
    plane_id: str
    spec_id: str
    framework_id: str
    permissions: PermissionsShape
    files: int
    operation: Literal["install", "upgrade", "rollback"]
    installed_at: str
    entry_id: str
    source: str
    archive_sha256: str
    signed: bool
    approved_by: str


PackagePage = listing("PackagePage", "Packages, sorted by id.", packages=PackageShape)


class GateState(BaseModel):
    """The latest result of a gate; `passed` is null if the gate was never checked.

    `gate` names it; `message` explains the result; `checked_at` and `entry_id` tell when it was
    recorded.
    """

    gate: str
    passed: bool | None
    message: str
    checked_at: str | None
    entry_id: str | None


GateStates = listing("GateStates", "The gates in their order.", gates=GateState, base=BaseModel)


class GateShape(BaseModel):
    """The result of a gate.

    `passed` is the result of `gate`, `message` a sentence, and `errors` lists the faults; a gate
    may add further members.
    """

    model_config = ConfigDict(extra="allow")

    gate: str
    passed: bool
    message: str
    errors: list[str]


class GateReportShape(BaseModel):
    """The results of the checked gates.

    `passed` is true if all `gates` passed.
    """

    passed: bool
    gates: list[GateShape]
