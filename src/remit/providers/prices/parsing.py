"""A price table's TOML, checked key by key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from remit.kernel.errors import RemitError
from remit.providers.prices.price import Price, Rates, Tier

__all__ = ["RATES", "Entry", "Limits", "ParsedTable", "parse"]

RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")
_REQUIRED = ("provider", "date", "input", "output")
_NAMES = ("aliases", "snapshots")
_SIZES = ("max_output_tokens", "context_window")
_FLAGS = ("thinks", "max_completion_tokens")
_SOUND = ("audio_input", "audio_output", "per_second", "per_million_characters")
_MODEL_KEYS = (*_REQUIRED, *RATES[2:], *_SIZES, *_SOUND, *_NAMES, *_FLAGS, "tiers", "source")
_TIER_KEYS = ("above_input_tokens", *RATES)
_TOP_KEYS = ("version", "limits", "same_prices", "server_tools", "surcharges", "models")
_TOOL_KEYS = ("per_use", "date", "source")
_LIMIT_KEYS = ("lowest", "highest")
SNAPSHOT_FORMS = {  # how providers date their snapshots; what strptime makes of each
    "YYYY-MM-DD": (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "%Y-%m-%d"),
    "YYYYMMDD": (re.compile(r"[0-9]{8}"), "%Y%m%d"),
}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_NANO = 1_000_000_000


class _Float(str):
    """A TOML float as it is written, so that no digit of it is lost."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Between which a price other than 0 must lie, in nano-dollars per million tokens."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the table; None where the table says nothing about its names."""

    price: Price
    aliases: tuple[str, ...] | None
    snapshots: str | None


@dataclass(frozen=True, slots=True)
class ParsedTable:
    """What one file says, checked."""

    version: str
    limits: Limits
    same_prices: Mapping[str, str]
    entries: tuple[Entry, ...]
    server_tools: Mapping[str, Mapping[str, int]]
    surcharges: Mapping[str, Mapping[str, Mapping[str, int]]]


def parse(text: str, name: str, defaults: Limits | None) -> ParsedTable:
    """Read and check a table.

    Args:
        text: the file's TOML.
        name: how errors call the file.
        defaults: limits for a table that states none.

    Raises:
        RemitError: it is not TOML, or a key is missing, unknown or of a wrong value.
    """
    try:
        raw = tomllib.loads(text, parse_float=_Float)
    except (ValueError, RecursionError) as error:  # huge integers and deep nesting as well
        raise RemitError(f"{name} is not valid TOML: {error}.") from error
    reader = _Reader(name)
    reader.known(raw, _TOP_KEYS, "")
    models = reader.table(raw, "models", "")
    limits = reader.limits(raw, defaults)
    same = reader.table(raw, "same_prices", "")
    return ParsedTable(
        version=reader.day(raw, "version", ""),
        limits=limits,
        same_prices={key: reader.text(same, key, "same_prices.") for key in same},
        entries=tuple(reader.entry(model, models, limits) for model in models),
        server_tools=reader.server_tools(raw),
        surcharges=reader.surcharges(raw),
    )


class _Reader:
    """Takes values out of TOML tables; its errors name file and key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wrong(self, key: str, what: str, next_step: str = "") -> RemitError:
        return RemitError(f"{self.name}: {key} {what}.", next_step=next_step)

    def known(self, raw: Mapping[str, Any], keys: Iterable[str], at: str) -> None:
        allowed = list(keys)
        for key in raw:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(allowed)}."
                raise self.wrong(f"{at}{key}", "is no key of a price table", hint)

    def table(self, raw: Mapping[str, Any], key: str, at: str) -> dict[str, Any]:
        value = raw.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(f"{at}{key}", "must be a table")
        return value

    def text(self, raw: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
        value = raw.get(key, default)
        if type(value) is not str or (not value and default is None):
            raise self.wrong(f"{at}{key}", "must be a text that is not empty")
        return value

    def day(self, raw: Mapping[str, Any], key: str, at: str) -> str:
        value = raw.get(key)
        try:
            if type(value) is date:
                return value.isoformat()
            if type(value) is str and SNAPSHOT_FORMS["YYYY-MM-DD"][0].fullmatch(value):
                return date.fromisoformat(value).isoformat()
        except ValueError:
            pass
        raise self.wrong(f"{at}{key}", "must be a day, such as 2026-11-22")

    def size(self, raw: Mapping[str, Any], key: str, at: str) -> int | None:
        value = raw.get(key)
        if value is None:
            return None
        if type(value) is not int or value <= 0:
            raise self.wrong(f"{at}{key}", f"is {value!r}; it must be a count of tokens above 0")
        return value

    def nano(self, value: object, key: str, limits: Limits | None) -> int:
        """USD per million tokens, as nano-dollars per million tokens."""
        written = str(value) if isinstance(value, str) or type(value) is int else repr(value)
        if not _NUMBER.fullmatch(written):
            raise self.wrong(
                key, f"is {written}; it must be US dollars per million tokens, such as '0.15'"
            )
        nano = Fraction(Decimal(written)) * _NANO
        if limits and nano and not limits.lowest <= nano <= limits.highest:
            raise self.wrong(
                key,
                f"is {written} US dollars per million tokens, outside what is believable",
                "Prices are per million tokens, not per token or per thousand; if it is right,"
                f" set limits in the file (now {Decimal(limits.lowest) / _NANO} to"
                f" {Decimal(limits.highest) / _NANO}).",
            )
        if nano.denominator != 1:
            raise self.wrong(key, f"is {written}; it has more than 9 places after the point")
        return nano.numerator

    def limits(self, raw: Mapping[str, Any], defaults: Limits | None) -> Limits:
        if "limits" not in raw and defaults is not None:
            return defaults
        table = self.table(raw, "limits", "")
        self.known(table, _LIMIT_KEYS, "limits.")
        low, high = (self.nano(table.get(key), f"limits.{key}", None) for key in _LIMIT_KEYS)
        if not 0 < low <= high:
            raise self.wrong("limits", "must have 0 < lowest <= highest")
        return Limits(low, high)

    def flag(self, raw: Mapping[str, Any], key: str, at: str) -> bool:
        value = raw.get(key, False)
        if type(value) is not bool:
            raise self.wrong(f"{at}{key}", f"is {value!r}; it must be true or false")
        return value

    def server_tools(self, raw: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        """Nano-dollars for one use, by provider and the tool's type."""
        found: dict[str, dict[str, int]] = {}
        providers = self.table(raw, "server_tools", "")
        for provider in providers:
            tools = self.table(providers, provider, "server_tools.")
            for name in tools:
                at = f"server_tools.{provider}.{name}."
                tool = self.table(tools, name, f"server_tools.{provider}.")
                self.known(tool, _TOOL_KEYS, at)
                self.day(tool, "date", at)
                self.text(tool, "source", at, "")
                nano = self.nano(tool.get("per_use"), f"{at}per_use", None)
                found.setdefault(provider, {})[name] = nano
        return found

    def surcharges(self, raw: Mapping[str, Any]) -> dict[str, dict[str, dict[str, int]]]:
        """What rates are multiplied by, in hundredths: by provider, field and value."""
        providers = self.table(raw, "surcharges", "")
        found: dict[str, dict[str, dict[str, int]]] = {}
        for provider in providers:
            fields = self.table(providers, provider, "surcharges.")
            for name in fields:
                at = f"surcharges.{provider}.{name}."
                values = self.table(fields, name, f"surcharges.{provider}.")
                found.setdefault(provider, {})[name] = {
                    value: -(-self.nano(times, f"{at}{value}", None) * 100 // _NANO)
                    for value, times in values.items()
                }
        return found

    def names(self, raw: Mapping[str, Any], key: str, at: str) -> tuple[str, ...] | None:
        value = raw.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(one) is str and one for one in value):
            raise self.wrong(f"{at}{key}", "must be a list of names")
        return tuple(value)

    def entry(self, model: str, models: Mapping[str, Any], limits: Limits) -> Entry:
        at = f'models."{model}".'
        raw = models[model]
        if not model or not isinstance(raw, dict):
            raise self.wrong(at[:-1], "must be a table with a name")
        self.known(raw, _MODEL_KEYS, at)
        for key in _REQUIRED:
            if key not in raw:
                raise self.wrong(f"{at}{key}", "is missing")
        snapshots = raw.get("snapshots")
        if snapshots is not None and snapshots not in list(SNAPSHOT_FORMS):
            raise self.wrong(f"{at}snapshots", f"must be one of {', '.join(SNAPSHOT_FORMS)}")
        price = Price(
            model=model,
            provider=self.text(raw, "provider", at),
            date=self.day(raw, "date", at),
            rates=self.rates(raw, at, limits),
            tiers=self.tiers(raw, at, limits),
            max_output_tokens=self.size(raw, "max_output_tokens", at),
            context_window=self.size(raw, "context_window", at),
            source=self.text(raw, "source", at, ""),
            thinks=self.flag(raw, "thinks", at),
            max_completion_tokens=self.flag(raw, "max_completion_tokens", at),
            audio_input=self.nano(raw.get("audio_input", 0), f"{at}audio_input", limits),
            audio_output=self.nano(raw.get("audio_output", 0), f"{at}audio_output", limits),
            per_second=self.nano(raw.get("per_second", 0), f"{at}per_second", None),
            per_character=self.nano(
                raw.get("per_million_characters", 0), f"{at}per_million_characters", limits
            ),
        )
        return Entry(price, self.names(raw, "aliases", at), snapshots)

    def rates(self, raw: Mapping[str, Any], at: str, limits: Limits) -> Rates:
        got = {key: self.nano(raw[key], f"{at}{key}", limits) for key in RATES if key in raw}
        write = got.get("cache_write", got["input"])
        return Rates(
            input=got["input"],
            output=got["output"],
            cached_input=got.get("cached_input", got["input"]),
            cache_write=write,
            cache_write_long=got.get("cache_write_long", write),
            reasoning=got.get("reasoning", got["output"]),
        )

    def tiers(self, raw: Mapping[str, Any], at: str, limits: Limits) -> tuple[Tier, ...]:
        value = raw.get("tiers", [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self.wrong(f"{at}tiers", "must be a list of tables")
        tiers: list[Tier] = []
        stated = [key for key in RATES if key in raw]
        for number, tier in enumerate(value):
            here = f"{at}tiers[{number}]."
            self.known(tier, _TIER_KEYS, here)
            for key in ("above_input_tokens", *stated):
                if key not in tier:  # what is left out would fall back to a dearer or cheaper rate
                    raise self.wrong(f"{here}{key}", "is missing; a tier states every rate again")
            above = self.size(tier, "above_input_tokens", here) or 0
            if tiers and above <= tiers[-1].above_input_tokens:
                raise self.wrong(f"{here}above_input_tokens", "must rise from tier to tier")
            tiers.append(Tier(above, self.rates(tier, here, limits)))
        return tuple(tiers)
