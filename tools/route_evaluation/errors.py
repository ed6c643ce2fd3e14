"""What can go wrong when routers are evaluated."""

from __future__ import annotations

from remit.routing.errors import RoutingError

__all__ = ["EvaluationError"]


class EvaluationError(RoutingError, ValueError):
    """A set, a candidates file or a policy cannot be used as it stands."""
