"""Descriptions of routes and models for status reports."""

from __future__ import annotations

from typing import Any

from remit.gateway import CircuitState, LLMGateway
from remit.kernel.settings import RouteSettings
from remit.routing.candidate import Candidate
from remit.routing.candidate_order import rank
from remit.routing.model_registry import Registry
from remit.routing.scores import ScoringInputs, is_single, measured, task_of
from remit.routing.weights import Weights


def route_status(
    name: str, route: RouteSettings, candidates: tuple[Candidate, ...], weights: Weights
) -> dict[str, Any]:
    """Return the description of a route as JSON.

    The keys are ``name``, ``mode``, ``models`` (in the given order), ``first``, ``best_single``,
    ``operator_preference``, ``task`` and ``stages`` (names). ``first`` is the model that comes
    first for every prompt of a route in mode ``single``; empty if the choice depends on the task or
    a learned head, and for other modes. ``best_single`` is the same if an ability of the model is
    stated, else empty.

    Args:
        name: name of the route.
        route: the route.
        candidates: the candidates of the route.
        weights: the rules in force.

    Raises:
        InvalidInputError: the rules do not know the operator preference.
    """
    preference = route.operator_preference
    inputs = ScoringInputs("", task_of(route.task), preference, candidates, weights)
    single = route.mode == "single" and candidates and is_single(inputs)
    first = rank(inputs).chain[0].model_id if single else ""
    return {
        "name": name,
        "mode": route.mode,
        "models": [candidate.model_id for candidate in candidates],
        "first": first,
        "best_single": first if first in measured(inputs) else "",
        "operator_preference": preference,
        "task": route.task,
        "stages": [stage.name for stage in route.stages],
    }


def models_status(registry: Registry, gateway: LLMGateway) -> list[dict[str, Any]]:
    """Return the descriptions of all stated models as JSON. Reads circuit breakers, so it blocks.

    Models that the settings set aside are left out, unless none would remain. The keys are
    ``model_id``, those of :meth:`Candidate.profile`, ``adapter`` (True if the provider is
    registered), ``reachable``, ``circuit`` (the state) and ``retry_after_s`` (None if closed).
    """
    reachable = set(registry.reachable())
    models = []
    for candidate in registry.candidates(registry.names()):
        breaker = gateway.breakers.get((candidate.provider_id, candidate.provider_model))
        state = breaker.state if breaker is not None else CircuitState.CLOSED
        wait_s = breaker.retry_after_s if breaker is not None else None
        models.append(
            {
                "model_id": candidate.model_id,
                **candidate.profile(),
                "adapter": candidate.provider_id in gateway.providers,
                "reachable": candidate.model_id in reachable,
                "circuit": str(state),
                "retry_after_s": None if wait_s is None else round(wait_s, 3),
            }
        )
    return models
