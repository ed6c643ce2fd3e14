"""An operator's own table of prices as it is edited: entries set and taken out, written as TOML."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from typing import Any, Self

from remit.kernel.errors import RemitError
from remit.providers.prices.parsing import RATES
from remit.providers.prices.price import Price
from remit.providers.prices.shown import usd_text
from remit.providers.prices.table import PriceTable

__all__ = ["Overlay", "parse_decimal"]

_HEAD = """\
# Prices of this root's own, over those that come with Remit (`remit price`, docs/prices.md).
# After a change by hand `remit price import` of this file puts it on record; until then G3 fails.
"""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BESIDE = ("limits", "same_prices", "server_tools", "surcharges")
_SIZES = ("context_window", "max_output_tokens")


class _Number(str):
    """A TOML float as it is written."""

    __slots__ = ()


class Overlay:
    """What an operator's table says, entry by entry. Changes give another overlay.

    Args:
        raw: the file's TOML, decimals as text.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw: dict[str, Any] = copy.deepcopy(dict(raw))
        self.models: dict[str, dict[str, Any]] = self._raw.setdefault("models", {})

    @classmethod
    def read(cls, data: bytes, name: str, base: PriceTable) -> Self:
        """An overlay from a file's bytes, checked; ``name`` is how errors call it.

        Raises:
            RemitError: a key in it is wrong; the key is named.
        """
        if not data:
            return cls({})
        PriceTable.overlay(data, name, base)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return cls(tomllib.loads(text, parse_float=_Number))

    def key_of(self, provider: str, model: str, base: PriceTable) -> str:
        """The key under which a provider's model stands, or is to stand, in this table.

        That of its entry here, else of its entry in ``base``, else ``provider/model``.
        """
        for key, entry in self.models.items():
            if entry.get("provider") == provider and model in (key, _bare(provider, key)):
                return key
        return base.entry_name(provider, model) or f"{provider}/{model}"

    def with_entry(self, key: str, entry: Mapping[str, Any], day: date) -> Self:
        """This overlay with an entry of that key, in place of the one before."""
        changed = type(self)(self._raw)
        changed.models[key] = dict(entry)
        changed._raw["version"] = day
        return changed

    def without(self, key: str, day: date) -> Self:
        """This overlay without an entry.

        Raises:
            KeyError: there is none of that key.
        """
        changed = type(self)(self._raw)
        del changed.models[key]
        changed._raw["version"] = day
        return changed

    def merged(self, other: Overlay, base: PriceTable, day: date) -> Self:
        """This overlay with all that another says besides, which goes before this."""
        changed = type(self)(self._raw)
        for table in _BESIDE:
            if table in other._raw:
                changed._raw[table] = _over(changed._raw.get(table, {}), other._raw[table])
        for key, entry in other.models.items():
            provider = str(entry["provider"])
            changed.models.pop(changed.key_of(provider, _bare(provider, key), base), None)
            changed.models[key] = dict(entry)
        if changed._raw != self._raw:
            changed._raw["version"] = day
        return changed

    def without_sizes(self, base: PriceTable) -> dict[str, str]:
        """Entries whose calls have no bound, and the key that is missing of each: neither they
        nor ``base`` say how much a call can hold."""
        found = {}
        for key, entry in self.models.items():
            provider = str(entry["provider"])
            under = base.find(provider, _bare(provider, key))
            for size in _SIZES:
                free = size == "max_output_tokens" and not float(str(entry.get("output", 1)))
                if size not in entry and not free and not (under and getattr(under, size)):
                    found[key] = size
                    break
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overlay) and self._raw == other._raw

    __hash__ = None  # type: ignore[assignment]  # as of what it holds

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return not self.models and not any(self._raw.get(table) for table in _BESIDE)

    def to_toml(self) -> bytes:
        """The file, entries by name."""
        lines = [_HEAD, f"version = {_value(self._raw['version'])}"]
        for table in _BESIDE:
            if values := self._raw.get(table):
                lines += [
                    "",
                    f"[{table}]",
                    *(f"{_key(k)} = {_value(v)}" for k, v in values.items()),
                ]
        for name in sorted(self.models):
            entry = self.models[name]
            lines += ["", f"[models.{_key(name)}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in entry.items()]
        return ("\n".join(lines) + "\n").encode()

    @staticmethod
    def entry_of(price: Price) -> dict[str, Any]:
        """A price as an entry of the file states it."""
        entry: dict[str, Any] = {"provider": price.provider, "date": date.fromisoformat(price.date)}
        entry |= {rate: usd_text(getattr(price.rates, rate)) for rate in RATES}
        if price.tiers:
            entry["tiers"] = [
                {
                    "above_input_tokens": tier.above_input_tokens,
                    **{rate: usd_text(getattr(tier.rates, rate)) for rate in RATES},
                }
                for tier in price.tiers
            ]
        for name in ("audio_input", "audio_output"):
            if nano := getattr(price, name):
                entry[name] = usd_text(nano)
        if price.per_second:
            entry["per_second"] = usd_text(price.per_second)
        if price.per_character:
            entry["per_million_characters"] = usd_text(price.per_character)
        return entry

    @staticmethod
    def sizes_of(price: Price) -> dict[str, Any]:
        """What an entry has to say besides of a model that is known by another's entry."""
        names = (*_SIZES, "thinks", "max_completion_tokens")
        return {name: value for name in names if (value := getattr(price, name))}


def parse_decimal(text: str, what: str) -> str:
    """A price as a person types it: US dollars per million tokens.

    Raises:
        RemitError: it is negative, or no decimal.
    """
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise RemitError(
            f"{what} is {text!r}; it must be US dollars per million tokens, 0 or more.",
            next_step="Write it as 0.15 or 10.",
        )
    return text


def _bare(provider: str, key: str) -> str:
    return key.removeprefix(f"{provider}/")


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, dict) and "per_use" not in value
        merged[key] = _over(before, value) if both and isinstance(before, dict) else value
    return merged


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, date)):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """A basic string of TOML: one of JSON's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
