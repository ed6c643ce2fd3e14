"""How far a run is, on standard error."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """Say it at once."""
    print(text, file=sys.stderr, flush=True)
