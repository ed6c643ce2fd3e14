"""The provider and the model that a command on prices means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remit.kernel.errors import InvalidInputError, RemitError, nearest
from remit.operations.ports import RootPort

if TYPE_CHECKING:
    from remit.packages import RootPrices


def named_model(
    model: str, provider: str | None, found: RootPrices, root: RootPort, *, is_new: bool = False
) -> tuple[str, str]:
    """Return the provider and the model that a person means.

    Args:
        model: a name of the model.
        provider: the named provider, or None.
        found: the prices in force.
        root: the root.
        is_new: True if the named provider may be unknown, such as one that a program passes.

    Raises:
        InvalidInputError: no provider has the model, several have and none is named, or the named
            one is unknown.
    """
    from remit.gateway import owner_by_prefix, split_name

    known = known_providers(found, root)
    first, rest = split_name(model, known)
    if provider is not None:
        if not is_new:
            check_provider(provider, known)
        return provider, rest if first == provider and rest else model
    if rest and first in known:
        return first, rest
    having = sorted({one.provider for one in found.table if found.table.find(one.provider, model)})
    if len(having) == 1:
        return having[0], model
    if len(having) > 1:
        raise InvalidInputError(
            f"Several providers have {model}; choose one with --provider ({', '.join(having)})."
        )
    if owner := owner_by_prefix(root.settings.model.prefixes, model):
        return owner, model
    near = nearest(model, (one.bare_name for one in found.table))
    raise InvalidInputError(
        f"No price is known for {model}.",
        next_step=(f"Did you mean {near}? " if near else "")
        + "Check the name (`remit price list`), or name its provider: `--provider NAME`.",
    )


def check_provider(name: str, known: Sequence[str]) -> None:
    """Raise InvalidInputError if a provider is none of the known ones.

    Args:
        name: the named provider.
        known: the providers of :func:`known_providers`.
    """
    if name not in known:
        near = nearest(name, known)
        raise InvalidInputError(
            f"Unknown provider {name}: it is neither in remit.toml nor in the prices.",
            next_step=f"Did you mean {near}?" if near else f"Known are {', '.join(known)}.",
        )


def known_providers(found: RootPrices, root: RootPort) -> list[str]:
    """Return the providers that are configured or have a price, sorted.

    Args:
        found: the prices in force.
        root: the root.
    """
    return sorted({*found.table.providers, *root.settings.providers})


def unknown_model(
    bare: str, provider: str, found: RootPrices, *, for_set: bool = False
) -> Exception:
    """Return (not raise) the error for a model without a price.

    Args:
        bare: name of the model.
        provider: provider of the model.
        found: the prices in force.
        for_set: True if the price of a new model is to be set.
    """
    near = nearest(bare, (one.bare_name for one in found.table if one.provider == provider))
    hint = f"Did you mean {near}? " if near else ""
    if for_set:
        hint += "For a new model, pass --context-window and --max-output-tokens: without "
        hint += "them its calls have no bound."
    return RemitError(
        f"There is no price for {bare} of {provider}.",
        next_step=hint or "Check the name (`remit price list`), or set a price: `remit price set`.",
    )
