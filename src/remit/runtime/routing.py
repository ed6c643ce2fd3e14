"""Construction of a root's router from its settings and the available providers."""

from __future__ import annotations

from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.kernel.installed_files import InstalledFiles
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
    """Return the router of a root. Nothing is registered or called.

    Its statistics of reliability are read again every minute. Scoring rules that cannot be used are
    logged, and the shipped ones used.

    Args:
        root: the root, which holds the scoring rules.
        settings: settings with routes and models.
        ledger: the ledger in which decisions are recorded.
        gateway: the gateway that makes the calls.
        prices: prices of models.
        contracts: the loader of the contracts of stages and judges.
        default: provider and model that answer if a call names none.

    Raises:
        ConfigError: a configured route or model cannot be used.
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
    """Return the scoring rules in force in a root.

    A rules file below a tier folder (``HOT``, ``HO2``, ``HO1``) must be installed by a package and
    unchanged. If the file cannot be used, the reason is logged and the shipped rules are returned,
    with the version ``RULES_UNAVAILABLE``.

    Args:
        root: the installation.
        settings: ``[routing]``, whose ``rules`` names the file, relative to the root.
    """
    here = root.path.resolve()
    file = (here / settings.rules).resolve()
    governed = any(file.is_relative_to(here / tier) for tier in ("HOT", "HO2", "HO1"))
    return load_rules(file, InstalledFiles(here) if governed else None)
