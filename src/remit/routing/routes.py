"""Named routes: what a call that names one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.kernel.errors import ConfigError, RemitError
from remit.kernel.settings import RouteSettings, RoutingSettings
from remit.routing.ensemble import JUDGE_CONTRACT
from remit.routing.options import EnsembleOptions, Stage
from remit.routing.prompts import PromptMaker
from remit.routing.registry import Registry
from remit.routing.scoring import task_of
from remit.routing.weights import Rules

__all__ = ["Route", "read_routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """One named route, checked against the registry and the rules."""

    name: str
    settings: RouteSettings
    operator_preference: str

    def options(self, registry: Registry) -> dict[str, Any]:
        """The arguments of :class:`remit.routing.RouteOptions` that the route decides."""
        told = self.settings
        return {
            "candidates": registry.candidates(told.models),
            "task": told.task,
            "operator_preference": self.operator_preference,
            "mode": told.mode,
            "route": self.name,
            "ensemble": EnsembleOptions(
                size=told.size,
                join=told.join,
                judge=registry.candidates(told.judge) if told.judge else (),
                timeout_s=told.timeout_s,
                max_usd=told.max_usd,
            ),
            "stages": tuple(
                Stage(
                    one.name,
                    one.contract,
                    registry.candidates(one.models) if one.models else (),
                    one.revises,
                )
                for one in told.stages
            ),
        }


def read_routes(
    settings: RoutingSettings, registry: Registry, rules: Rules, prompts: PromptMaker
) -> Mapping[str, Route]:
    """The routes of a configuration, by name.

    Raises:
        ConfigError: one names a model, a preference, a task or a contract that there is not.
    """
    routes = {}
    for name, told in settings.routes.items():
        place = f"[routing.routes.{name}]"
        if not name or "/" in name or name in settings.models:
            raise ConfigError(
                f"{place} cannot be told from a model by its name.",
                next_step="Name it otherwise, and without a slash.",
            )
        registry.check([*told.models, *told.judge, *(m for s in told.stages for m in s.models)])
        preference = told.operator_preference or settings.operator_preference
        if preference and preference not in rules.weights.preferences:
            raise ConfigError(
                f"{place} prefers {preference!r}, which the routing rules do not know.",
                next_step=f"They know {', '.join(sorted(rules.weights.preferences)) or 'none'}.",
            )
        try:
            task_of(told.task)
            for stage in told.stages:
                if stage.contract:
                    prompts.check(stage.contract)
            if told.mode == "ensemble" and told.join == "judge":
                prompts.check(JUDGE_CONTRACT)
        except RemitError as error:
            raise ConfigError(f"{place}: {error}") from error
        routes[name] = Route(name, told, preference)
    return routes
