"""The operator's price table, edited entry by entry and written as TOML."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from typing import Any, Self

from remit.kernel.errors import RemitError
from remit.kernel.toml_text import toml_key, toml_value
from remit.providers.prices.price import Price
from remit.providers.prices.table import PriceTable

_HEAD = """\
# The operator's prices, which override those that come with Remit (`remit price`, docs/prices.md).
# After an edit, record the file with `remit price import`; until then gate G3 fails.
"""
_OTHER_TABLES = ("limits", "same_prices", "server_tools", "surcharges")
_SIZES = ("context_window", "max_output_tokens")


class Overlay:
    """An operator's price table. An overlay is immutable; each change returns a new one.

    The constructor copies ``raw`` without checking it; :meth:`read` checks.

    Args:
        raw: the file's TOML, decimals as text; empty for an overlay without prices.

    Attributes:
        models: entries as in the file, keyed by name of the model.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw: dict[str, Any] = copy.deepcopy(dict(raw))
        self.models: dict[str, dict[str, Any]] = self._raw.setdefault("models", {})

    @classmethod
    def read(cls, data: bytes, name: str, base: PriceTable) -> Self:
        """Return the overlay in a file's bytes; without bytes, an empty one.

        Args:
            data: the file's bytes.
            name: the file's name in errors.
            base: the table below, whose limits apply if the file states none.

        Raises:
            RemitError: a key is wrong; the message names the key.
        """
        if not data:
            return cls({})
        PriceTable.overlay(data, name, base)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return cls(tomllib.loads(text, parse_float=str))

    def key_of(self, provider: str, model: str, base: PriceTable) -> str:
        """Return the key that an entry of a model has, or would have.

        The key is that of the entry here, else of the entry in ``base``, else ``provider/model``.
        """
        for key, entry in self.models.items():
            if entry.get("provider") == provider and model in (key, _bare(provider, key)):
                return key
        return base.entry_name(provider, model) or f"{provider}/{model}"

    def with_entry(self, key: str, entry: Mapping[str, Any], day: date) -> Self:
        """Return this overlay, dated ``day``, with an entry added or replaced."""
        return self._changed({**self.models, key: dict(entry)}, day)

    def without(self, key: str, day: date) -> Self:
        """Return this overlay, dated ``day``, without the entry of ``key``.

        An unknown key is ignored; the date changes all the same.
        """
        return self._changed({one: self.models[one] for one in self.models if one != key}, day)

    def _changed(self, models: Mapping[str, Mapping[str, Any]], day: date) -> Self:
        return type(self)({**self._raw, "models": models, "version": day})

    def merged(self, other: Overlay, base: PriceTable, day: date) -> Self:
        """Return this overlay with all values of another, which win.

        An entry replaces the whole entry of the same model, whatever its key; ``base`` knows its
        other names. The other tables are merged key by key. The result is dated ``day`` if anything
        changed.
        """
        changed = type(self)(self._raw)
        for table in _OTHER_TABLES:
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
        """Return the first missing size of each entry without a bound, keyed by the entry's key:
        ``context_window``, or ``max_output_tokens``.

        Calls of these models have no bound, because neither the entry nor ``base`` states the size.
        Free answers need no ``max_output_tokens``.
        """
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

    __hash__ = None  # type: ignore[assignment]  # The table of models is a dict.

    @property
    def empty(self) -> bool:
        """True if the overlay states nothing."""
        return not self.models and not any(self._raw.get(table) for table in _OTHER_TABLES)

    def to_toml(self) -> bytes:
        """Return the bytes of the file; writes no file.

        The text is a heading comment, ``version``, the tables with values, and the entries sorted
        by key.

        Raises:
            KeyError: the overlay has no ``version``, as one made without prices.
        """
        lines = [_HEAD, f"version = {toml_value(self._raw['version'])}"]
        for table in _OTHER_TABLES:
            if values := self._raw.get(table):
                lines += [
                    "",
                    f"[{table}]",
                    *(f"{toml_key(k)} = {toml_value(v)}" for k, v in values.items()),
                ]
        for name in sorted(self.models):
            entry = self.models[name]
            lines += ["", f"[models.{toml_key(name)}]"]
            lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in entry.items()]
        return ("\n".join(lines) + "\n").encode()

    @staticmethod
    def sizes_of(price: Price) -> dict[str, Any]:
        """Return the sizes and flags of a price that are known, as keys of an entry.

        Keys whose value is 0, False or None are left out.
        """
        names = (*_SIZES, "thinks", "max_completion_tokens")
        return {name: value for name in names if (value := getattr(price, name))}


def parse_decimal(text: str, what: str) -> str:
    """Return ``text`` unchanged if it is a price in US dollars per million tokens.

    Args:
        text: the price, such as ``0.15``.
        what: the name of the value in errors.

    Raises:
        RemitError: the text is not digits with at most one point between them; signs and exponents
            are refused.
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
        if isinstance(before, dict) and isinstance(value, dict) and "per_use" not in value:
            value = _over(before, value)
        merged[key] = value
    return merged
