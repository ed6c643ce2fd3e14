"""Upper bounds that bills have raised, for each cause (tokens, a tool, sound) and account."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

__all__ = ["RaisedBounds", "payer_of", "row_of"]

_Ask = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]
_FRESH_S = 1.0


def payer_of(path: Sequence[str]) -> str:
    """Return the account of a path whose bounds a bill raises: the key's, else the first."""
    for scope in path:
        if scope.startswith("key:"):
            return scope
    return path[0] if path else ""


def row_of(raised: Sequence[str]) -> tuple[str, str]:
    """Return the columns ``provider_id`` and ``model_id`` of a bound in ``raised_bounds``.

    The second one names cause and account too. Rows of older versions name neither, and raise
    nothing any more.
    """
    provider_id, model_id, *more = raised
    return provider_id, f"{model_id} [{'] ['.join(more)}]" if more else model_id


class RaisedBounds:
    """The percentages to which bounds are raised, cached for one second."""

    def __init__(self) -> None:
        self._percents: dict[tuple[str, str], int] = {}
        self._asked: Iterable[tuple[Any, ...]] | None = None
        self._read_at = -math.inf

    def ask(self, ask: _Ask) -> None:
        """Send the query for the raised bounds if the cache is older than one second."""
        now = monotonic()
        if now - self._read_at > _FRESH_S:
            self._read_at = now
            self._asked = ask("SELECT provider_id, model_id, percent FROM raised_bounds", ())

    def of(self, raised: tuple[str, ...] | None, ask: _Ask) -> int:
        """Return the percentage of one bound, given as provider, model, cause and account; else
        100.
        """
        if raised is None:
            return 100
        self.ask(ask)
        if self._asked is not None:
            rows, self._asked = self._asked, None
            self._percents = {(provider, name): percent for provider, name, percent in rows}
        return self._percents.get(row_of(raised), 100)

    def raise_to(self, raised: tuple[str, ...], percent: int) -> None:
        """Note a raised bound in this process's cache."""
        row = row_of(raised)
        self._percents[row] = max(percent, self._percents.get(row, 100))
