"""The governed table of prices: its content, and the price of a model."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.installed_files import InstalledFiles, shipped_file
from remit.providers.prices.price import Price, charge_data
from remit.providers.prices.price_file import SNAPSHOT_FORMS, Model, TableFile, parse

_INSTALLED = "HOT/prices/prices.toml"
_Key = tuple[str, str]
"""A provider, and a name or key of one of its models."""


class PriceTable:
    """Prices by provider and model, immutable. Iteration yields all prices.

    :meth:`shipped`, :meth:`installed`, :meth:`from_bytes` and :meth:`from_file` make a table.

    Attributes:
        version: the file's day and the first 12 hex digits of the SHA-256 of its bytes (UTF-8,
            lines ended by LF), as ``2026-11-22+sha256:0123456789ab``. A table that overlays another
            has both versions, its own first, joined by ``;``.
    """

    def __init__(
        self, file: TableFile, version: str, models: Mapping[_Key, Model] | None = None
    ) -> None:
        """Index the entries of a file; callers use `shipped`, `from_file` or `overlaid` instead.

        Args:
            file: the parsed file.
            version: the version of the table.
            models: the entries; None for those of the file.

        Raises:
            RemitError: two models have the same name.
        """
        self.version = version
        self._file = file
        if models is None:
            models = {(one.provider, name): one for name, one in file.models.items()}
        self._models = models
        # A host without tool prices that serves a known model has the tools of the model's maker.
        makers = {
            name: table
            for (_, key), one in models.items()
            if (table := file.tools_table(one))
            for name in one.names(key)
        }
        self._prices = {
            (provider, key): file.price(key, one, makers.get(key.removeprefix(f"{provider}/")))
            for (provider, key), one in models.items()
        }
        self._index: dict[_Key, Price] = {}
        self._found: dict[_Key, Price | None] = {}
        for (provider, key), model in models.items():
            price = self._prices[provider, key]
            for name in model.names(key):
                other = self._index.setdefault((provider, name), price)
                if other is not price:
                    raise RemitError(
                        f"{name} of {provider} refers to two models of the price table:"
                        f" {other.model} and {key}.",
                        next_step="Leave it in the aliases of one of them.",
                    )

    @classmethod
    @functools.cache
    def shipped(cls) -> PriceTable:
        """Return the table that comes with Remit."""
        data = shipped_file("PKG-TOKEN-BUDGETER-001", _INSTALLED)
        return cls.overlay(data, "the shipped price table", None)

    @classmethod
    def installed(cls, files: InstalledFiles) -> PriceTable:
        """Return the table that a package installed in a root.

        Args:
            files: the installed files of the root.

        Raises:
            NotInstalledError: no package installed a table.
            ChangedFileError: the file differs from the installed one.
            RemitError: the table is refused, as in :meth:`from_bytes`.
        """
        return cls.from_bytes(files.read(_INSTALLED), _INSTALLED)

    @classmethod
    @functools.lru_cache(maxsize=4)
    def from_bytes(cls, data: bytes, name: str) -> PriceTable:
        """Return a table that states its own limits.

        The last four tables are cached, by bytes and name.

        Args:
            data: the file's bytes.
            name: the file's name in errors.

        Raises:
            RemitError: the file is not UTF-8 or TOML, a key is wrong or ``limits`` are missing (the
                message names the key), or two models have the same name.
        """
        return cls.overlay(data, name, None)

    @classmethod
    def from_file(cls, path: str | Path) -> PriceTable:
        """Return an operator's table, with the shipped table's limits if it states none.

        Args:
            path: the file, TOML in UTF-8.

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
        """Return the table in a file that can be laid over another.

        Nothing of ``base`` but its limits is taken; :meth:`overlaid` combines two tables.

        Args:
            data: the file's bytes.
            name: the file's name in errors.
            base: the table below, whose limits apply if this one states none; ``None`` if the file
                must state them.

        Raises:
            RemitError: the file is not UTF-8, a key is wrong (the message names the key), or two
                models have the same name.
        """
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise RemitError(f"{name} is not UTF-8: {error}.") from error
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        file = parse(text, name, base._file.limits if base else None)
        return cls(file, f"{file.version}+sha256:{digest}")

    def overlaid(self, other: PriceTable) -> PriceTable:
        """Return a new table that combines this one with ``other``, whose prices win.

        A model in both tables has the other's price. Its aliases, snapshots, sizes and flags come
        from this table if the other does not state them. A name that the other table gives to a
        model is no longer an alias in this table.

        Raises:
            RemitError: two models of the result have the same name.
        """
        taken = {
            (provider, name)
            for (provider, key), model in other._models.items()
            for name in model.names(key)
        }
        models: dict[_Key, Model] = {}
        for key, model in self._models.items():
            free = [one for one in model.aliases or () if (model.provider, one) not in taken]
            models[key] = model.model_copy(update={"aliases": free})
        own = {key: one.completed(models.pop(key, None)) for key, one in other._models.items()}
        version = f"{other.version};{self.version}"
        return PriceTable(other._file.over(self._file), version, {**models, **own})

    def find(self, provider_id: str, model_id: str) -> Price | None:
        """Return the price of a model at a provider; ``None``, never 0, if the model is unpriced.

        A name matches the key of an entry, one of its aliases, ``provider/model``, or a dated
        snapshot if the entry has a rule for snapshots. Names match exactly. The provider's own
        entry comes first; only without one, the provider named in ``same_prices`` is searched.

        Args:
            provider_id: the provider.
            model_id: the model, by any of its names.
        """
        wanted = provider_id, model_id
        if wanted in self._found:
            return self._found[wanted]
        price = self._search(provider_id, model_id)
        if len(self._found) > len(self._index):  # Callers choose the names: bound the memory.
            self._found.clear()
        self._found[wanted] = price
        return price

    def entry_name(self, provider_id: str, model_id: str) -> str:
        """Return the key of a model's own entry.

        The result is empty if the model has no entry, or is an alias or a snapshot of another.
        """
        found = self._index.get((provider_id, model_id))
        return found.model if found and model_id in (found.model, found.bare_name) else ""

    @property
    def providers(self) -> frozenset[str]:
        """The providers with prices, including those of ``same_prices``."""
        return frozenset({*(provider for provider, _ in self._models), *self._file.same_prices})

    def __iter__(self) -> Iterator[Price]:
        """Yield every price, sorted by provider and model."""
        return (self._prices[key] for key in sorted(self._prices))

    def __len__(self) -> int:
        return len(self._prices)

    def _search(self, provider_id: str, model_id: str) -> Price | None:
        names = dict.fromkeys((model_id, model_id.removeprefix(f"{provider_id}/")))
        for provider in filter(None, (provider_id, self._file.same_prices.get(provider_id))):
            for name in names:
                price = self._index.get((provider, name)) or self._snapshot(provider, name)
                if price is not None:
                    return price
        return None

    def _snapshot(self, provider: str, name: str) -> Price | None:
        for form, (pattern, layout) in SNAPSHOT_FORMS.items():
            bare, day = name[: -len(form) - 1], name[-len(form) :]
            price = self._index.get((provider, bare))
            if price is None or name != f"{bare}-{day}" or not pattern.fullmatch(day):
                continue
            # Snapshots have the name of the model, never of an alias.
            if self._models[provider, price.model].snapshots != form or bare != price.bare_name:
                continue
            try:
                datetime.strptime(day, layout)
            except ValueError:
                continue  # The digits are not a date.
            return price
        return None


def differences(before: PriceTable, after: PriceTable) -> list[dict[str, Any]]:
    """Return the models that two tables charge differently, sorted by provider and name.

    Returns:
        ``{"provider", "model", "before", "after"}`` of each model; ``model`` is without the
            provider. The last two are rates and sizes as :func:`charge_data` has them, and ``None``
            if a table has no price. Server tools and surcharges are not compared.
    """
    found = []
    for provider, model in sorted({(one.provider, one.model) for one in (*before, *after)}):
        bare = model.removeprefix(f"{provider}/")
        old, new = (
            price and charge_data(price)
            for price in (before.find(provider, bare), after.find(provider, bare))
        )
        if old != new:
            found.append({"provider": provider, "model": bare, "before": old, "after": new})
    return found
