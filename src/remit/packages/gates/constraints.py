"""G3: settings and permissions under their ceilings; nothing in use that nobody permits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from remit.kernel.errors import RemitError
from remit.kernel.schemas import first_problem
from remit.packages.checks import Finding, check_ceilings, check_dependencies, check_installed
from remit.packages.gates.context import GateContext
from remit.packages.gates.report import Checked
from remit.packages.gates.uses import Permitted, Use, configured_uses, recorded_uses

__all__ = ["check_constraints"]

_PERMIT = "Install a package that permits it, or take it out of use."


def check_constraints(context: GateContext, *, full: bool) -> Checked:
    """Gate G3.

    Args:
        context: of the root.
        full: read the whole ledger, however great.
    """
    view, packages = context.packages, context.registry.packages
    permitted = Permitted(package.manifest.permissions for package in packages.values())
    entries = context.ledger.count()
    mark = context.mark("G3", entries, full=full)
    used: Counter[Use] = Counter()
    forbidden: dict[Use, list[str]] = {}
    for entry, use, allowed in recorded_uses(context.ledger, mark.verified_entries, entries):
        used[use] += 1
        if not allowed and not permitted.allows(use):
            forbidden.setdefault(use, []).append(entry.id)
    findings = [
        *check_installed(context.registry),
        *check_ceilings(view),
        *check_dependencies(context.registry),
        *_settings(context),
        *_configured(context, permitted),
    ]
    for use, ids in forbidden.items():
        problem = (
            f"T{use.shown[1:]} was used (entries: {len(ids)}, the first {ids[0]}), and no package "
            "permits it, nor did one then."
        )
        findings.append(Finding(problem, _PERMIT))
    ceilings = sum(len(framework.config) for framework in view.documents.frameworks.values())
    needed = sum(len(package.manifest.dependencies) for package in packages.values())
    message = (
        f"{len(packages)} packages within their frameworks' ceilings, {ceilings} ceilings of "
        f"settings kept, {needed} dependencies met; {len(used)} tools and models in use on "
        "record, all permitted"
    )
    if mark.verified:
        message += f"; uses in the {mark.verified_entries} entries before were {mark.verified}"
    return Checked(findings, message, {"verified_entries": entries})


def _settings(context: GateContext) -> Iterator[Finding]:
    settings = context.settings
    if (error := context.settings_error) is not None:
        problem = f"The settings cannot be used: {error.message}"
        yield Finding(problem, error.next_step or "Edit remit.toml.")
    for framework_id, framework in context.packages.documents.frameworks.items():
        for name, schema in framework.config.items():
            known, value = _value(settings, name.split("."))
            if not known:
                problem = f"{framework_id} has a ceiling for the setting {name}, which does not "
                yield Finding(f"{problem}exist.", "Correct it in a new version of the framework.")
            elif value is not None and (wrong := first_problem(schema, value)):
                problem = f"The setting {name} is above what {framework_id} lets it be: {wrong}."
                yield Finding(problem, "Change it in remit.toml, or in the environment.")
    # Rules and prices shape agents: the settings name only files that packages brought.
    named = {"routing.rules": settings.routing.rules, "budget.prices": settings.budget.prices}
    here, owners = context.root.resolve(), context.registry.owners
    for name, given in named.items():
        file = (here / given).resolve()
        if given and not (
            file.is_relative_to(here) and file.relative_to(here).as_posix() in owners
        ):
            problem = f"The setting {name} names {given}, which no package brought."
            fix = "Bring it in a package of FMWK-POLICY-001, or take the setting out."
            yield Finding(problem, fix)


def _value(settings: Any, parts: list[str]) -> tuple[bool, Any]:
    """Whether a setting exists, and its value; ``None`` for what a user may name and did not."""
    value = settings
    for number, part in enumerate(parts):
        if isinstance(value, BaseModel):
            if part not in type(value).model_fields:
                return False, None
            value = getattr(value, part)
        elif isinstance(value, Mapping):
            # Names of a user's choosing may hold dots: the longest that is there counts.
            for end in range(len(parts), number, -1):
                key = ".".join(parts[number:end])
                if key in value:
                    return _value(value[key], parts[end:])
            return True, None
        else:
            return False, None
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return True, str(value) if isinstance(value, SecretStr) else value


def _configured(context: GateContext, permitted: Permitted) -> Iterator[Finding]:
    model: tuple[str, str] | None = None
    try:
        model = context.model()
    except RemitError as error:
        problem = f"Which model answers by default is not known: {error.message}"
        yield Finding(problem, error.next_step or "Set [model] default in remit.toml.")
    for where, use in configured_uses(context.settings, model, context.packages):
        if not permitted.allows(use):
            yield Finding(f"{where} uses {use.shown}, which no package permits.", _PERMIT)
