"""Which tools and models are in use, by the configuration and by the record (G3)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from remit.kernel.settings import Settings
from remit.ledger import LedgerClient, LedgerEntry, parse_entry_id
from remit.packages.checks import Shapes, allows_model
from remit.packages.manifest import Permissions
from remit.packages.permissions import permits
from remit.packages.registry import InstalledPackage

__all__ = ["Permitted", "Use", "configured_uses", "recorded_uses"]

_PACKAGES = ("INSTALLED", "REMOVED")
_USES = ("TOOL_INTENT", "TOOL_CALL", "EXCHANGE")


@dataclass(frozen=True, slots=True)
class Use:
    """A tool or model that is used.

    Attributes:
        kind: ``tool`` or ``model``.
        name: the tool's id, or the model as its provider calls it.
        provider_id: of a model; empty where it is not known.
        exact_name: of a model that is known by a name beside ``name``, such as the one that was
            asked for; empty where there is none.
    """

    kind: str
    name: str
    provider_id: str = ""
    exact_name: str = ""

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
        self._tools = sorted({name for one in granted for name in one.tools})
        self._models = sorted({name for one in granted for name in one.models})
        self._known: dict[Use, bool] = {}

    def allows(self, use: Use) -> bool:
        """Whether one of them does."""
        if use not in self._known:
            self._known[use] = self._allows(use)
        return self._known[use]

    def _allows(self, use: Use) -> bool:
        if use.kind == "tool":
            return permits(self._tools, use.name)
        names = [use.name]
        # A provider reports the exact version that answered: gpt-4o is gpt-4o-2024-08-06.
        if use.exact_name and use.name.startswith(use.exact_name):
            names.append(use.exact_name)
        return any(allows_model(self._models, use.provider_id, name) for name in names)


def configured_uses(
    settings: Settings, model: tuple[str, str] | None, shapes: Shapes
) -> Iterator[tuple[str, Use]]:
    """What the configuration, agents and contracts put to use, and where they say so.

    Args:
        settings: in force.
        model: provider and model that answer when a call names none; ``None`` where unknown.
        shapes: the installed contracts and agents.
    """
    for tool_id in settings.chat.tools_allowed:
        yield "chat.tools_allowed", Use("tool", tool_id)
    for agent, package_id in shapes.agents.values():
        for tool_id in agent.tools:
            yield f"the agent {agent.agent_id} of {package_id}", Use("tool", tool_id)
    if model is not None:
        yield "model.default", Use("model", model[1], model[0])
    for name, routed in settings.routing.models.items():
        yield f"routing.models.{name}", Use("model", routed.served_as or name, routed.provider)
    for name, others in settings.gateway.fallbacks.items():
        for other in others:
            yield f"gateway.fallbacks.{name}", _named(settings, other, model)
    for versions in shapes.contracts.values():
        for contract, package_id in versions:
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
    streams = [ledger.query(event_type=event) for event in _PACKAGES]
    streams += [
        ledger.query(event_type=event, after=first - 1, with_content=False) for event in _USES
    ]
    granted: dict[str, Permissions] = {}
    permitted: Permitted | None = None
    for entry in heapq.merge(*streams, key=_seq):
        if _seq(entry) >= entries:
            return
        if entry.event_type == "INSTALLED":
            granted[entry.submission_id] = InstalledPackage.of(entry).manifest.permissions
            permitted = Permitted(granted.values())
        elif entry.event_type == "REMOVED":
            granted.pop(entry.submission_id, None)
            permitted = Permitted(granted.values())
        else:
            use = _use_of(entry.event_type, entry.metadata)
            if use is not None:
                yield entry, use, permitted is None or permitted.allows(use)


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


def _seq(entry: LedgerEntry) -> int:
    seq = parse_entry_id(entry.id)
    return -1 if seq is None else seq
