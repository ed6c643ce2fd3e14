"""The registry of models: stated properties, prices, and recorded reliability."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from remit.kernel.errors import ConfigError, InvalidInputError, RemitError
from remit.kernel.settings import (
    RoutedModelSettings,
    RouteSettings,
    RoutingSettings,
    default_settings,
)
from remit.providers.prices import PriceTable
from remit.routing.candidate import Candidate
from remit.routing.ensemble import JUDGE_CONTRACT
from remit.routing.reliability import USUAL, Reliability
from remit.routing.scores import task_of
from remit.routing.stage_requests import StagePrompts
from remit.routing.weights import Rules

_NANO = 1_000_000_000
_Groups = dict[tuple[str, ...], tuple[Candidate, ...]]


class Registry:
    """The candidates, keyed by name.

    Args:
        settings: stated properties of models.
        prices: the table of prices.
        reliability: recorded reliability of models.
        providers: ids of the registered providers.
        own: the providers reached at their maker's own address. Shipped properties of their models
            apply only there, not at other servers of the same dialect.
        free: the providers that bill nothing.
        default: the default provider and model; the model is empty without one.

    Raises:
        ConfigError: the stated properties of a model cannot be used.
    """

    def __init__(
        self,
        settings: RoutingSettings,
        prices: PriceTable,
        reliability: Reliability,
        *,
        providers: Collection[str],
        own: Collection[str],
        free: Collection[str],
        default: tuple[str, str],
    ) -> None:
        self._providers = providers
        self._own = own
        self._reliability = reliability
        self._prices = prices
        self._stated = {
            name: candidate_of(name, model, prices, free) for name, model in settings.models.items()
        }
        shipped = default_settings().routing.models
        self._shipped = {
            name for name, model in settings.models.items() if shipped.get(name) == model
        }
        provider_id, model_id = default
        self._default = ""
        for candidate in self._stated.values():
            if (candidate.provider_id, candidate.provider_model) == default:
                self._default = self._default or candidate.model_id
        if model_id and not self._default:
            name = model_id if model_id not in self._stated else f"{provider_id}/{model_id}"
            stated = RoutedModelSettings.model_validate(
                {"provider": provider_id, "served_as": model_id}
            )
            self._stated[name] = candidate_of(name, stated, prices, free)
            self._default = name
        self._set_aside = frozenset(settings.set_aside)
        self._made: tuple[Mapping[str, int], _Groups] = ({}, {})

    def warm_nano(self, model: str, tokens: int) -> dict[str, int]:
        """Return the nano-dollars that cached input tokens save, by candidate.

        Args:
            model: the provider's name of the model that holds the cache.
            tokens: number of cached tokens; none save nothing.
        """
        found = {}
        for one in self._stated.values() if tokens else ():
            price = (
                self._prices.find(one.provider_id, model) if one.provider_model == model else None
            )
            if price is not None and (saved := price.rates.input - price.rates.cached_input) > 0:
                found[one.model_id] = saved * tokens // 1_000_000
        return found

    def candidates(self, names: Sequence[str] = ()) -> tuple[Candidate, ...]:
        """Return current candidates, in the order of the names, with their recorded reliability.

        Models that the settings set aside are left out, unless none would remain. Equal requests
        return the same tuple until reliabilities change.

        Args:
            names: names of the candidates; empty for all reachable ones.

        Raises:
            KeyError: a name is not in the registry.
        """
        percents = self._reliability.percents()
        seen, made = self._made
        if seen is not percents:  # Scores are cached by the identity of the candidates.
            self._made = (percents, made := {})
        key = tuple(names)
        found = made.get(key)
        if found is None:
            asked = key or self.reachable()
            chosen = [name for name in asked if name not in self._set_aside] or asked
            found = made[key] = tuple(
                replace(self._stated[name], reliability=percents.get(name, USUAL))
                for name in chosen
            )
        return found

    def reachable(self) -> list[str]:
        """Return the names of the models whose provider is registered.

        A shipped model counts only at its maker's own address, or if it is the default.
        """
        return [
            name
            for name, candidate in self._stated.items()
            if candidate.provider_id in self._providers
            and (
                name == self._default
                or name not in self._shipped
                or candidate.provider_id in self._own
            )
        ]

    def names(self) -> list[str]:
        """Return the names of all stated models, reachable or not."""
        return list(self._stated)

    def of(self, model_id: str) -> Candidate | None:
        """Return the candidate with this name as stated, without reliability; None without one."""
        return self._stated.get(model_id)


def candidate_of(
    name: str,
    stated: RoutedModelSettings,
    prices: PriceTable,
    free: Collection[str] = (),
) -> Candidate:
    """Return the candidate that the configuration states, with its price and context window.

    A provider in ``free`` has the price 0. A stated window comes before that of the table.

    Args:
        name: its name in the registry.
        stated: its stated properties.
        prices: the table of prices; the stated price applies if the table has none.
        free: ids of providers that bill nothing.

    Raises:
        ConfigError: a stated property cannot be used.
    """
    model = stated.served_as or name
    price = prices.find(stated.provider, model)
    input_price = output_price = None
    if stated.provider in free:
        input_price = output_price = 0
    elif price is not None:
        input_price, output_price = price.rates.input, price.rates.output
    elif stated.input_usd_per_million is not None and stated.output_usd_per_million is not None:
        input_price = round(stated.input_usd_per_million * _NANO)
        output_price = round(stated.output_usd_per_million * _NANO)
    try:
        return Candidate(
            model_id=name,
            provider_id=stated.provider,
            abilities=stated.abilities,
            input_price=input_price,
            output_price=output_price,
            context_tokens=stated.context_tokens or (price.context_window if price else None) or 0,
            tokens_per_s=stated.tokens_per_s,
            languages=tuple(stated.languages),
            tools=stated.tools,
            images=stated.images,
            served_as="" if model == name else model,
        )
    except InvalidInputError as error:
        raise ConfigError(f"[routing.models.{name!r}] cannot be used: {error}") from error


def read_routes(
    settings: RoutingSettings, registry: Registry, rules: Rules, prompts: StagePrompts
) -> Mapping[str, RouteSettings]:
    """Return the routes of a configuration, keyed by name, each with its operator preference.

    Args:
        settings: the routes and the general operator preference.
        registry: the known models.
        rules: the known preferences.
        prompts: the known contracts.

    Raises:
        ConfigError: a route's name can be confused with a model's, or the route names an unknown
            model, preference, task or contract.
    """
    routes = {}
    for name, route in settings.routes.items():
        place = f"[routing.routes.{name}]"
        if not name or "/" in name or name in settings.models:
            raise ConfigError(
                f"{place} has a name that can be confused with a model name.",
                next_step="Choose another name, without a slash.",
            )
        for model in (*route.models, *route.judge, *(m for s in route.stages for m in s.models)):
            if registry.of(model) is None:
                raise ConfigError(
                    f"{place} names the model {model!r}, which is not in [routing.models].",
                    next_step=f"Known models: {', '.join(sorted(registry.names()))}.",
                )
        preference = route.operator_preference or settings.operator_preference
        if preference and preference not in rules.weights.preferences:
            raise ConfigError(
                f"{place} prefers {preference!r}, which the routing rules do not know.",
                next_step="Known preferences: "
                f"{', '.join(sorted(rules.weights.preferences)) or 'none'}.",
            )
        contracts = [stage.contract for stage in route.stages if stage.contract]
        if route.mode == "ensemble" and route.join == "judge":
            contracts.append(JUDGE_CONTRACT)
        try:
            task_of(route.task)
            for contract in contracts:
                prompts.check(contract)
        except RemitError as error:
            raise ConfigError(f"{place}: {error}") from error
        routes[name] = route.model_copy(update={"operator_preference": preference})
    return routes
