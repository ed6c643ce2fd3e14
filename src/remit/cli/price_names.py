"""The provider and model that a person names for ``remit price``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from remit.kernel.errors import nearest

if TYPE_CHECKING:
    from remit.kernel.settings import Settings
    from remit.runtime.prices import RootPrices


def named_model(
    model: str, provider: str | None, found: RootPrices, settings: Settings
) -> tuple[str, str]:
    """Return the provider and the model that a person means.

    Raises:
        click.UsageError: no provider has the model, or several have and none is named.
    """
    from remit.gateway import owner_by_prefix, split_name

    known = known_providers(found, settings)
    first, rest = split_name(model, known)
    if provider is not None:
        check_provider(provider, known)
        return provider, rest if first == provider and rest else model
    if rest and first in known:
        return first, rest
    having = sorted({one.provider for one in found.table if found.table.find(one.provider, model)})
    if len(having) == 1:
        return having[0], model
    if len(having) > 1:
        raise click.UsageError(f"Several providers have {model}; choose one with --provider "
                               f"({', '.join(having)}).")  # fmt: skip
    if owner := owner_by_prefix(settings.model.prefixes, model):
        return owner, model
    near = nearest(model, (one.bare_name for one in found.table))
    raise click.UsageError(
        f"The provider of {model} is unknown."
        + (f" Did you mean {near}?" if near else "")
        + " Give the provider with --provider."
    )


def check_provider(name: str, known: Sequence[str]) -> None:
    """Raise click.UsageError if a provider is unknown."""
    if name not in known:
        near = nearest(name, known)
        hint = f"Did you mean {near}?" if near else f"Known are {', '.join(known)}."
        raise click.UsageError(f"Unknown provider {name}: it is neither in remit.toml nor in "
                               f"the prices. {hint}")  # fmt: skip


def known_providers(found: RootPrices, settings: Settings) -> list[str]:
    """Return the providers that are set up or have a price."""
    return sorted({*found.table.providers, *settings.providers})


def unknown_model(
    bare: str, provider: str, found: RootPrices, *, for_set: bool = False
) -> Exception:
    """Return the error for a model without a price; ``for_set`` if a price was to be set."""
    from remit.kernel.errors import RemitError

    near = nearest(bare, (one.bare_name for one in found.table if one.provider == provider))
    hint = f"Did you mean {near}? " if near else ""
    if for_set:
        hint += "For a new model, pass --context-window and --max-output-tokens: without "
        hint += "them its calls have no bound."
    return RemitError(
        f"There is no price for {bare} of {provider}.",
        next_step=hint or "`remit price list` shows all; `remit price set` sets one.",
    )
