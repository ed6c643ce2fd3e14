"""Bounds of models that a bill has raised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

__all__ = ["RaisedBounds"]

_Ask = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]
_FRESH_S = 1.0


class RaisedBounds:
    """To how many hundredths the bounds of models are raised, as a process knows it.

    What other processes have raised is known here a second later.
    """

    def __init__(self) -> None:
        self._percents: dict[tuple[str, str], int] = {}
        self._asked: Iterable[tuple[Any, ...]] | None = None
        self._read_at = -math.inf

    def ask(self, ask: _Ask) -> None:
        """Ask for them, where what is known is old."""
        now = monotonic()
        if now - self._read_at > _FRESH_S:
            self._read_at = now
            self._asked = ask("SELECT provider_id, model_id, percent FROM raised_bounds", ())

    def of(self, model: tuple[str, str] | None, ask: _Ask) -> int:
        """Of one provider and model."""
        if model is None:
            return 100
        self.ask(ask)
        if self._asked is not None:
            rows, self._asked = self._asked, None
            self._percents = {(provider, name): percent for provider, name, percent in rows}
        return self._percents.get(model, 100)

    def raise_to(self, model: tuple[str, str], percent: int) -> None:
        """What this process raises, it knows at once."""
        self._percents[model] = max(percent, self._percents.get(model, 100))
