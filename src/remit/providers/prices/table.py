"""The governed table of prices: its content, and the price of a model."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from remit.kernel.errors import RemitError
from remit.kernel.installed import InstalledFiles, shipped_file
from remit.providers.prices.parsing import SNAPSHOT_FORMS, Entry, ParsedTable, parse
from remit.providers.prices.price import Price

__all__ = ["PriceTable"]

_INSTALLED = "HOT/prices/prices.toml"
_Value = TypeVar("_Value")
_Name = tuple[str, str]  # provider, model


class PriceTable:
    """Prices by provider and model. It never changes; a change is another table.

    Attributes:
        version: the file's day and the first 12 hex digits of the SHA-256 of its bytes (UTF-8,
            lines ended by LF), as ``2026-11-22+sha256:0123456789ab``; of a table that overlays
            another, both versions, the upper one first, joined by ``;``.
    """

    def __init__(self, parsed: ParsedTable, version: str) -> None:
        """Index a parsed table; callers use `shipped`, `from_file` or `overlaid` instead."""
        self.version = version
        entries = tuple(
            replace(
                entry,
                price=replace(
                    entry.price,
                    server_tools=parsed.server_tools.get(entry.price.provider, {}),
                    surcharges=parsed.surcharges.get(entry.price.provider, {}),
                ),
            )
            for entry in parsed.entries
        )
        self._parsed = parsed = replace(parsed, entries=entries)
        self._index: dict[_Name, Price] = {}
        self._snapshots: dict[_Name, str] = {}
        self._found: dict[_Name, Price | None] = {}
        for entry in parsed.entries:
            self._add(entry)

    @classmethod
    @functools.cache
    def shipped(cls) -> PriceTable:
        """Return the table that comes with Remit."""
        data = shipped_file("PKG-TOKEN-BUDGETER-001", _INSTALLED)
        return cls.overlay(data, "the shipped price table", None)

    @classmethod
    def installed(cls, files: InstalledFiles) -> PriceTable:
        """Return the table that a package brought to a root.

        Raises:
            NotInstalledError: no package brought one.
            ChangedFileError: the file differs from the installed one.
            RemitError: a key is wrong; the message names the key.
        """
        return cls.from_bytes(files.read(_INSTALLED), _INSTALLED)

    @classmethod
    @functools.lru_cache(maxsize=4)  # a table is not changed once it is made
    def from_bytes(cls, data: bytes, name: str) -> PriceTable:
        """Return a table that states its own limits; errors call it ``name``.

        Raises:
            RemitError: a key is wrong; the message names the key.
        """
        return cls.overlay(data, name, None)

    @classmethod
    def from_file(cls, path: str | Path) -> PriceTable:
        """Return an operator's table; ``docs/prices.md`` describes the file.

        Raises:
            RemitError: the file cannot be read, or a key is wrong; the message names the key.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise RemitError(f"The price table {path} cannot be read: {error}.") from error
        return cls.overlay(data, str(path), cls.shipped())

    @classmethod
    def overlay(cls, data: bytes, name: str, base: PriceTable | None) -> PriceTable:
        """Return a table to lie over ``base``, whose limits hold if the table states none.

        Raises:
            RemitError: a key is wrong; the message names the key.
        """
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise RemitError(f"{name} is not UTF-8: {error}.") from error
        parsed = parse(text, name, base._parsed.limits if base else None)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return cls(parsed, f"{parsed.version}+sha256:{digest}")

    def overlaid(self, other: PriceTable) -> PriceTable:
        """Return this table overlaid with ``other``.

        A model that both have has the other's price alone; only what is no price (aliases,
        snapshots, sizes) is taken from below where the other is silent. A name that the other
        table gives to a model of its own is that model's.
        """
        own = other._parsed.entries
        taken = {(entry.price.provider, name) for entry in own for name in _names(entry)}
        below = {
            (entry.price.provider, entry.price.model): _without(entry, taken)
            for entry in self._parsed.entries
        }
        above = []
        for entry in own:
            under = below.pop((entry.price.provider, entry.price.model), None)
            above.append(_completed(entry, under) if under else entry)
        kept = below.values()
        parsed = replace(
            self._parsed,
            same_prices={**self._parsed.same_prices, **other._parsed.same_prices},
            entries=(*kept, *above),
            server_tools=_merged(self._parsed.server_tools, other._parsed.server_tools),
            surcharges=_merged(self._parsed.surcharges, other._parsed.surcharges),
        )
        return PriceTable(parsed, f"{other.version};{self.version}")

    def find(self, provider_id: str, model_id: str) -> Price | None:
        """Return the price of a model at a provider; None, never 0, if the model is unpriced.

        A name is found as the table has it, as one of a model's aliases, as
        ``provider/model``, or as a dated snapshot where the model's entry has a rule for them;
        names that only begin alike are not the same model.
        """
        try:
            return self._found[provider_id, model_id]
        except KeyError:
            pass
        price = self._search(provider_id, model_id)
        if len(self._found) > len(self._index):  # callers name models: keep no endless list
            self._found.clear()
        self._found[provider_id, model_id] = price
        return price

    def entry_name(self, provider_id: str, model_id: str) -> str:
        """Return the key of a model's own entry; empty if the model has none, or is only an alias
        or a snapshot of another."""
        found = self._index.get((provider_id, model_id))
        is_its_own = found is not None and model_id in (found.model, found.bare_name)
        return found.model if found is not None and is_its_own else ""

    @property
    def providers(self) -> frozenset[str]:
        """The providers with prices, their other names included."""
        named = {entry.price.provider for entry in self._parsed.entries}
        return frozenset({*named, *self._parsed.same_prices})

    def __iter__(self) -> Iterator[Price]:
        """Yield every price, sorted by provider and model."""
        prices = (entry.price for entry in self._parsed.entries)
        return iter(sorted(prices, key=lambda price: (price.provider, price.model)))

    def __len__(self) -> int:
        return len(self._parsed.entries)

    def _add(self, entry: Entry) -> None:
        price = entry.price
        for name in _names(entry):
            other = self._index.setdefault((price.provider, name), price)
            if other is not price:
                raise RemitError(
                    f"{name} of {price.provider} refers to two models of the price table:"
                    f" {other.model} and {price.model}.",
                    next_step="Remove the name from the aliases of one model.",
                )
        if entry.snapshots:
            self._snapshots[price.provider, price.bare_name] = entry.snapshots

    def _search(self, provider_id: str, model_id: str) -> Price | None:
        names = [model_id]
        if model_id.startswith(f"{provider_id}/"):
            names.append(model_id[len(provider_id) + 1 :])
        for provider in (provider_id, self._parsed.same_prices.get(provider_id)):
            for name in names if provider else ():
                assert provider is not None
                price = self._index.get((provider, name)) or self._snapshot(provider, name)
                if price is not None:
                    return price
        return None

    def _snapshot(self, provider: str, name: str) -> Price | None:
        for form, (pattern, layout) in SNAPSHOT_FORMS.items():
            model, day = name[: -len(form) - 1], name[-len(form) :]
            if self._snapshots.get((provider, model)) != form or name != f"{model}-{day}":
                continue
            if not pattern.fullmatch(day):
                continue
            try:
                datetime.strptime(day, layout)
            except ValueError:
                continue  # digits, but no day of the calendar
            return self._index[provider, model]
        return None


def _merged(
    below: Mapping[str, Mapping[str, _Value]], above: Mapping[str, Mapping[str, _Value]]
) -> dict[str, dict[str, _Value]]:
    """Return the values of both by provider; the upper one wins."""
    return {
        provider: {**below.get(provider, {}), **above.get(provider, {})}
        for provider in {**below, **above}
    }


def _names(entry: Entry) -> tuple[str, ...]:
    return (entry.price.model, entry.price.bare_name, *(entry.aliases or ()))


def _completed(entry: Entry, under: Entry) -> Entry:
    price = replace(
        entry.price,
        max_output_tokens=entry.price.max_output_tokens or under.price.max_output_tokens,
        context_window=entry.price.context_window or under.price.context_window,
        thinks=entry.price.thinks or under.price.thinks,
        max_completion_tokens=(
            entry.price.max_completion_tokens or under.price.max_completion_tokens
        ),
    )
    return Entry(
        price,
        under.aliases if entry.aliases is None else entry.aliases,
        under.snapshots if entry.snapshots is None else entry.snapshots,
    )


def _without(entry: Entry, taken: set[_Name]) -> Entry:
    """Return the entry without the aliases that are names of the upper table."""
    free = (alias for alias in entry.aliases or () if (entry.price.provider, alias) not in taken)
    return replace(entry, aliases=tuple(free))
