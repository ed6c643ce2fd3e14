"""From a model's name to who answers it (SPEC 15, model names)."""

from __future__ import annotations

from collections.abc import Container, Iterator

from remit.gateway.config import RouterConfig

__all__ = ["candidates", "resolve"]


def resolve(
    config: RouterConfig, known: Container[str], provider_id: str | None, model_id: str | None
) -> tuple[str, str]:
    """Provider and model that a request means.

    Args:
        config: defaults and prefixes.
        known: ids of the providers that are registered.
        provider_id: as the request names it, if it does.
        model_id: as the request names it, if it does.
    """
    if provider_id:
        fallback = config.default_models.get(provider_id, config.default_model)
        if provider_id == config.default_provider:
            fallback = config.default_model
        return provider_id, model_id or fallback
    if not model_id:
        return config.default_provider, config.default_model
    head, slash, tail = model_id.partition("/")
    if slash and tail and head in known:
        return head, tail
    for provider, model in config.default_models.items():
        if model == model_id and provider in known:
            return provider, model_id
    for prefix in config.prefixes_longest_first:
        owner = config.model_prefixes[prefix]
        if model_id.startswith(prefix) and owner in known:
            return owner, model_id
    return config.default_provider, model_id


def candidates(
    config: RouterConfig, known: Container[str], provider_id: str | None, model_id: str | None
) -> Iterator[tuple[str, str]]:
    """Who is asked, one after the other: the model itself, then its configured fallbacks."""
    first = resolve(config, known, provider_id, model_id)
    yield first
    named = config.fallbacks.get(model_id or first[1]) or config.fallbacks.get("/".join(first), ())
    for name in named:
        found = resolve(config, known, None, name)
        if found != first:
            yield found
