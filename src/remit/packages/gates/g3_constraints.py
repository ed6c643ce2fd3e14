"""Gate G3: ceilings of settings and permissions, and permitted uses of tools and models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretStr

from remit.gateway import owner_by_prefix, split_name
from remit.kernel.errors import RemitError
from remit.kernel.schemas import first_problem
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from remit.packages.checks import Finding, check_ceilings, check_dependencies
from remit.packages.gates.context import GateContext, GateRun, in_order
from remit.packages.gates.unpackaged_parts import SessionStatements, check_shapes
from remit.packages.operator_prices import check_prices, recorded_prices
from remit.packages.permissions import Permissions
from remit.packages.registry import InstalledPackage

_PERMIT = (
    "Install a package that permits it (`remit package new`, then list it under permissions), or "
    "stop using it."
)
_USES = ("TOOL_INTENT", "TOOL_CALL", "EXCHANGE")


class Use(NamedTuple):
    """A use of a tool or a model, recorded or configured; immutable.

    Attributes:
        kind: ``tool`` or ``model``.
        name: the tool's id, or the model's id at its provider.
        provider_id: the model's provider; empty if unknown or for a tool.
        requested: the model's name in the request; empty if there is none or for a tool.
    """

    kind: str
    name: str
    provider_id: str = ""
    requested: str = ""

    @property
    def shown(self) -> str:
        """The use for people, such as ``the model openai/gpt-4o-mini``."""
        name = f"{self.provider_id}/{self.name}" if self.provider_id else self.name
        return f"the {self.kind} {name}"


def _permitted(permissions: Iterable[Permissions]) -> Callable[[Use], bool]:
    """Return a check of whether some packages together permit a use."""
    granted = Permissions.joined(permissions)

    @functools.cache
    def permitted(use: Use) -> bool:
        if use.kind == "tool":
            return granted.allows_tool(use.name)
        # Providers report the exact version: gpt-4o answers as gpt-4o-2024-08-06.
        exact = bool(use.requested) and use.name.startswith(use.requested)
        names = (use.name, use.requested) if exact else (use.name,)
        return any(granted.allows_model(use.provider_id, name) for name in names)

    return permitted


def check_constraints(context: GateContext) -> GateRun:
    """Check the present packages and settings, and the recorded uses of tools and models (gate G3).

    Yields the findings of :func:`check_ceilings`, :func:`check_dependencies`,
    :func:`check_settings` and :func:`check_shapes`; then one for each contract of an exchange that
    no package contained, and one for each tool or model whose recorded use no package permits now
    or permitted then. Both are no fault if the session states the part as its agent's own. Uses
    before the mark of the last pass are not read again if the ledger has more than
    ``gates.full_entries`` entries, unless all are requested. Nothing is written.

    Args:
        context: the open root.

    Returns:
        One line with the checked numbers and the waivers, and the mark of the gate.

    Raises:
        PackageError: ``registry_damaged``: an entry does not describe a package.
        LedgerError: the ledger cannot be read.
        OSError: the root cannot be opened.
    """
    view, packages = context.packages, context.registry.packages
    yield from check_ceilings(view)
    yield from check_dependencies(context.registry)
    yield from check_settings(context)
    permitted = _permitted(package.manifest.permissions for package in packages.values())
    entries = context.entries
    verified_entries, _, verified = context.mark("G3")
    waived = yield from check_shapes(context, verified_entries)
    stated = SessionStatements(context.ledger)
    contracts: dict[str, str] = {}
    # By what is shown, the first entry that was not permitted, and the number of such entries.
    used: dict[str, tuple[str, int]] = {}
    for entry, use, allowed in recorded_uses(context.ledger, verified_entries, entries):
        first, times = used.setdefault(use.shown, ("", 0))
        context.progress("G3", entry.seq, entries)
        if not (allowed or permitted(use) or _is_stated(stated, entry, use)):
            used[use.shown] = first or entry.id, times + 1
        if entry.event_type == "EXCHANGE" and (contract_id := stated.contract(entry)):
            contracts.setdefault(contract_id, entry.id)
    for contract_id, first in contracts.items():
        problem = f"No package contained the contract {contract_id}, which governed {first}, "
        yield Finding(f"{problem}and its session does not name it.", _PERMIT)
    for shown, (first, times) in used.items():
        if times:
            problem = (
                f"T{shown[1:]} was used (first in {first}; entries: {times}), but no package "
                "permits it now or permitted it then."
            )
            yield Finding(problem, _PERMIT)
    ceilings = sum(len(framework.config) for framework in view.frameworks.values())
    needed = sum(len(package.manifest.dependencies) for package in packages.values())
    message = (
        f"{len(packages)} packages within their frameworks' ceilings, settings within {ceilings} "
        f"ceilings, {needed} dependencies met; {len(used)} tools and models used, all permitted"
    )
    if waived := [*waived, *(f"{what} ({entry_id})" for what, entry_id in stated.used.items())]:
        message += f"; waived, because only the ledger records them: {', '.join(waived)}"
    if (prices := recorded_prices(context.ledger)).sha256:
        message += f"; the operator's own prices are those of {prices.entry_id}"
    if verified:
        message += f"; uses in the first {verified_entries} entries were {verified}"
    return message, {"verified_entries": entries}


def _is_stated(stated: SessionStatements, entry: LedgerEntry, use: Use) -> bool:
    if use.kind == "tool":
        return stated.tool(entry, use.name)
    return stated.provider(entry, use.provider_id)


def unpermitted_models(context: GateContext) -> list[str]:
    """Return the configured models that no installed package permits, as ``provider/model``.

    Models of settings (default, routing, fallbacks) and of contracts count, each once, in that
    order; models that agents name do not. A model whose provider is unknown begins with the slash.

    Args:
        context: the root with its settings.

    Raises:
        RemitError: the default model cannot be determined.
        PackageError: ``registry_damaged``: an entry does not describe a package.
        LedgerError: the ledger cannot be read.
        OSError: the root cannot be opened.
    """
    permitted = _permitted(one.manifest.permissions for one in context.registry.packages.values())
    uses = (use for _, use in _configured_uses(context, context.model()) if use.kind == "model")
    return list(dict.fromkeys(f"{u.provider_id}/{u.name}" for u in uses if not permitted(u)))


def check_settings(context: GateContext, coming: Collection[str] = ()) -> Iterator[Finding]:
    """Yield faults of the settings (gate G3).

    Faults are settings that cannot be loaded or exceed a ceiling, a ceiling for a setting that does
    not exist, an unknown default model, routing rules that no package contains, the operator's
    prices if they are not as recorded, and tools and models of settings, agents and contracts that
    no package permits. Only the present settings are read, no recorded use.

    Args:
        context: the root with its settings.
        coming: paths of files that a package is about to install; rules and prices among them count
            as those of a package.

    Raises:
        PackageError: ``registry_damaged``: an entry does not describe a package.
        LedgerError: the ledger cannot be read.
        OSError: the root cannot be opened.
    """
    yield from _ceilings(context, coming)
    known = context.registry.packages.values()
    permitted = _permitted([one.manifest.permissions for one in known])
    model = "", ""
    try:
        model = context.model()
    except RemitError as error:
        problem = f"The default model cannot be determined: {error.message}"
        yield Finding(problem, error.next_step or "Set [model] default in remit.toml.")
    for where, use in _configured_uses(context, model):
        if not permitted(use):
            yield Finding(f"{where} uses {use.shown}, which no package permits.", _PERMIT)


def _ceilings(context: GateContext, coming: Collection[str]) -> Iterator[Finding]:
    settings = context.settings
    if (error := context.settings_error) is not None:
        problem = f"The settings cannot be used: {error.message}"
        yield Finding(problem, error.next_step or "Edit remit.toml.")
    for framework_id, framework in context.packages.frameworks.items():
        for name, schema in framework.config.items():
            known, value = _value(settings, name.split("."))
            if not known:
                problem = f"{framework_id} has a ceiling for the setting {name}, which does not "
                yield Finding(
                    f"{problem}exist.", "Correct the setting in a new version of the framework."
                )
            elif value is not None and (wrong := first_problem(schema, value)):
                problem = f"The setting {name} exceeds the ceiling of {framework_id}: {wrong}."
                yield Finding(problem, "Change the setting in remit.toml or in the environment.")
    # Rules and prices shape agents, so they must come from packages or be recorded.
    here, owners = context.root.resolve(), {*context.registry.owners, *coming}

    def brought(given: str) -> bool:
        file = (here / given).resolve()
        return file.is_relative_to(here) and file.relative_to(here).as_posix() in owners

    if (rules := settings.routing.rules) and not brought(rules):
        problem = f"The setting routing.rules names {rules}, which no package contains."
        fix = "Add the file to a package of FMWK-POLICY-001, or unset the setting."
        yield Finding(problem, fix)
    if not (prices := settings.budget.prices) or not brought(prices):
        yield from check_prices(context.root, context.ledger, prices)


def _value(settings: Any, parts: list[str]) -> tuple[bool, Any]:
    """Return True if a setting exists, with its value.

    The value is ``None`` for a key that a table does not contain.
    """
    value = settings
    for number, part in enumerate(parts):
        if isinstance(value, BaseModel):
            if part not in type(value).model_fields:
                return False, None
            value = getattr(value, part)
        elif isinstance(value, Mapping):
            # Keys that users choose may contain dots, so the longest existing key is taken.
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


def _configured_uses(context: GateContext, model: tuple[str, str]) -> Iterator[tuple[str, Use]]:
    """Yield the place and the use of each tool and model that settings, agents or contracts name.

    ``model`` is the provider and model of calls that name none; empty if unknown.
    """
    settings, found = context.settings, context.packages
    for tool_id in settings.chat.tools_allowed:
        yield "chat.tools_allowed", Use("tool", tool_id)
    for agent, package_id in found.agents.values():
        for tool_id in agent.tools:
            yield f"the agent {agent.agent_id} of {package_id}", Use("tool", tool_id)
    if model[1]:
        yield "model.default", Use("model", model[1], model[0])
    for name in settings.routing.models:
        yield f"routing.models.{name}", _named(settings, name, model)
    for name, others in settings.gateway.fallbacks.items():
        for other in others:
            yield f"gateway.fallbacks.{name}", _named(settings, other, model)
    for contract, package_id in found.every_contract():
        provider_id, model_id = contract.boundary.provider_id, contract.boundary.model_id
        if model_id:
            where = f"the contract {contract.contract_id} of {package_id}"
            use = Use("model", model_id, provider_id) if provider_id else None
            yield where, use or _named(settings, model_id, model)


def recorded_uses(
    ledger: LedgerClient, first: int, entries: int
) -> Iterator[tuple[LedgerEntry, Use, bool]]:
    """Yield recorded uses of tools and models with their entry, in the order of the ledger.

    Refused tools and failed calls are no uses; the intent and the call of a tool are two. Uses
    before the first installation of a package count as permitted. Installations by writers without
    permission are ignored. Entries of uses have no content.

    Args:
        ledger: the root's ledger.
        first: the sequence number of the first entry whose use is yielded; installations are read
            from the beginning.
        entries: the number of entries in the ledger to consider.

    Yields:
        The entry, the use, and True if the packages installed then permitted the use.

    Raises:
        PackageError: ``registry_damaged``: an ``INSTALLED`` entry does not describe a package.
        LedgerError: the ledger cannot be read.
    """
    streams = [ledger.query(event_type=event) for event in ("INSTALLED", "REMOVED")]
    streams += [
        ledger.query(event_type=event, after=first - 1, with_content=False) for event in _USES
    ]
    granted: dict[str, Permissions] = {}
    permitted: Callable[[Use], bool] | None = None
    for _, entry in in_order(streams, entries):
        if entry.event_type in _USES:
            use = _use_of(entry.event_type, entry.metadata)
            if use is not None:
                yield entry, use, permitted is None or permitted(use)
            continue
        if not is_authentic(entry):
            continue
        granted.pop(entry.submission_id, None)
        if entry.event_type == "INSTALLED":
            granted[entry.submission_id] = InstalledPackage.of(entry).manifest.permissions
        permitted = _permitted(granted.values())


def _use_of(event_type: str, metadata: Mapping[str, object]) -> Use | None:
    if event_type == "EXCHANGE":
        if metadata.get("outcome") != "success":
            return None
        return Use(
            "model",
            str(metadata.get("model_id") or ""),
            str(metadata.get("provider_id") or ""),
            str(metadata.get("requested_model_id") or ""),
        )
    if event_type == "TOOL_CALL" and metadata.get("status") == "refused":
        return None
    return Use("tool", str(metadata.get("tool_id") or ""))


def _named(settings: Settings, name: str, default: tuple[str, str]) -> Use:
    """Return the use of a model that a setting names.

    A name without a known provider goes to the provider of the default model.
    """
    if name in settings.routing.models:
        routed = settings.routing.models[name]
        return Use("model", routed.served_as or name, routed.provider)
    defaults = {one: set_up.default_model for one, set_up in settings.providers.items()}
    defaults["local"] = settings.local.model
    provider_id, model_id = split_name(name, defaults)
    if provider_id:
        return Use("model", model_id or defaults.get(provider_id, name), provider_id)
    return Use("model", name, owner_by_prefix(settings.model.prefixes, name) or default[0])
