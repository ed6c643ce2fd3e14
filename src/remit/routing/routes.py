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
        settings = self.settings
        return {
            "candidates": registry.candidates(settings.models),
            "task": settings.task,
            "operator_preference": self.operator_preference,
            "mode": settings.mode,
            "route": self.name,
            "ensemble": EnsembleOptions(
                size=settings.size,
                join=settings.join,
                judge=registry.candidates(settings.judge) if settings.judge else (),
                timeout_s=settings.timeout_s,
                max_usd=settings.max_usd,
            ),
            "stages": tuple(
                Stage(
                    stage.name,
                    stage.contract,
                    registry.candidates(stage.models) if stage.models else (),
                    stage.revises,
                )
                for stage in settings.stages
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
    for name, route in settings.routes.items():
        place = f"[routing.routes.{name}]"
        if not name or "/" in name or name in settings.models:
            raise ConfigError(
                f"{place} has a name that can be confused with a model's.",
                next_step="Name it otherwise, and without a slash.",
            )
        registry.check([*route.models, *route.judge, *(m for s in route.stages for m in s.models)])
        preference = route.operator_preference or settings.operator_preference
        if preference and preference not in rules.weights.preferences:
            raise ConfigError(
                f"{place} prefers {preference!r}, which the routing rules do not know.",
                next_step=f"They know {', '.join(sorted(rules.weights.preferences)) or 'none'}.",
            )
        try:
            task_of(route.task)
            for stage in route.stages:
                if stage.contract:
                    prompts.check(stage.contract)
            if route.mode == "ensemble" and route.join == "judge":
                prompts.check(JUDGE_CONTRACT)
        except RemitError as error:
            raise ConfigError(f"{place}: {error}") from error
        routes[name] = Route(name, route, preference)
    return routes
