"""Operations that show and compare prices of models, in US dollars per million tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import RemitError
from remit.operations.files import io_errors
from remit.operations.operation import Feed, feed_of, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.price_models import (
    check_provider,
    known_providers,
    named_model,
    unknown_model,
)
from remit.operations.text import Note, Table, facts, shown

if TYPE_CHECKING:
    from remit.packages import RootPrices
    from remit.providers.prices import Overlay


RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")
_OF_TOKENS = "USD per million tokens"


PROVIDER: Any = field("Provider of the model; required if several have it.", None)
PROVIDERS: Any = field(
    "Only prices of this provider. Repeat for several (default: providers that are configured "
    "or have a price).", [], flag="--provider",
)  # fmt: skip
PATTERN: Any = field(
    "Only matching models, such as gpt-5*.", None, flag="--models", metavar="PATTERN"
)


def read_prices(
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
    known = known_providers(found, root)
    for name in providers:
        check_provider(name, known)
    if is_litellm(data):
        read, read_counts = read_litellm(
            data, str(file), found.table, found.base, found.own,
            providers=providers or known, models=pattern or "*", day=today(),
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
    provider: str | None = field("Only models of this provider.", None),
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
    provider: str | None = PROVIDER,
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
    who, bare = named_model(model, provider, prices, root)
    if (one := prices.table.find(who, bare)) is None:
        raise unknown_model(bare, who, prices)
    surcharges = {
        name: {value: times / 100 for value, times in values.items()}
        for name, values in one.surcharges.items()
    }
    return {**prices.versions, "price": {**prices.shown(one), "surcharges": surcharges}}


def change_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield each price with its earlier rates, and the counts of a file.

    Args:
        found: the result of a change or a comparison.
    """
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
    rates = [f"{name} {price[name]}" for name in RATES
             if name == whole_rate(name) or price[name] != price[whole_rate(name)]]  # fmt: skip
    rest = [f"{name} {shown(value)}" for name, value in price.items()
            if name not in RATES and value != (other or {}).get(name)]  # fmt: skip
    return ", ".join([f"{', '.join(rates)} {_OF_TOKENS}", *rest])


@verb("price diff", lines=change_lines)
def diff_prices(
    root: RootPort, caller: Caller, *,
    file: Path | None = field("File of prices.", None, flag="", metavar="[FILE]"),
    providers: list[str] = PROVIDERS,
    pattern: str | None = PATTERN,
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
        read = read_prices(root, found, file, providers, pattern, counts)
        changes = planned(found, found.own.merged(read, found.base, today())).changes
    return {**found.versions, **counts, "changes": changes}


def today() -> date:
    """Return the present day in UTC, the date of a changed price."""
    return datetime.now(UTC).date()


def whole_rate(rate: str) -> str:
    """Return the rate that applies if a rate is not set: of all input, or of all output.

    Args:
        rate: one of :data:`RATES`.
    """
    return "output" if rate in ("output", "reasoning") else "input"
