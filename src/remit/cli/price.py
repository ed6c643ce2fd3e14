"""``remit price``: what models cost here, and the operator's own prices over the shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    FILE,
    emit,
    nearest,
    note,
    open_ledger,
    open_settings,
    reads,
    table,
    whoami,
)

if TYPE_CHECKING:
    from remit.kernel.settings import Settings
    from remit.providers.prices import Overlay, Price
    from remit.runtime.prices import RootPrices

_RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")
_COLUMNS = ("model", "provider", "input", "output", "cached", "window", "most out", "date", "whose")


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
    from fnmatch import fnmatchcase

    found = _prices(root)[1]
    mine = _own_names(found)
    shown = [
        one
        for one in found.table
        if (provider is None or one.provider == provider)
        and (not own or (one.provider, one.model) in mine)
        and (pattern is None or fnmatchcase(one.model, pattern) or fnmatchcase(_bare(one), pattern))
    ]
    data = [_shown(one, mine) for one in shown]
    emit(as_json, {**found.versions, "prices": data}, table(_COLUMNS, map(_row, data)))
    if not as_json:
        note(f"prices {found.table.version}")


@price.command()
@click.argument("model")
@click.option("--provider", help="Whose model; needed where several have it.")
@reads
def show(root: Path | None, as_json: bool, model: str, provider: str | None) -> None:
    """What one model costs, by any of its names, and where that comes from."""
    settings, found = _prices(root)
    who, bare = _named(model, provider, found, settings)
    one = found.table.find(who, bare)
    if one is None:
        raise _unknown(bare, who, found)
    data = _shown(one, _own_names(found))
    data["surcharges"] = {
        name: {value: times / 100 for value, times in values.items()}
        for name, values in one.surcharges.items()
    }
    lines = [f"{key}: {_text(value)}" for key, value in data.items() if value not in (None, "", {})]
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
        who, bare = _named(model, provider, found, settings)
        known = found.table.find(who, bare)
        key = found.own.key_of(who, bare, found.base)
        if known is None and (len(sizes) < 2 and not (sizes and rates["output"] == "0")):
            raise _unknown(bare, who, found, for_set=True)
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
    from remit.providers.prices import Overlay, PriceError

    if everything == bool(model):
        raise click.UsageError("Name a model, or say --all.")

    def change(found: RootPrices, settings: Settings) -> Overlay:
        if everything:
            return Overlay({})
        who, bare = _named(str(model), provider, found, settings)
        key = found.own.key_of(who, bare, found.base)
        if key not in found.own.models:
            raise PriceError(
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
    told: dict[str, Any] = {}

    def change(found: RootPrices, settings: Settings) -> Overlay:
        read = _file_of(file, found, settings, providers, pattern, told)
        if replace:
            return read
        return found.own.merged(read, found.base, day)

    _change(root, as_json, change, dry_run=dry_run, reason=f"Prices imported from {file.name}",
            more=told)  # fmt: skip


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
    told: dict[str, Any] = {}
    if file is None:
        changes: Sequence[Mapping[str, Any]] = differences(found.base, found.table)
        told["own_version"] = found.table.version.partition(";")[0] if found.sha256 else None
    else:
        read = _file_of(file, found, settings, providers, pattern, told)
        changes = planned(
            found, found.own.merged(read, found.base, datetime.now(UTC).date())
        ).changes
    emit(as_json, {**found.versions, **told, "changes": changes}, _change_lines(changes, told))


def _prices(root: Path | None) -> tuple[Settings, RootPrices]:
    from remit.runtime.prices import prices_of

    place, loaded = open_settings(root)
    return loaded.settings, prices_of(place, loaded.settings.budget.prices)


def _file_of(
    file: Path,
    found: RootPrices,
    settings: Settings,
    providers: Sequence[str],
    pattern: str | None,
    told: dict[str, Any],
) -> Overlay:
    """The prices of a file, of some providers and models."""
    from fnmatch import fnmatchcase

    from remit.providers.prices import Overlay, PriceError, is_litellm, read_litellm

    try:
        data = file.read_bytes()
    except OSError as error:
        raise PriceError(
            f"{file} cannot be read: {error.strerror}.", next_step="Name a file of prices."
        ) from error
    known = _providers(found, settings)
    for name in providers:
        _check_provider(name, known)
    if is_litellm(data):
        imported = read_litellm(
            data, str(file), found.table, found.base, found.own,
            providers=providers or known, models=pattern or "*", day=datetime.now(UTC).date(),
        )  # fmt: skip
        told |= {"same": imported.same, "skipped": dict(imported.skipped)}
        return imported.overlay
    read = Overlay.read(data, str(file), found.base)
    for key, size in read.without_sizes(found.base).items():
        raise PriceError(
            f'{file}: models."{key}" has no {size}, and is unknown here: its calls have no bound.',
            next_step=f"Add {size}; docs/prices.md describes every key.",
        )
    for key, entry in list(read.models.items()):
        bare = key.removeprefix(f"{entry['provider']}/")
        if (providers and entry["provider"] not in providers) or (
            pattern and not fnmatchcase(bare, pattern)
        ):
            del read.models[key]
    return read


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

    place, loaded = open_settings(root)
    settings = loaded.settings
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
    told = {"version": made.versions[1], "entry": entry_id or None, "dry_run": dry_run}
    emit(as_json, {**told, **(more or {}), "changes": made.changes},
         _change_lines(made.changes, more or {}))  # fmt: skip
    for line in notes:
        note(line)
    if dry_run:
        note("Nothing was changed (--dry-run).")
    elif entry_id:
        note(f"On record as {entry_id}; prices are {made.versions[1]}. A running server takes them "
             "up within seconds.")  # fmt: skip
    else:
        note("Nothing had to be changed.")


def _named(
    model: str, provider: str | None, found: RootPrices, settings: Settings
) -> tuple[str, str]:
    """Provider and model that a person means."""
    known = _providers(found, settings)
    first, slash, rest = model.partition("/")
    if provider is None and slash and first in known:
        return first, rest
    if provider is not None:
        _check_provider(provider, known)
        return provider, model.removeprefix(f"{provider}/")
    having = sorted({one.provider for one in found.table if found.table.find(one.provider, model)})
    if len(having) == 1:
        return having[0], model
    if len(having) > 1:
        raise click.UsageError(f"Several providers have {model}: name one with --provider "
                               f"({', '.join(having)}).")  # fmt: skip
    for prefix in sorted(settings.model.prefixes, key=len, reverse=True):
        if model.startswith(prefix):
            return settings.model.prefixes[prefix], model
    near = nearest(model, (_bare(one) for one in found.table))
    raise click.UsageError(
        f"No provider is known to have {model}."
        + (f" Did you mean {near}?" if near else "")
        + " Name its provider with --provider."
    )


def _check_provider(name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = nearest(name, known)
        hint = f"Did you mean {near}?" if near else f"Known are {', '.join(known)}."
        raise click.UsageError(f"There is no provider {name}: neither in remit.toml nor among the "
                               f"prices. {hint}")  # fmt: skip


def _providers(found: RootPrices, settings: Settings) -> list[str]:
    return sorted({*found.table.providers, *settings.providers})


def _unknown(bare: str, provider: str, found: RootPrices, *, for_set: bool = False) -> Exception:
    from remit.providers.prices import PriceError

    near = nearest(bare, (_bare(one) for one in found.table if one.provider == provider))
    hint = f"Did you mean {near}? " if near else ""
    if for_set:
        hint += "For a model of its own, pass --context-window and --max-output-tokens: without "
        hint += "them its calls have no bound."
    return PriceError(
        f"The prices know no model {bare} of {provider}.",
        next_step=hint or "`remit price list` shows all; `remit price set` sets one.",
    )


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


def _own_names(found: RootPrices) -> frozenset[tuple[str, str]]:
    return frozenset((str(entry["provider"]), key) for key, entry in found.own.models.items())


def _shown(one: Price, own: frozenset[tuple[str, str]]) -> dict[str, Any]:
    from remit.providers.prices import price_data

    origin = "own" if (one.provider, one.model) in own else "shipped"
    return {**price_data(one), "model": _bare(one), "origin": origin}


def _bare(one: Price) -> str:
    return one.model.removeprefix(f"{one.provider}/")


def _row(data: Mapping[str, Any]) -> list[str]:
    names = ("model", "provider", "input", "output", "cached_input", "context_window",
             "max_output_tokens", "date", "origin")  # fmt: skip
    return [str(data[name] or "-") for name in names]


def _change_lines(changes: Sequence[Mapping[str, Any]], told: Mapping[str, Any]) -> Iterator[str]:
    for one in changes:
        before, after = one["before"] or {}, one["after"] or {}
        head = f"{one['provider']}/{one['model']}"
        if not one["after"]:
            yield f"- {head}: no price any more"
            continue
        told_of = [
            f"{key} {_text(before.get(key))} -> {_text(after.get(key))}" if before
            else f"{key} {_text(after[key])}"
            for key in {**before, **after}
            if before.get(key) != after.get(key)
        ]  # fmt: skip
        yield f"{'~' if before else '+'} {head}: {', '.join(told_of)}"
    if not changes:
        yield "no difference"
    if "same" in told:
        yield f"{told['same']} prices of the file are in force already"
    for why, count in told.get("skipped", {}).items():
        yield f"{count} left out: {why}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return (
            "; ".join(", ".join(f"{key} {part}" for key, part in tier.items()) for tier in value)
            or "none"
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return "none" if value is None else str(value)
