"""Import of prices from LiteLLM's ``model_prices_and_context_window.json``.

The figures are US dollars per token, as JSON numbers; they are read as decimals, not as floats.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_HALF_EVEN, ROUND_UP, Decimal
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any

from remit.kernel.errors import RemitError
from remit.providers.prices.overlay import Overlay
from remit.providers.prices.price import RATES
from remit.providers.prices.shown import rate_data
from remit.providers.prices.table import PriceTable

__all__ = ["Imported", "is_litellm", "read_litellm"]

_RATES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_long": "cache_creation_input_token_cost_above_{hours}hr",
    "reasoning": "output_cost_per_reasoning_token",
}
_LONG = (1, 12)  # hours of long retention, by provider
_SOUND = {
    "audio_input": "input_cost_per_audio_token",
    "audio_output": "output_cost_per_audio_token",
}
_TIER = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")
_PROVIDERS = {"gemini": "google"}  # LiteLLM's name of a provider: ours.
_MODES = frozenset({None, "chat", "completion", "responses", "embedding", "rerank", "moderation"})
_MILLION = 1_000_000
_PLACES = Decimal("1e-9")  # A table reads nine places.
_NOISE = Decimal("1e-9")  # The share of a figure that a float adds after its last true digit.


@dataclass(frozen=True, slots=True)
class Imported:
    """The prices of a LiteLLM file.

    Attributes:
        overlay: prices that differ from the prices in force.
        same: number of prices that are in force already.
        skipped: number of models left out, by reason.
    """

    overlay: Overlay
    same: int
    skipped: Mapping[str, int] = field(default_factory=dict)


def is_litellm(data: bytes) -> bool:
    """Return True if a file is JSON; a price table of Remit is TOML."""
    return data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


def read_litellm(
    data: bytes,
    name: str,
    in_force: PriceTable,
    base: PriceTable,
    overlay: Overlay,
    *,
    providers: Collection[str],
    models: str = "*",
    day: date,
) -> Imported:
    """Return the prices of a LiteLLM file that differ from the prices in force.

    A rate or size of a known model that the file does not state stays as it is in force.
    Models without a price per token are left out, and unknown models without limits.

    Args:
        data: the file's bytes.
        name: the file's name in errors.
        in_force: the present prices.
        base: the table under the overlay.
        overlay: the operator's prices, for the keys of their entries.
        providers: providers whose prices are taken.
        models: pattern of the models that are taken, for example ``gpt-5*``.
        day: the date of the new prices.

    Raises:
        RemitError: the file is not LiteLLM's, or a figure is no price; the model is named.
    """
    try:
        raw = json.loads(data, parse_float=Decimal, parse_int=int)
    except (ValueError, RecursionError) as error:
        raise RemitError(f"{name} is not valid JSON: {error}.") from error
    listed = {key: value for key, value in raw.items() if isinstance(value, dict)}
    listed.pop("sample_spec", None)
    if not any("input_cost_per_token" in value for value in listed.values()):
        raise RemitError(
            f"{name} is not a LiteLLM price table: no model has input_cost_per_token.",
            next_step="Give model_prices_and_context_window.json, or a table as docs/prices.md "
            "describes it.",
        )
    found, same, skipped = Overlay({"version": day}), 0, Counter[str]()
    for key, value in listed.items():
        theirs = str(value.get("litellm_provider"))
        provider = _PROVIDERS.get(theirs, theirs)
        model = key.removeprefix(f"{theirs}/")
        if provider not in providers or not fnmatchcase(model, models):
            skipped["of other providers or models"] += 1
        elif value.get("mode") not in _MODES or "input_cost_per_token" not in value:
            skipped["without a price per token"] += 1
        elif model.startswith("ft:") or "/" in model:
            skipped["fine-tuned or of a region"] += 1
        elif not any(value.get(rate) for rate in _RATES.values()):
            skipped["at 0 there, which need not mean free"] += 1
        else:
            entry = _entry(f'{name}: "{key}".', value, (provider, model), in_force, base, day)
            if entry is None:
                same += 1
            elif "context_window" not in entry and not _known(in_force, provider, model):
                skipped["unknown here, and without limits"] += 1
            else:
                found = found.with_entry(overlay.key_of(provider, model, base), entry, day)
    return Imported(found, same, dict(skipped))


def _known(in_force: PriceTable, provider: str, model: str) -> bool:
    price = in_force.find(provider, model)
    return price is not None and price.context_window is not None


def _entry(
    at: str,
    value: Mapping[str, Any],
    of_model: tuple[str, str],
    in_force: PriceTable,
    base: PriceTable,
    day: date,
) -> dict[str, Any] | None:
    """Return the entry of a model; ``None`` if it charges the price in force."""
    provider, model = of_model
    price = in_force.find(provider, model)
    now = rate_data(price) if price is not None else {}
    rates = {rate: _stated(value, stated, at) for rate, stated in {**_RATES, **_SOUND}.items()}
    entry: dict[str, Any] = {"provider": provider, "date": day}
    for rate, usd in rates.items():
        if usd is not None and (usd != "0" or not rate.startswith("cache_write")):
            entry[rate] = usd  # LiteLLM states 0 if nothing can be written to a cache.
        elif rate in now:
            entry[rate] = now[rate]
    entry.setdefault("output", "0")
    if tiers := list(_tiers(value, entry, now, at)) or now.get("tiers"):
        entry["tiers"] = tiers
    for rate in ("per_second", "per_million_characters"):
        if rate in now:
            entry[rate] = now[rate]
    if price is not None and all(_same(entry, now, rate) for rate in (*RATES, *_SOUND, "tiers")):
        return None
    if price is not None:
        entry |= {} if base.entry_name(provider, model) else Overlay.sizes_of(price)
    else:
        sizes = [value.get(size) for size in ("max_input_tokens", "max_output_tokens")]
        most_in, most_out = (size if type(size) is int and size > 0 else 0 for size in sizes)
        if most_in:  # LiteLLM's size is of the input, ours of input and output.
            entry["context_window"] = most_in + most_out
        if most_out:
            entry["max_output_tokens"] = most_out
        elif float(entry["output"]):
            entry.pop("context_window", None)  # A call has no bound without the size of an answer.
    entry["source"] = "LiteLLM's price list"
    return entry


def _tiers(
    value: Mapping[str, Any], entry: Mapping[str, Any], now: Mapping[str, Any], at: str
) -> Iterator[dict[str, Any]]:
    """Yield the tiers by context length; each states every rate that the entry states."""
    kept = {tier["above_input_tokens"]: tier for tier in now.get("tiers", ())}
    sizes = sorted(int(found[1]) for stated in value if (found := _TIER.fullmatch(stated)))
    for thousands in sizes:
        tier: dict[str, Any] = {"above_input_tokens": thousands * 1000}
        for rate in (rate for rate in RATES if rate in entry):
            tier[rate] = (
                _stated(value, f"{_RATES[rate]}_above_{thousands}k_tokens", at)
                or kept.get(thousands * 1000, {}).get(rate)
                or _in_proportion(rate, tier, entry)
            )
        yield tier


def _in_proportion(rate: str, tier: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return a rate that a tier does not state: dearer in proportion to input or output."""
    whole = "output" if rate in ("output", "reasoning") else "input"
    usual = Decimal(entry[whole])
    if whole not in tier or not usual:
        return str(entry[rate])
    return _text(Decimal(entry[rate]) * Decimal(tier[whole]) / usual, ROUND_UP)


def _stated(value: Mapping[str, Any], name: str, at: str) -> str | None:
    """Return the first stated figure of a rate's names."""
    names = [name.replace("{hours}", str(hours)) for hours in _LONG] if "{" in name else [name]
    found = (_per_million(value, one, at) for one in names)
    return next((usd for usd in found if usd is not None), None)


def _text(usd: Decimal, rounding: str) -> str:
    text = f"{usd.quantize(_PLACES, rounding):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _per_million(value: Mapping[str, Any], stated: str, at: str) -> str | None:
    """Return a figure per token as US dollars per million; ``None`` if the file has none."""
    figure = value.get(stated)
    if figure is None:
        return None
    if isinstance(figure, bool) or not isinstance(figure, (int, Decimal)) or figure < 0:
        raise RemitError(f"{at}{stated} is {figure!s}; it must be US dollars per token, 0 or more.")
    usd = Decimal(figure) * _MILLION
    if not usd.is_finite() or usd > _MILLION:
        raise RemitError(f"{at}{stated} is {figure!s}; it must be US dollars per token.")
    if abs(usd - usd.quantize(_PLACES)) > usd * _NOISE:
        raise RemitError(f"{at}{stated} is {figure!s}: below a nano-dollar for a million tokens.")
    return _text(usd, ROUND_HALF_EVEN)


def _same(one: Mapping[str, Any], other: Mapping[str, Any], rate: str) -> bool:
    """Return True if two entries charge the same; a rate left out is the one of input or output."""
    first, second = one.get(rate), other.get(rate)
    if rate == "tiers":
        return _same_tiers(first or [], second or [])
    if first is None or second is None:
        return first is second or rate in RATES[2:]
    return Decimal(first) == Decimal(second)


def _same_tiers(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if tiers are the same; a start may differ by 1, as LiteLLM rounds it."""
    numbers = ([{key: Decimal(value) for key, value in tier.items()} for tier in tiers]
               for tiers in (one, other))  # fmt: skip
    pairs = list(zip_longest(*numbers, fillvalue=dict[str, Decimal]()))
    starts = [[tier.pop("above_input_tokens", Decimal(0)) for tier in pair] for pair in pairs]
    return all(first == second for first, second in pairs) and all(
        abs(first - second) <= 1 for first, second in starts
    )
