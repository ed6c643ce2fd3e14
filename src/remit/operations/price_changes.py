"""Operations that change the operator's own prices of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.price_models import (
    named_model,
    unknown_model,
)
from remit.operations.prices import (
    PATTERN,
    PROVIDER,
    PROVIDERS,
    RATES,
    change_lines,
    read_prices,
    today,
    whole_rate,
)

if TYPE_CHECKING:
    from remit.packages import RootPrices
    from remit.providers.prices import Overlay, Price


def _rate(text: str, **traits: Any) -> Any:
    return field(text, metavar="USD", **traits)


def _changed(
    root: RootPort, caller: Caller, change: Callable[[RootPrices], Overlay], *, reason: str = "",
    dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Record a change of the operator's prices, replace the file, and return the changes.

    Args:
        root: the root.
        caller: the caller.
        change: returns the operator's new prices, computed from the prices in force.
        reason: the reason, for the ledger.
        dry_run: True to change nothing.

    Raises:
        RemitError: a price cannot be used, or a package installed the file.
        PackageError: another operation is running, or the disk refuses the file.
    """
    from remit.packages import change_own_prices, planned, prices_of

    named, entry_id = root.settings.budget.prices, ""
    if dry_run:
        before = prices_of(root.place, named, create=True)
        done = planned(before, change(before))
    else:
        done, entry_id = change_own_prices(
            root.place, root.ledger, named, change,
            wait_s=root.settings.packages.lock_timeout_s, by=caller.name, reason=reason,
        )  # fmt: skip
    return {"version": done.versions[1], "entry": entry_id or None, "dry_run": dry_run,
            "changes": done.changes}  # fmt: skip


@verb("price set", changes=True, lines=change_lines)
def set_price(
    root: RootPort, caller: Caller, *,
    model: str = field("Name of the model.", flag=""),
    input: str = _rate("Price of a million input tokens."),
    output: str = _rate("Price of a million output tokens."),
    cached_input: str | None = _rate("Input read from a cache; default: as input.", default=None),
    cache_write: str | None = _rate("Input written to a cache; default: as input.", default=None),
    cache_write_long: str | None = _rate(
        "For long retention; default: as --cache-write.", default=None
    ),
    reasoning: str | None = _rate("Reasoning; default: as output.", default=None),
    context_window: int | None = field("Largest number of tokens of a call.", None, least=1),
    max_output_tokens: int | None = field("Largest number of tokens of an answer.", None, least=1),
    provider: str | None = field(
        "Provider of the model; required if several or none have it.", None
    ),
    source: str = field("Origin of the price, for the table.", ""),
) -> dict[str, Any]:  # fmt: skip
    """Set a price of your own, with these rates only.

    Sizes and names of a known model are kept. An unknown model needs --provider, --context-window
    and --max-output-tokens; without them its calls have no upper bound. With both sizes, the
    provider may be one that only a program passes to Remit.

    Returns:
        The version of the prices, the changes, and ``entry``, which is None if nothing changed. A
        note names each separate rate of the old price that is dropped; its tiers are too.

    Raises:
        InvalidInputError: no provider has the model, several have and none is named, or the named
            one is unknown and a size is missing.
        RemitError: a price cannot be used, the sizes of an unknown model are missing, or a package
            installed the file.
        PackageError: another operation is running, or the disk refuses the file.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.providers.prices import Overlay, parse_decimal

    stated = dict(zip(RATES, (input, output, cached_input, cache_write, cache_write_long,
                               reasoning), strict=True))  # fmt: skip
    left_out: list[str] = []

    def change(found: RootPrices) -> Overlay:
        rates = {rate: parse_decimal(value, f"--{rate.replace('_', '-')}")
                 for rate, value in stated.items() if value is not None}  # fmt: skip
        given = {"context_window": context_window, "max_output_tokens": max_output_tokens}
        sizes = {size: value for size, value in given.items() if value}
        who, bare = named_model(model, provider, found, root, is_new=len(sizes) == 2)
        known = found.table.find(who, bare)
        key = found.own.key_of(who, bare, found.base)
        if known is None and (len(sizes) < 2 and not (sizes and rates["output"] == "0")):
            raise unknown_model(bare, who, found, for_set=True)
        kept = {
            name: value
            for name, value in found.own.models.get(key, {}).items()
            if name not in (*RATES, "tiers", "date", "source")
        }
        if known is not None and not kept and not found.base.entry_name(who, bare):
            kept = Overlay.sizes_of(known)
        left_out[:] = _left_out(known, rates)
        entry = {**kept, "provider": who, "date": today(), **rates, **sizes}
        origin = {"source": source} if source else {}
        return found.own.with_entry(key, {**entry, **origin}, today())

    done = _changed(root, caller, change)
    for sentence in left_out:
        root.note(sentence)
    return done


@verb("price unset", changes=True, lines=change_lines)
def unset_price(
    root: RootPort, caller: Caller, *,
    model: str | None = field("Name of the model.", None, flag="", metavar="[MODEL]"),
    provider: str | None = PROVIDER,
    everything: bool = field("All prices of your own.", False, flag="--all"),
) -> dict[str, Any]:  # fmt: skip
    """Remove a price of your own, so that the shipped one applies, if any.

    Returns:
        The version of the prices, the changes, and ``entry``, which is None if nothing changed.

    Raises:
        InvalidInputError: no model is named, or a model and all prices are; or its provider is
            unknown, or several have it and none is named.
        RemitError: the model has no price of the operator, or a package installed the file.
        PackageError: another operation is running, or the disk refuses the file.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.providers.prices import Overlay

    def change(found: RootPrices) -> Overlay:
        if everything == bool(model):
            raise InvalidInputError("Name a model, or pass --all.")
        if everything:
            return Overlay({})
        who, bare = named_model(str(model), provider, found, root)
        key = found.own.key_of(who, bare, found.base)
        if key not in found.own.models:
            raise RemitError(
                f"You have no price of your own for {bare} of {who}.",
                next_step="`remit price list --own` lists your prices.",
            )
        return found.own.without(key, today())

    return _changed(root, caller, change)


@verb("price import", changes=True, lines=change_lines)
def import_prices(
    root: RootPort, caller: Caller, *,
    file: Path = field("File of prices.", flag=""),
    replace: bool = field("Replace all your prices instead of adding to them.", False),
    dry_run: bool = field("Show the changes without making them.", False),
    providers: list[str] = PROVIDERS,
    pattern: str | None = PATTERN,
) -> dict[str, Any]:  # fmt: skip
    """Import the prices of FILE as your own.

    FILE is a table as in docs/prices.md, or LiteLLM's model_prices_and_context_window.json, of
    which the prices that differ are taken.

    Returns:
        As :func:`set_price`; of a LiteLLM file also the numbers of equal and of skipped prices.
        With ``dry_run``, nothing is recorded, and ``entry`` is None.

    Raises:
        InvalidInputError: a provider is unknown.
        RemitError: the file cannot be read or is wrong, a new model has no sizes, or, without
            ``dry_run``, a package installed the own prices.
        PackageError: another operation is running, or the disk refuses the file.
        LedgerError: the ledger cannot be read or written.
    """
    counts: dict[str, Any] = {}

    def change(found: RootPrices) -> Overlay:
        read = read_prices(root, found, file, providers, pattern, counts)
        return read if replace else found.own.merged(read, found.base, today())

    reason = f"Prices imported from {file.name}"
    done = _changed(root, caller, change, reason=reason, dry_run=dry_run)
    changes = done.pop("changes")
    return {**done, **counts, "changes": changes}


def _left_out(known: Price | None, rates: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each separate rate of the old price that the new one lacks."""
    from remit.providers.prices import price_data

    if known is None:
        return
    was = price_data(known)
    for rate in RATES[2:]:
        whole = whole_rate(rate)
        if rate not in rates and was[rate] != was[whole]:
            yield (f"{rate} was {was[rate]} and is now charged as {whole}: "
                   f"--{rate.replace('_', '-')} sets it.")  # fmt: skip
    if known.tiers:
        yield "The tiers by context length were removed; import a table to set them."
