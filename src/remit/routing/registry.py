"""The models there are to choose from: what the configuration states, prices, and the record."""

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
from remit.routing.prompts import StagePrompts
from remit.routing.reliability import USUAL, Reliability
from remit.routing.scoring import task_of
from remit.routing.weights import Rules

_NANO = 1_000_000_000
_Groups = dict[tuple[str, ...], tuple[Candidate, ...]]


class Registry:
    """Candidates by name.

    Args:
        settings: what is stated of models.
        prices: what they cost.
        reliability: how they have done.
        providers: ids of those that are registered.
        own: those of them that are reached at their maker's own address: what is shipped of
            their models holds there, and not at any other server that speaks their dialect.
        free: those that bill nothing.
        default: provider and model that answer when nothing else is said.

    Raises:
        ConfigError: what is stated of a model cannot be used.
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
        if not self._default:
            name = model_id if model_id not in self._stated else f"{provider_id}/{model_id}"
            stated = RoutedModelSettings.model_validate(
                {"provider": provider_id, "served_as": model_id}
            )
            self._stated[name] = candidate_of(name, stated, prices, free)
            self._default = name
        self._set_aside = frozenset(settings.set_aside)
        self._made: tuple[Mapping[str, int], _Groups] = ({}, {})

    def candidates(self, names: Sequence[str] = ()) -> tuple[Candidate, ...]:
        """Candidates as they are now, without those set aside unless nothing else is left.

        Args:
            names: whose; empty: of all that can be reached.

        Raises:
            ConfigError: a name is not in the registry.
        """
        percents = self._reliability.percents()
        seen, made = self._made
        if seen is not percents:  # one object for one state: scores are remembered by it
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
        """Names of the models that can be asked here, by the configuration."""
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
        """Names of all models that are stated, reachable or not."""
        return list(self._stated)

    def of(self, model_id: str) -> Candidate | None:
        """The candidate of that name."""
        return self._stated.get(model_id)


def candidate_of(
    name: str,
    stated: RoutedModelSettings,
    prices: PriceTable,
    free: Collection[str] = (),
) -> Candidate:
    """The candidate that the configuration states, its price and window from the table.

    Args:
        name: its name here.
        stated: what is stated of it.
        prices: the table; where it has none, the stated price counts.
        free: ids of providers that bill nothing.

    Raises:
        ConfigError: what is stated cannot be used.
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
    """The routes of a configuration, each with its operator preference.

    Raises:
        ConfigError: one names a model, a preference, a task or a contract that there is not.
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
