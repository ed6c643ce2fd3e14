"""G3: settings and permissions under their ceilings; nothing in use that nobody permits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from remit.kernel.errors import RemitError
from remit.kernel.schemas import first_problem
from remit.kernel.settings import Settings
from remit.packages.checks import Checked, Finding, check_ceilings, check_dependencies, read_shapes
from remit.packages.gates.context import GateContext
from remit.packages.gates.marks import last_mark
from remit.packages.gates.uses import Permitted, Use, configured_uses, recorded_uses

__all__ = ["check_constraints"]

_PERMIT = "Install a package that permits it, or take it out of use."


def check_constraints(context: GateContext, *, full: bool) -> Checked:
    """Gate G3.

    Args:
        context: of the root.
        full: read the whole ledger, however great.
    """
    registry, found = context.registry, context.resolved
    findings: list[Finding] = []
    if not registry.packages:
        findings.append(Finding("No package is installed.", "Run `remit init`."))
    if context.settings_error is not None:
        error = context.settings_error
        problem = f"The settings cannot be used: {error.message}"
        findings.append(Finding(problem, error.next_step or "Edit remit.toml.", path="remit.toml"))
    ceilings = check_ceilings(registry, found)
    dependencies = check_dependencies(registry)
    findings += [*ceilings.findings, *dependencies.findings]
    settings = 0
    for framework_id, framework in found.frameworks.items():
        for name, schema in framework.config.items():
            settings += 1
            findings += _setting(context.settings, framework_id, name, schema)
    findings += _files_named(context)
    permitted = Permitted(one.manifest.permissions for one in registry.packages.values())
    findings += _configured(context, permitted)
    entries = context.ledger.count()
    most = context.full_entries
    mark = None if full else last_mark(context.ledger, "G3", entries, full_entries=most)
    uses, recorded = _recorded(context, permitted, mark.verified_entries if mark else 0, entries)
    message = (
        f"{len(registry.packages)} packages within their frameworks' ceilings, {settings} ceilings "
        f"of settings kept, {dependencies.counts['dependencies']} dependencies met; "
        f"{uses} tools and models in use on record, all permitted"
    )
    if mark is not None:
        message += (
            f"; uses in the {mark.verified_entries} entries before were verified at "
            f"{mark.timestamp} ({mark.entry_id}; --full reads all)"
        )
    reached = {"verified_entries": entries}
    return Checked([*findings, *recorded], message=message, mark=reached)


def _files_named(context: GateContext) -> Iterator[Finding]:
    """Rules and prices shape agents: the settings name only files that packages brought."""
    here = context.root.resolve()
    named = {
        "routing.rules": context.settings.routing.rules,
        "budget.prices": context.settings.budget.prices,
    }
    for name, value in named.items():
        file = (here / value).resolve()
        path = file.relative_to(here).as_posix() if file.is_relative_to(here) else ""
        if value and path not in context.registry.owners:
            problem = f"The setting {name} names {value}, which no package brought."
            fix = "Bring it in a package of FMWK-POLICY-001, or take the setting out."
            yield Finding(problem, fix, path="remit.toml")


def _setting(
    settings: Settings, framework_id: str, name: str, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    known, value = _value(settings, name.split("."))
    if not known:
        problem = f"{framework_id} has a ceiling for the setting {name}, which does not exist."
        yield Finding(problem, "Correct its name in a new version of the framework.")
    elif value is not None and (problem := first_problem(schema, value)):
        problem = f"The setting {name} is above what {framework_id} lets it be: {problem}."
        yield Finding(problem, "Change it in remit.toml, or in the environment.", path="remit.toml")


def _value(settings: Any, parts: list[str]) -> tuple[bool, Any]:
    """Whether a setting exists, and its value; nothing for what a user may name and did not."""
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
    elif isinstance(value, SecretStr):
        value = str(value)
    return True, value


def _configured(context: GateContext, permitted: Permitted) -> Iterator[Finding]:
    model: tuple[str, str] | None = None
    try:
        model = context.model()
    except RemitError as error:
        problem = f"Which model answers by default is not known: {error.message}"
        yield Finding(problem, error.next_step or "Set [model] default in remit.toml.")
    shapes = read_shapes(context.registry, context.disk)
    for where, use in configured_uses(context.settings, model, shapes):
        if not permitted.allows(use):
            yield Finding(f"{where} uses {use.shown}, which no package permits.", _PERMIT)


def _recorded(
    context: GateContext, permitted: Permitted, first: int, entries: int
) -> tuple[int, list[Finding]]:
    seen: set[Use] = set()
    against: dict[Use, tuple[str, int]] = {}
    for entry, use, allowed in recorded_uses(context.ledger, first, entries):
        seen.add(use)
        if not allowed and not permitted.allows(use):
            first_id, times = against.get(use, (entry.id, 0))
            against[use] = (first_id, times + 1)
    return len(seen), [
        Finding(
            f"T{use.shown[1:]} was used (entries: {times}, the first {first_id}), and no "
            "package permits it, nor did one then.",
            _PERMIT,
            entry_id=first_id,
        )
        for use, (first_id, times) in against.items()
    ]
