"""Which tools and models are in use, by the configuration and by the record (G3)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from remit.kernel.settings import Settings
from remit.ledger import LedgerClient, LedgerEntry
from remit.packages.checks import PackageView, allows_model
from remit.packages.gates.context import in_order
from remit.packages.manifest import Permissions
from remit.packages.permissions import permits
from remit.packages.registry import InstalledPackage

__all__ = ["Permitted", "Use", "configured_uses", "recorded_uses"]

_USES = ("TOOL_INTENT", "TOOL_CALL", "EXCHANGE")


class Use(NamedTuple):
    """A tool or model that is used.

    Attributes:
        kind: ``tool`` or ``model``.
        name: the tool's id, or the model as its provider calls it.
        provider_id: of a model; empty where it is not known.
        requested: the name that a model was asked for by; empty where there is none.
    """

    kind: str
    name: str
    provider_id: str = ""
    requested: str = ""

    @property
    def shown(self) -> str:
        """For people: ``the model openai/gpt-4o-mini``."""
        name = f"{self.provider_id}/{self.name}" if self.provider_id else self.name
        return f"the {self.kind} {name}"


class Permitted:
    """What some packages together permit.

    Args:
        permissions: of each of them.
    """

    def __init__(self, permissions: Iterable[Permissions] = ()) -> None:
        granted = list(permissions)
        self._tools = {name for one in granted for name in one.tools}
        self._models = {name for one in granted for name in one.models}
        self.allows = functools.cache(self._allows)
        """Whether one of them permits a use."""

    def _allows(self, use: Use) -> bool:
        if use.kind == "tool":
            return permits(self._tools, use.name)
        names = [use.name]
        # A provider reports the exact version that answered: gpt-4o is gpt-4o-2024-08-06.
        if use.requested and use.name.startswith(use.requested):
            names.append(use.requested)
        return any(allows_model(self._models, use.provider_id, name) for name in names)


def configured_uses(
    settings: Settings, model: tuple[str, str] | None, view: PackageView
) -> Iterator[tuple[str, Use]]:
    """What the configuration, agents and contracts put to use, and where they say so.

    Args:
        settings: in force.
        model: provider and model that answer when a call names none; ``None`` where unknown.
        view: the installed packages.
    """
    for tool_id in settings.chat.tools_allowed:
        yield "chat.tools_allowed", Use("tool", tool_id)
    for agent, package_id in view.documents.agents.values():
        for tool_id in agent.tools:
            yield f"the agent {agent.agent_id} of {package_id}", Use("tool", tool_id)
    if model is not None:
        yield "model.default", Use("model", model[1], model[0])
    for name in settings.routing.models:
        yield f"routing.models.{name}", _named(settings, name, model)
    for name, others in settings.gateway.fallbacks.items():
        for other in others:
            yield f"gateway.fallbacks.{name}", _named(settings, other, model)
    for contract, package_id in view.documents.every_contract():
        provider_id, model_id = contract.boundary.provider_id, contract.boundary.model_id
        if model_id:
            where = f"the contract {contract.contract_id} of {package_id}"
            use = Use("model", model_id, provider_id) if provider_id else None
            yield where, use or _named(settings, model_id, model)


def recorded_uses(
    ledger: LedgerClient, first: int, entries: int
) -> Iterator[tuple[LedgerEntry, Use, bool]]:
    """What was used, by the record: the entry, what, and whether it was permitted then.

    Refused tools and calls that failed are no use. Before the first package was installed there
    was nobody to permit anything: what was used then counts as permitted.

    Args:
        ledger: the record.
        first: sequence number of the first entry that is looked at.
        entries: how many entries there are to look at, those before ``first`` included.
    """
    streams = [ledger.query(event_type=event) for event in ("INSTALLED", "REMOVED")]
    streams += [
        ledger.query(event_type=event, after=first - 1, with_content=False) for event in _USES
    ]
    granted: dict[str, Permissions] = {}
    permitted: Permitted | None = None
    for seq, entry in in_order(streams):
        if seq >= entries:
            return
        if entry.event_type in _USES:
            use = _use_of(entry.event_type, entry.metadata)
            if use is not None:
                yield entry, use, permitted is None or permitted.allows(use)
            continue
        granted.pop(entry.submission_id, None)
        if entry.event_type == "INSTALLED":
            granted[entry.submission_id] = InstalledPackage.of(entry).manifest.permissions
        permitted = Permitted(granted.values())


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


def _named(settings: Settings, name: str, default: tuple[str, str] | None) -> Use:
    """A model by the name that a configuration uses for it (SPEC 15, model names).

    A name that nothing is known of goes to the provider of the default model.
    """
    if name in settings.routing.models:
        routed = settings.routing.models[name]
        return Use("model", routed.served_as or name, routed.provider)
    provider_id, slash, model_id = name.partition("/")
    if slash and (provider_id == "local" or provider_id in settings.providers):
        return Use("model", model_id, provider_id)
    for prefix in sorted(settings.model.prefixes, key=len, reverse=True):
        if name.startswith(prefix):
            return Use("model", name, settings.model.prefixes[prefix])
    return Use("model", name, default[0] if default is not None else "")
