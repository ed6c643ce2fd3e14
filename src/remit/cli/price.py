"""``remit price``: what models cost here, and the operator's own prices over the shipped ones."""

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
    """What models cost: US dollars per million tokens."""


@price.command("list")
@click.argument("pattern", required=False)
@click.option("--provider", help="Only models of this provider.")
@click.option("--own", is_flag=True, help="Only the operator's own prices.")
@reads
def list_all(
    root: Path | None, as_json: bool, pattern: str | None, provider: str | None, own: bool
) -> None:
    """The prices in force; with PATTERN (gpt-4o*) of the models that match."""
    found = _prices(root)[1]
    chosen = found.chosen(provider=provider, pattern=pattern or "*", own=own)
    data = [found.shown(one) for one in chosen]
    emit(as_json, {**found.versions, "prices": data}, table(COLUMNS, map(row, data)))
    if not as_json:
        note(f"prices {found.table.version}")


@price.command()
@click.argument("model")
@click.option("--provider", help="Whose model; needed where several have it.")
@reads
def show(root: Path | None, as_json: bool, model: str, provider: str | None) -> None:
    """What one model costs, by any of its names, and where that comes from."""
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
@click.option("--input", "input_", required=True, metavar="USD", help="Of a million input tokens.")
@click.option("--output", required=True, metavar="USD", help="Of a million output tokens.")
@click.option("--cached-input", metavar="USD", help="Read from a cache; as input when left out.")
@click.option("--cache-write", metavar="USD", help="Written to one; as input when left out.")
@click.option("--cache-write-long", metavar="USD", help="For long retention; as --cache-write.")
@click.option("--reasoning", metavar="USD", help="Thinking; as output when left out.")
@click.option("--context-window", type=click.IntRange(1), help="Most tokens of a call.")
@click.option("--max-output-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
@click.option("--provider", help="Whose model; needed where several have it, or none.")
@click.option("--source", default="", help="Where the price comes from; stays in the table.")
@reads
def set_(root: Path | None, as_json: bool, model: str, **given: Any) -> None:
    """Set a price of your own: these rates, and no others.

    Sizes and names of a model that is known stay. A model that is not needs --provider,
    --context-window and --max-output-tokens, without which no call of it has a bound.
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
@click.option("--provider", help="Whose model; needed where several have it.")
@click.option("--all", "everything", is_flag=True, help="All prices of your own.")
@reads
def unset(
    root: Path | None, as_json: bool, model: str | None, provider: str | None, everything: bool
) -> None:
    """Take a price of your own back: the shipped one holds again, or none."""
    from remit.kernel.errors import RemitError
    from remit.providers.prices import Overlay

    if everything == bool(model):
        raise click.UsageError("Name a model, or say --all.")

    def change(found: RootPrices, settings: Settings) -> Overlay:
        if everything:
            return Overlay({})
        who, bare = named_model(str(model), provider, found, settings)
        key = found.own.key_of(who, bare, found.base)
        if key not in found.own.models:
            raise RemitError(
                f"There is no price of your own for {bare} of {who}.",
                next_step="`remit price list --own` shows those there are.",
            )
        return found.own.without(key, datetime.now(UTC).date())

    _change(root, as_json, change)


@price.command("import")
@click.argument("file", type=FILE)
@click.option("--provider", "providers", multiple=True, help="Only prices of this provider; again "
              "for more. Else of those that are set up or have a price here.")  # fmt: skip
@click.option("--models", "pattern", metavar="PATTERN", help="Only models that match, as gpt-5*.")
@click.option("--replace", is_flag=True, help="Instead of your prices there are, not over them.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
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
    """Take prices of FILE as your own: a table as docs/prices.md describes it, or LiteLLM's
    model_prices_and_context_window.json, of which what differs is taken.
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
@click.option("--models", "pattern", metavar="PATTERN", help="Only models that match, as gpt-5*.")
@reads
def diff(
    root: Path | None,
    as_json: bool,
    file: Path | None,
    providers: Sequence[str],
    pattern: str | None,
) -> None:
    """Your own prices against the shipped ones; with FILE, the prices in force against it."""
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
    """A root and its settings; a change of prices that was cut off is finished first, or undone."""
    from remit.packages import PRICES_FILE, finish_prices, is_staged

    place, loaded = open_settings(root)
    settings = loaded.settings
    file = settings.budget.prices or PRICES_FILE
    if is_staged(place.path, file):
        with open_ledger(root) as ledger:
            wait_s = settings.packages.lock_timeout_s
            if entry_id := finish_prices(place.path, ledger, file, wait_s):
                note(f"The change that {entry_id} recorded was interrupted; it is finished now.")
            else:
                note("A change was interrupted before it was recorded; nothing of it is left.")
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
    """Change the operator's prices, and print what that came to."""
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
        note(f"On record as {entry_id}; prices are {made.versions[1]}. A running server takes them "
             "up within seconds.")  # fmt: skip
    else:
        note("Nothing had to be changed.")


def _left_out(known: Price | None, rates: Mapping[str, str]) -> Iterator[str]:
    """Rates that the price before had apart, and the new one has not."""
    from remit.providers.prices import price_data

    if known is None:
        return
    was = price_data(known)
    for rate in _RATES[2:]:
        whole = "output" if rate == "reasoning" else "input"
        if rate not in rates and was[rate] != was[whole]:
            yield (f"{rate} was {was[rate]} and is now charged as {whole}: "
                   f"--{rate.replace('_', '-')} sets it apart.")  # fmt: skip
    if known.tiers:
        yield "The tiers by context length are gone; a table with `tiers` can be imported."
