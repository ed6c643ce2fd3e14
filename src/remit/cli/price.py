"""The commands of ``remit price``: prices in force, and changes of the operator's own prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.price_file import read_prices
from remit.cli.price_lines import COLUMNS, change_lines, row, text
from remit.cli.price_names import named_model, unknown_model
from remit.cli.shared import (
    FILE,
    emit,
    note,
    open_ledger,
    open_settings,
    reads,
    table,
    whoami,
)

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.kernel.settings import Settings
    from remit.providers.prices import Overlay, Price
    from remit.runtime.prices import RootPrices

_RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")


@click.group()
def price() -> None:
    """Prices of models, in US dollars per million tokens."""


@price.command("list")
@click.argument("pattern", required=False)
@click.option("--provider", help="Only models of this provider.")
@click.option("--own", is_flag=True, help="Only your own prices.")
@reads
def list_all(
    root: Path | None, as_json: bool, pattern: str | None, provider: str | None, own: bool
) -> None:
    """List the prices in force; with PATTERN (gpt-4o*), those of matching models."""
    found = _prices(root)[1]
    chosen = found.chosen(provider=provider, pattern=pattern or "*", own=own)
    data = [found.shown(one) for one in chosen]
    emit(as_json, {**found.versions, "prices": data}, table(COLUMNS, map(row, data)))
    if not as_json:
        note(f"prices {found.table.version}")


@price.command()
@click.argument("model")
@click.option("--provider", help="Provider of the model; required if several have it.")
@reads
def show(root: Path | None, as_json: bool, model: str, provider: str | None) -> None:
    """Show the price of a model, by any of its names, and its origin."""
    settings, found = _prices(root)
    who, bare = named_model(model, provider, found, settings)
    one = found.table.find(who, bare)
    if one is None:
        raise unknown_model(bare, who, found)
    data = found.shown(one)
    data["surcharges"] = {
        name: {value: times / 100 for value, times in values.items()}
        for name, values in one.surcharges.items()
    }
    lines = [f"{key}: {text(value)}" for key, value in data.items() if value not in (None, "", {})]
    emit(as_json, {**found.versions, "price": data}, lines)


@price.command("set")
@click.argument("model")
@click.option(
    "--input", "input_", required=True, metavar="USD", help="Price of a million input tokens."
)
@click.option("--output", required=True, metavar="USD", help="Price of a million output tokens.")
@click.option("--cached-input", metavar="USD", help="Input read from a cache; default: as input.")
@click.option("--cache-write", metavar="USD", help="Input written to a cache; default: as input.")
@click.option(
    "--cache-write-long", metavar="USD", help="For long retention; default: as --cache-write."
)
@click.option("--reasoning", metavar="USD", help="Reasoning; default: as output.")
@click.option(
    "--context-window", type=click.IntRange(1), help="Largest number of tokens of a call."
)
@click.option(
    "--max-output-tokens", type=click.IntRange(1), help="Largest number of tokens of an answer."
)
@click.option("--provider", help="Provider of the model; required if several or none have it.")
@click.option("--source", default="", help="Origin of the price, for the table.")
@reads
def set_(root: Path | None, as_json: bool, model: str, **given: Any) -> None:
    """Set a price of your own, with these rates only.

    Sizes and names of a known model are kept. An unknown model needs --provider, --context-window
    and --max-output-tokens; without them its calls have no upper bound.
    """
    from remit.providers.prices import Overlay, parse_decimal

    provider, source = given.pop("provider"), given.pop("source")
    given["input"] = given.pop("input_")
    rates = {
        rate: parse_decimal(given[rate], f"--{rate.replace('_', '-')}")
        for rate in _RATES
        if given[rate] is not None
    }
    sizes = {size: given[size] for size in ("context_window", "max_output_tokens") if given[size]}
    day = datetime.now(UTC).date()
    notes: list[str] = []

    def change(found: RootPrices, settings: Settings) -> Overlay:
        who, bare = named_model(model, provider, found, settings)
        known = found.table.find(who, bare)
        key = found.own.key_of(who, bare, found.base)
        if known is None and (len(sizes) < 2 and not (sizes and rates["output"] == "0")):
            raise unknown_model(bare, who, found, for_set=True)
        kept = {
            name: value
            for name, value in found.own.models.get(key, {}).items()
            if name not in (*_RATES, "tiers", "date", "source")
        }
        if known is not None and not kept and not found.base.entry_name(who, bare):
            kept = Overlay.sizes_of(known)
        entry = {**kept, "provider": who, "date": day, **rates, **sizes}
        notes[:] = _left_out(known, rates)
        return found.own.with_entry(key, {**entry, **({"source": source} if source else {})}, day)

    _change(root, as_json, change, notes=notes)


@price.command()
@click.argument("model", required=False)
@click.option("--provider", help="Provider of the model; required if several have it.")
@click.option("--all", "everything", is_flag=True, help="All prices of your own.")
@reads
def unset(
    root: Path | None, as_json: bool, model: str | None, provider: str | None, everything: bool
) -> None:
    """Remove a price of your own, so that the shipped one applies, if any."""
    from remit.kernel.errors import RemitError
    from remit.providers.prices import Overlay

    if everything == bool(model):
        raise click.UsageError("Name a model, or pass --all.")

    def change(found: RootPrices, settings: Settings) -> Overlay:
        if everything:
            return Overlay({})
        who, bare = named_model(str(model), provider, found, settings)
        key = found.own.key_of(who, bare, found.base)
        if key not in found.own.models:
            raise RemitError(
                f"You have no price of your own for {bare} of {who}.",
                next_step="`remit price list --own` lists your prices.",
            )
        return found.own.without(key, datetime.now(UTC).date())

    _change(root, as_json, change)


@price.command("import")
@click.argument("file", type=FILE)
@click.option("--provider", "providers", multiple=True, help="Only prices of this provider; may be "
              "repeated. Default: providers that are configured or have a price.")  # fmt: skip
@click.option(
    "--models", "pattern", metavar="PATTERN", help="Only matching models, such as gpt-5*."
)
@click.option("--replace", is_flag=True, help="Replace all your prices instead of adding to them.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@reads
def import_(
    root: Path | None,
    as_json: bool,
    file: Path,
    providers: Sequence[str],
    pattern: str | None,
    replace: bool,
    dry_run: bool,
) -> None:
    """Import the prices of FILE as your own.

    FILE is a table as in docs/prices.md, or LiteLLM's model_prices_and_context_window.json, of
    which the prices that differ are taken.
    """
    day = datetime.now(UTC).date()
    counts: dict[str, Any] = {}

    def change(found: RootPrices, settings: Settings) -> Overlay:
        read = read_prices(file, found, settings, providers, pattern, counts)
        if replace:
            return read
        return found.own.merged(read, found.base, day)

    _change(root, as_json, change, dry_run=dry_run, reason=f"Prices imported from {file.name}",
            more=counts)  # fmt: skip


@price.command()
@click.argument("file", required=False, type=FILE)
@click.option("--provider", "providers", multiple=True, help="Only of this provider.")
@click.option(
    "--models", "pattern", metavar="PATTERN", help="Only matching models, such as gpt-5*."
)
@reads
def diff(
    root: Path | None,
    as_json: bool,
    file: Path | None,
    providers: Sequence[str],
    pattern: str | None,
) -> None:
    """Compare your own prices with the shipped ones; with FILE, the prices in force with it."""
    from remit.providers.prices import differences
    from remit.runtime.prices import planned

    settings, found = _prices(root)
    counts: dict[str, Any] = {}
    if file is None:
        changes: Sequence[Mapping[str, Any]] = differences(found.base, found.table)
        counts["own_version"] = found.table.version.partition(";")[0] if found.file.data else None
    else:
        read = read_prices(file, found, settings, providers, pattern, counts)
        changes = planned(
            found, found.own.merged(read, found.base, datetime.now(UTC).date())
        ).changes
    emit(as_json, {**found.versions, **counts, "changes": changes}, change_lines(changes, counts))


def _prices(root: Path | None) -> tuple[Settings, RootPrices]:
    from remit.runtime.prices import prices_of

    place, settings = _settled(root)
    return settings, prices_of(place, settings.budget.prices)


def _settled(root: Path | None) -> tuple[Root, Settings]:
    """Return a root and its settings; complete or undo an interrupted change of prices first."""
    from remit.packages import PRICES_FILE, finish_prices, is_staged

    place, loaded = open_settings(root)
    settings = loaded.settings
    file = settings.budget.prices or PRICES_FILE
    if is_staged(place.path, file):
        with open_ledger(root) as ledger:
            wait_s = settings.packages.lock_timeout_s
            if entry_id := finish_prices(place.path, ledger, file, wait_s):
                note(f"The change recorded as {entry_id} was interrupted; it is complete now.")
            else:
                note("An interrupted change was not recorded; it was discarded.")
    return place, settings


def _change(
    root: Path | None,
    as_json: bool,
    change: Callable[[RootPrices, Settings], Overlay],
    *,
    dry_run: bool = False,
    reason: str = "",
    more: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Change the operator's prices and print the changes; with ``dry_run`` only print these.

    Without ``dry_run``, the prices file is replaced and an entry is appended to the ledger.

    Args:
        root: the given root, or None for the default.
        as_json: True to print JSON.
        change: computes the new prices from the prices in force and the settings.
        dry_run: True to change nothing.
        reason: the reason, for the ledger.
        more: further keys of the JSON output, such as counts of an import.
        notes: lines to print on standard error.
    """
    from remit.runtime.prices import change_own_prices, planned, prices_of

    place, settings = _settled(root)
    entry_id = ""
    if dry_run:
        before = prices_of(place, settings.budget.prices, create=True)
        made = planned(before, change(before, settings))
    else:
        with open_ledger(root, signing=True) as ledger:
            made, entry_id = change_own_prices(
                place, ledger, settings.budget.prices, lambda found: change(found, settings),
                wait_s=settings.packages.lock_timeout_s, by=whoami(), reason=reason,
            )  # fmt: skip
    shown = {"version": made.versions[1], "entry": entry_id or None, "dry_run": dry_run}
    emit(as_json, {**shown, **(more or {}), "changes": made.changes},
         change_lines(made.changes, more or {}))  # fmt: skip
    for line in notes:
        note(line)
    if dry_run:
        note("Nothing was changed (--dry-run).")
    elif entry_id:
        note(f"Recorded as {entry_id}; prices are {made.versions[1]}. A running server applies "
             "them within seconds.")  # fmt: skip
    else:
        note("The prices are set so already; nothing was changed.")


def _left_out(known: Price | None, rates: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each separate rate of the old price that the new one lacks."""
    from remit.providers.prices import price_data

    if known is None:
        return
    was = price_data(known)
    for rate in _RATES[2:]:
        whole = "output" if rate == "reasoning" else "input"
        if rate not in rates and was[rate] != was[whole]:
            yield (f"{rate} was {was[rate]} and is now charged as {whole}: "
                   f"--{rate.replace('_', '-')} sets it.")  # fmt: skip
    if known.tiers:
        yield "The tiers by context length were removed; import a table to set them."
