"""Whether permissions and ceilings allow a model, a place, a budget (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from remit.packages.permissions import permits

__all__ = ["allows_model", "allows_named", "allows_path", "budget_problem"]


def allows_model(patterns: Iterable[str], provider_id: str, model_id: str) -> bool:
    """Whether one of ``patterns``, written ``provider/model``, allows a model.

    Args:
        patterns: of a package's permissions.
        provider_id: who runs it; empty where that is not known: any of the providers that the
            patterns name will do.
        model_id: as the provider calls it.
    """
    if provider_id:
        return permits(patterns, f"{provider_id}/{model_id}")
    return permits((one.partition("/")[2] if "/" in one else one for one in patterns), model_id)


def allows_named(patterns: Iterable[str], name: str) -> bool:
    """Whether one of ``patterns`` allows what ``name`` means, whoever runs it.

    Args:
        patterns: of a package's permissions.
        name: ``provider/model``; a provider, which means its default model; or a model alone,
            which has to be allowed for every provider, as nothing says here which one it is.
    """
    if "/" in name:
        return permits(patterns, name)
    known = list(patterns)
    return any(permits(known, one) for one in (name, f"{name}/*", f"*/{name}"))


def allows_path(places: Iterable[str], path: str) -> bool:
    """Whether ``path`` is one of ``places``, or below one of them that ends with ``/``."""
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in places)


def budget_problem(ceilings: Mapping[str, int | str], name: str, value: int | str | None) -> str:
    """Why a budget is above its ceiling, ending a sentence; empty when it is not.

    Args:
        ceilings: by ``token_budget`` and ``usd_budget``; one that is absent has no ceiling.
        name: which of the two.
        value: tokens, or US dollars as decimal text; ``None``: none is stated, which is no limit.
    """
    ceiling = ceilings.get(name)
    if ceiling is None:
        return ""
    if value is None:
        return f"states no {name}, where {ceiling} is the most"
    if Decimal(str(value)) > Decimal(str(ceiling)):
        return f"has a {name} of {value}, where {ceiling} is the most"
    return ""
