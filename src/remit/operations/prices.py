"""Operations on the prices of models, in US dollars per million tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError, nearest
from remit.operations.files import io_errors
from remit.operations.operation import Feed, feed_of, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note, Table, facts, shown

if TYPE_CHECKING:
    from remit.packages import RootPrices
    from remit.providers.prices import Overlay, Price

_RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")
_OF_TOKENS = "USD per million tokens"


def _provider(text: str = "Provider of the model; required if several have it.") -> Any:
    return field(text, None)


def _rate(text: str, **traits: Any) -> Any:
    return field(text, metavar="USD", **traits)


_PROVIDERS: Any = field(
    "Only prices of this provider. Repeat for several (default: providers that are configured "
    "or have a price).", [], flag="--provider",
)  # fmt: skip


_PATTERN: Any = field(
    "Only matching models, such as gpt-5*.", None, flag="--models", metavar="PATTERN"
)


def _read(
    root: RootPort, found: RootPrices, file: Path, providers: list[str], pattern: str | None,
    counts: dict[str, Any],
) -> Overlay:  # fmt: skip
    """Return the prices of a file, of the wanted providers and models.

    Args:
        root: the root.
        found: the prices in force.
        file: the file.
        providers: the wanted providers; empty for those that are known.
        pattern: pattern of the wanted models; None for all.
        counts: receives ``same`` and ``skipped`` of a LiteLLM file.

    Raises:
        InvalidInputError: a provider is unknown.
        RemitError: the file cannot be read, or a key is wrong; the message names the key.
    """
    from fnmatch import fnmatchcase

    from remit.providers.prices import Overlay, is_litellm, read_litellm

    with io_errors(file, kind=partial(RemitError, next_step="Give a file that you can read.")):
        data = file.read_bytes()
    known = _known_providers(found, root)
    for name in providers:
        _check_provider(name, known)
    if is_litellm(data):
        read, read_counts = read_litellm(
            data, str(file), found.table, found.base, found.own,
            providers=providers or known, models=pattern or "*", day=_today(),
        )  # fmt: skip
        counts |= read_counts
        return read
    read = Overlay.read(data, str(file), found.base)
    for key, size in read.without_sizes(found.base).items():
        raise RemitError(
            f'{file}: models."{key}" has no {size}, and the model is new: its calls have no '
            "bound.", next_step=f"Add {size}; docs/prices.md describes every key.",
        )  # fmt: skip
    for key, entry in list(read.models.items()):
        bare = key.removeprefix(f"{entry['provider']}/")
        if (providers and entry["provider"] not in providers) or (
            pattern and not fnmatchcase(bare, pattern)
        ):
            del read.models[key]
    return read


def _token_rate(name: str) -> Callable[[dict[str, Any]], Any]:
    """Return the function that gives a rate of a price; None if only other units have a price."""
    others = {"per_second", "per_million_characters"}
    return lambda one: None if one["output"] == "0" and others & one.keys() else one[name]


@verb(
    "price list", "GET /prices", summary="List prices", form="PriceQuery", result="PricePage",
    member="prices", endpoint="listed",
    columns=(
        "model", "provider", ("input", _token_rate("input")), ("output", _token_rate("output")),
        ("cached", _token_rate("cached_input")),
        ("window", lambda one: one["context_window"]),
        ("max out", lambda one: one["max_output_tokens"]),
        "date", ("source", lambda one: one["origin"]),
    ),
)  # fmt: skip
def list_prices(
    root: RootPort, caller: Caller, *,
    model: str | None = field(
        "Name of a model, or a pattern such as `gpt-4o*`.", None, flag="", metavar="[PATTERN]"
    ),
    provider: str | None = _provider("Only models of this provider."),
    own: bool = field("Only prices set by the operator.", False),
) -> Feed:  # fmt: skip
    """List the prices in force, sorted by provider and model, with source and date.

    With PATTERN (gpt-4o*), only prices of matching models are listed.

    Returns:
        A list, page by page, with the versions of the tables. Over HTTP also ``entry``, which
        recorded the operator's present prices; None if they are not recorded.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import recorded_prices

    prices, entry = root.prices, {}
    if not caller.is_local:
        recorded = recorded_prices(root.ledger)
        is_recorded = not prices.packaged and prices.file.matches(recorded)
        entry = {"entry": (recorded.entry_id or None) if is_recorded else None}
    return feed_of(
        prices.chosen(provider=provider, pattern=model or "*", own=own),
        lambda price: f"{price.provider}/{price.model}",
        lambda part: map(prices.shown, part),
        rest={**prices.versions, **entry},
        note=f"{_OF_TOKENS}; prices {prices.table.version}",
    )


@verb("price show")
def show_price(
    root: RootPort, caller: Caller, *,
    model: str = field("Name of the model.", flag=""),
    provider: str | None = _provider(),
) -> dict[str, Any]:  # fmt: skip
    """Show the price of a model, by any of its names, and its origin.

    Returns:
        ``price`` with its surcharges, and the versions of the tables.

    Raises:
        InvalidInputError: no provider has the model, several have and none is named, or the named
            one is unknown.
        RemitError: the model has no price.
        LedgerError: the ledger cannot be read.
    """
    prices = root.prices
    who, bare = _named_model(model, provider, prices, root)
    if (one := prices.table.find(who, bare)) is None:
        raise _unknown_model(bare, who, prices)
    surcharges = {
        name: {value: times / 100 for value, times in values.items()}
        for name, values in one.surcharges.items()
    }
    return {**prices.versions, "price": {**prices.shown(one), "surcharges": surcharges}}


def _change_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield each price with its earlier rates, and the counts of a file."""
    for one in found["changes"]:
        before, after = one["before"], one["after"]
        yield f"{one['provider']}/{one['model']}: {_charges(after, before)}"
        yield f"  before: {_charges(before, after)}"
    if not found["changes"]:
        yield "No price differs."
    yield from facts({name: found[name] for name in found if name in ("same", "skipped")})
    if found.get("dry_run"):
        yield Note("Nothing was changed.")
    if found.get("entry"):
        yield Note(f"Recorded as {found['entry']}. A running server applies it within seconds.")


def _charges(price: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """Return the rates of a price for tokens, and what else differs from another price."""
    if price is None:
        return "no price"
    rates = [f"{name} {price[name]}" for name in _RATES
             if name == _whole(name) or price[name] != price[_whole(name)]]  # fmt: skip
    rest = [f"{name} {shown(value)}" for name, value in price.items()
            if name not in _RATES and value != (other or {}).get(name)]  # fmt: skip
    return ", ".join([f"{', '.join(rates)} {_OF_TOKENS}", *rest])


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


@verb("price set", changes=True, lines=_change_lines)
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
    provider: str | None = _provider("Provider of the model; required if several or none have it."),
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

    stated = dict(zip(_RATES, (input, output, cached_input, cache_write, cache_write_long,
                               reasoning), strict=True))  # fmt: skip
    left_out: list[str] = []

    def change(found: RootPrices) -> Overlay:
        rates = {rate: parse_decimal(value, f"--{rate.replace('_', '-')}")
                 for rate, value in stated.items() if value is not None}  # fmt: skip
        given = {"context_window": context_window, "max_output_tokens": max_output_tokens}
        sizes = {size: value for size, value in given.items() if value}
        who, bare = _named_model(model, provider, found, root, is_new=len(sizes) == 2)
        known = found.table.find(who, bare)
        key = found.own.key_of(who, bare, found.base)
        if known is None and (len(sizes) < 2 and not (sizes and rates["output"] == "0")):
            raise _unknown_model(bare, who, found, for_set=True)
        kept = {
            name: value
            for name, value in found.own.models.get(key, {}).items()
            if name not in (*_RATES, "tiers", "date", "source")
        }
        if known is not None and not kept and not found.base.entry_name(who, bare):
            kept = Overlay.sizes_of(known)
        left_out[:] = _left_out(known, rates)
        entry = {**kept, "provider": who, "date": _today(), **rates, **sizes}
        origin = {"source": source} if source else {}
        return found.own.with_entry(key, {**entry, **origin}, _today())

    done = _changed(root, caller, change)
    for sentence in left_out:
        root.note(sentence)
    return done


@verb("price unset", changes=True, lines=_change_lines)
def unset_price(
    root: RootPort, caller: Caller, *,
    model: str | None = field("Name of the model.", None, flag="", metavar="[MODEL]"),
    provider: str | None = _provider(),
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
        who, bare = _named_model(str(model), provider, found, root)
        key = found.own.key_of(who, bare, found.base)
        if key not in found.own.models:
            raise RemitError(
                f"You have no price of your own for {bare} of {who}.",
                next_step="`remit price list --own` lists your prices.",
            )
        return found.own.without(key, _today())

    return _changed(root, caller, change)


@verb("price import", changes=True, lines=_change_lines)
def import_prices(
    root: RootPort, caller: Caller, *,
    file: Path = field("File of prices.", flag=""),
    replace: bool = field("Replace all your prices instead of adding to them.", False),
    dry_run: bool = field("Show the changes without making them.", False),
    providers: list[str] = _PROVIDERS,
    pattern: str | None = _PATTERN,
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
        read = _read(root, found, file, providers, pattern, counts)
        return read if replace else found.own.merged(read, found.base, _today())

    reason = f"Prices imported from {file.name}"
    done = _changed(root, caller, change, reason=reason, dry_run=dry_run)
    changes = done.pop("changes")
    return {**done, **counts, "changes": changes}


@verb("price diff", lines=_change_lines)
def diff_prices(
    root: RootPort, caller: Caller, *,
    file: Path | None = field("File of prices.", None, flag="", metavar="[FILE]"),
    providers: list[str] = _PROVIDERS,
    pattern: str | None = _PATTERN,
) -> dict[str, Any]:  # fmt: skip
    """Compare your own prices with the shipped ones. With FILE, compare prices in force with it.

    Returns:
        ``changes`` (:func:`~remit.providers.prices.differences`) and the versions of the tables;
        with a file, the changes that its import would make. Nothing is changed. Without a file, the
        providers and the pattern have no effect.

    Raises:
        InvalidInputError: a provider is unknown.
        RemitError: the file cannot be read, or a key is wrong.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import planned
    from remit.providers.prices import differences

    found, counts = root.prices, dict[str, Any]()
    if file is None:
        changes: Sequence[Mapping[str, Any]] = differences(found.base, found.table)
        counts["own_version"] = found.table.version.partition(";")[0] if found.file.data else None
    else:
        read = _read(root, found, file, providers, pattern, counts)
        changes = planned(found, found.own.merged(read, found.base, _today())).changes
    return {**found.versions, **counts, "changes": changes}


def _today() -> date:
    return datetime.now(UTC).date()


def _named_model(
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

    known = _known_providers(found, root)
    first, rest = split_name(model, known)
    if provider is not None:
        if not is_new:
            _check_provider(provider, known)
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


def _check_provider(name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = nearest(name, known)
        raise InvalidInputError(
            f"Unknown provider {name}: it is neither in remit.toml nor in the prices.",
            next_step=f"Did you mean {near}?" if near else f"Known are {', '.join(known)}.",
        )


def _known_providers(found: RootPrices, root: RootPort) -> list[str]:
    return sorted({*found.table.providers, *root.settings.providers})


def _unknown_model(
    bare: str, provider: str, found: RootPrices, *, for_set: bool = False
) -> Exception:
    near = nearest(bare, (one.bare_name for one in found.table if one.provider == provider))
    hint = f"Did you mean {near}? " if near else ""
    if for_set:
        hint += "For a new model, pass --context-window and --max-output-tokens: without "
        hint += "them its calls have no bound."
    return RemitError(
        f"There is no price for {bare} of {provider}.",
        next_step=hint or "Check the name (`remit price list`), or set a price: `remit price set`.",
    )


def _whole(rate: str) -> str:
    """Return the rate that applies if this one is not set: of all input, or of all output."""
    return "output" if rate in ("output", "reasoning") else "input"


def _left_out(known: Price | None, rates: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each separate rate of the old price that the new one lacks."""
    from remit.providers.prices import price_data

    if known is None:
        return
    was = price_data(known)
    for rate in _RATES[2:]:
        whole = _whole(rate)
        if rate not in rates and was[rate] != was[whole]:
            yield (f"{rate} was {was[rate]} and is now charged as {whole}: "
                   f"--{rate.replace('_', '-')} sets it.")  # fmt: skip
    if known.tiers:
        yield "The tiers by context length were removed; import a table to set them."
