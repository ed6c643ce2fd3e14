"""A named file of prices: a table of docs/prices.md, or LiteLLM's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.cli.price_names import check_provider, known_providers

if TYPE_CHECKING:
    from remit.kernel.settings import Settings
    from remit.providers.prices import Overlay
    from remit.runtime.prices import RootPrices


def read_prices(
    file: Path,
    found: RootPrices,
    settings: Settings,
    providers: Sequence[str],
    pattern: str | None,
    counts: dict[str, Any],
) -> Overlay:
    """Return the prices of a file, of some providers and models.

    Args:
        file: the path of the file.
        found: the prices in force.
        settings: the root's settings.
        providers: only these providers; all known ones if empty.
        pattern: only models that match, for example ``gpt-5*``.
        counts: receives ``same`` and ``skipped`` of a LiteLLM file.

    Raises:
        RemitError: the file cannot be read, or a key is wrong; the message names the key.
        click.UsageError: a provider is unknown.
    """
    from fnmatch import fnmatchcase

    from remit.kernel.errors import RemitError
    from remit.providers.prices import Overlay, is_litellm, read_litellm

    try:
        data = file.read_bytes()
    except OSError as error:
        raise RemitError(
            f"{file} cannot be read: {error.strerror}.", next_step="Give a file of prices."
        ) from error
    known = known_providers(found, settings)
    for name in providers:
        check_provider(name, known)
    if is_litellm(data):
        imported = read_litellm(
            data, str(file), found.table, found.base, found.own,
            providers=providers or known, models=pattern or "*", day=datetime.now(UTC).date(),
        )  # fmt: skip
        counts |= {"same": imported.same, "skipped": dict(imported.skipped)}
        return imported.overlay
    read = Overlay.read(data, str(file), found.base)
    for key, size in read.without_sizes(found.base).items():
        raise RemitError(
            f'{file}: models."{key}" lacks {size}. The shipped prices do not have this model, so '
            "the cost of its calls cannot be bounded.",
            next_step=f"Add {size}; docs/prices.md describes every key.",
        )
    for key, entry in list(read.models.items()):
        bare = key.removeprefix(f"{entry['provider']}/")
        if (providers and entry["provider"] not in providers) or (
            pattern and not fnmatchcase(bare, pattern)
        ):
            del read.models[key]
    return read
