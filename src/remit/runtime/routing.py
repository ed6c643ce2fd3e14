"""The router of a root, out of its settings and what can be reached."""

from __future__ import annotations

from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.kernel.installed import InstalledFiles
from remit.kernel.root import Root
from remit.kernel.settings import RoutingSettings, Settings
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable
from remit.routing import (
    Registry,
    Reliability,
    Router,
    Rules,
    StagePrompts,
    load_rules,
)
from remit.runtime.providers import is_own

_RELIABILITY_EVERY_S = 60.0


def make_router(
    root: Root,
    settings: Settings,
    ledger: LedgerClient,
    gateway: LLMGateway,
    prices: PriceTable,
    contracts: ContractLoader,
    default: tuple[str, str],
) -> Router:
    """The router of a root.

    Args:
        root: where its rules lie.
        settings: its routes and models.
        ledger: where decisions are recorded.
        gateway: what answers; its providers are registered.
        prices: what models cost.
        contracts: of stages and judges.
        default: provider and model that answer when nothing else is said.

    Raises:
        ConfigError: a route or a model of the configuration cannot be used.
    """
    routing = settings.routing
    reliability = Reliability(ledger, routing.reliability_decisions, _RELIABILITY_EVERY_S)
    providers = settings.providers.items()
    registry = Registry(
        routing,
        prices,
        reliability,
        providers=frozenset(gateway.providers),
        own=frozenset(name for name, provider in providers if is_own(name, provider)),
        free=frozenset(settings.budget.free_providers),
        default=default,
    )
    return Router(
        gateway,
        ledger,
        routing,
        registry,
        rules_of(root, routing),
        StagePrompts(contracts),
    )


def rules_of(root: Root, settings: RoutingSettings) -> Rules:
    """The rules of scoring in force in a root; below a tier folder, only as installed."""
    here = root.path.resolve()
    file = (here / settings.rules).resolve()
    governed = any(file.is_relative_to(here / tier) for tier in ("HOT", "HO2", "HO1"))
    return load_rules(file, InstalledFiles(here) if governed else None)
