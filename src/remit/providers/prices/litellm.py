"""Import of prices from LiteLLM's ``model_prices_and_context_window.json``.

The steps: parse the file with exact decimals, choose models, convert each to an entry of a price
table, and drop entries that charge the price in force. The figures are US dollars per token.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from decimal import ROUND_HALF_EVEN, ROUND_UP, Decimal
from fnmatch import fnmatchcase
from typing import Any

from remit.kernel.errors import RemitError
from remit.providers.prices.overlay import Overlay
from remit.providers.prices.price import RATES, rate_data
from remit.providers.prices.table import PriceTable

_FIGURES = {
    "input": ("input_cost_per_token",),
    "output": ("output_cost_per_token",),
    "cached_input": ("cache_read_input_token_cost",),
    "cache_write": ("cache_creation_input_token_cost",),
    # The hours of long retention differ by provider.
    "cache_write_long": (
        "cache_creation_input_token_cost_above_1hr",
        "cache_creation_input_token_cost_above_12hr",
    ),
    "reasoning": ("output_cost_per_reasoning_token",),
    "audio_input": ("input_cost_per_audio_token",),
    "audio_output": ("output_cost_per_audio_token",),
}
"""LiteLLM's figures of each rate; the first that the file states applies."""

_TIER = re.compile(r"input_cost_per_token_above_([0-9]+)k_tokens")
_PROVIDERS = {"gemini": "google"}
"""Remit's name of a provider, keyed by LiteLLM's, if they differ."""

_MODES = frozenset({None, "chat", "completion", "responses", "embedding", "rerank", "moderation"})
_MILLION = 1_000_000
_PLACES = Decimal("1e-9")
"""The smallest unit of a price table, in US dollars."""

_NOISE = Decimal("1e-9")
"""The share of a figure that a float may add after its last true digit."""


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
) -> tuple[Overlay, dict[str, Any]]:
    """Return the prices of a LiteLLM file that differ from the prices in force; nothing is written.

    A known model keeps its sizes, and the rates in force that the file does not state. The file's
    sizes apply to a model without a context window in force. Skipped are other providers and
    models, modes other than text and embeddings, models without a price per token or at 0,
    fine-tuned and regional names, and models without a context window in force or in the file.

    Args:
        data: the file's bytes.
        name: the file's name in errors.
        in_force: the present prices.
        base: the table under the overlay.
        overlay: the operator's prices; their keys are used again for new entries.
        providers: providers whose prices are taken, by Remit's names.
        models: pattern of the models that are taken, for example ``gpt-5*``.
        day: the date of the new prices.

    Returns:
        The new entries, dated ``day`` also if there are none; and ``{"same", "skipped"}``: the
            number of prices that are in force already, and the number of skipped models by reason.

    Raises:
        RemitError: the file is not LiteLLM's, or a figure is not a price. The message names the
            model.
    """
    found, same, skipped = Overlay({"version": day}), 0, Counter[str]()
    for model, value in _parsed(data, name).items():
        theirs = str(value.get("litellm_provider"))
        provider = _PROVIDERS.get(theirs, theirs)
        bare = model.removeprefix(f"{theirs}/")
        if provider not in providers or not fnmatchcase(bare, models):
            skipped["of other providers or models"] += 1
        elif value.get("mode") not in _MODES or "input_cost_per_token" not in value:
            skipped["without a price per token"] += 1
        elif bare.startswith("ft:") or "/" in bare:
            skipped["fine-tuned or of a region"] += 1
        elif not any(value.get(figure) for rate in RATES for figure in _FIGURES[rate]):
            skipped["at 0 there, which need not mean free"] += 1
        else:
            price = in_force.find(provider, bare)
            current = rate_data(price) if price else {}
            rates = _rates(value, current, f'{name}: "{model}".')
            sizes = _sizes(value, rates)
            if price and price.context_window:
                sizes = {} if base.entry_name(provider, bare) else Overlay.sizes_of(price)
            elif price:
                sizes |= Overlay.sizes_of(price)
            if price and rates == current:
                same += 1
            elif not (price and price.context_window) and "context_window" not in sizes:
                skipped["unknown here, and without limits"] += 1
            else:
                entry = {"provider": provider, "date": day, **rates, **sizes}
                entry["source"] = "LiteLLM's price list"
                found = found.with_entry(overlay.key_of(provider, bare, base), entry, day)
    return found, {"same": same, "skipped": dict(skipped)}


def _parsed(data: bytes, name: str) -> dict[str, dict[str, Any]]:
    """Return the models of a file; raise RemitError if it is not LiteLLM's."""
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
    return listed


def _rates(value: Mapping[str, Any], current: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return the rates and tiers of a model, in US dollars per million tokens.

    Args:
        value: the model in LiteLLM's file.
        current: the rates in force, which apply if the file states none; empty if unknown.
        at: place of the model in errors.
    """
    rates: dict[str, Any] = {"output": "0", **current}
    for rate in _FIGURES:
        usd = _usd(value, rate, at)
        # LiteLLM states 0 if nothing can be written to a cache.
        if usd is not None and (usd != "0" or not rate.startswith("cache_write")):
            rates[rate] = usd
    if tiers := list(_tiers(value, rates, current.get("tiers", ()), at)):
        rates["tiers"] = tiers
    return rates


def _sizes(value: Mapping[str, Any], rates: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a model that bound the cost of its calls; empty if they do not."""
    sizes = [value.get(size) for size in ("max_input_tokens", "max_output_tokens")]
    most_in, most_out = (size if type(size) is int and size > 0 else 0 for size in sizes)
    # A call has no bound without the size of an answer, unless answers are free.
    if not most_out:
        return {"context_window": most_in} if most_in and not Decimal(rates["output"]) else {}
    # LiteLLM's window holds the input alone, Remit's the input and the output.
    window = {"context_window": most_in + most_out} if most_in else {}
    return {**window, "max_output_tokens": most_out}


def _tiers(
    value: Mapping[str, Any], rates: Mapping[str, Any], current: Collection[Any], at: str
) -> Iterator[dict[str, Any]]:
    """Yield the tiers by context length; each states every rate that the model states."""
    sizes = sorted(int(found[1]) for stated in value if (found := _TIER.fullmatch(stated)))
    for thousands in sizes:
        # LiteLLM rounds the start of a tier, so the start in force may differ by 1.
        old = [one for one in current if abs(one["above_input_tokens"] - thousands * 1000) <= 1]
        known = old[0] if old else {"above_input_tokens": thousands * 1000}
        tier: dict[str, Any] = {"above_input_tokens": known["above_input_tokens"]}
        for rate in (rate for rate in RATES if rate in rates):
            tier[rate] = (
                _usd(value, rate, at, f"_above_{thousands}k_tokens")
                or known.get(rate)
                or _in_proportion(rate, tier, rates)
            )
        yield tier


def _in_proportion(rate: str, tier: Mapping[str, Any], rates: Mapping[str, Any]) -> str:
    """Return a rate that a tier does not state, raised in proportion to input or output."""
    whole = "output" if rate in ("output", "reasoning") else "input"
    usual = Decimal(rates[whole])
    if whole not in tier or not usual:
        return str(rates[rate])
    return _text(Decimal(rates[rate]) * Decimal(tier[whole]) / usual, ROUND_UP)


def _usd(value: Mapping[str, Any], rate: str, at: str, suffix: str = "") -> str | None:
    """Return a rate in US dollars per million tokens; ``None`` if the file does not state it."""
    stated = [one + suffix for one in _FIGURES[rate] if value.get(one + suffix) is not None]
    if not stated:
        return None
    name, figure = stated[0], value[stated[0]]
    if type(figure) not in (int, Decimal) or not 0 <= figure <= 1:
        raise RemitError(f"{at}{name} is {figure!s}; it must be US dollars per token, from 0 to 1.")
    usd = Decimal(figure) * _MILLION
    if abs(usd - usd.quantize(_PLACES)) > usd * _NOISE:
        raise RemitError(f"{at}{name} is {figure!s}: below a nano-dollar for a million tokens.")
    return _text(usd, ROUND_HALF_EVEN)


def _text(usd: Decimal, rounding: str) -> str:
    text = f"{usd.quantize(_PLACES, rounding):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
