"""Large matrices: `make test` runs a seeded sample of each, `make soak` every case.

``REMIT_SOAK=1`` selects every case, ``REMIT_TEST_SEED`` another sample.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

__all__ = ["SEED", "is_soak", "sample", "soak_only"]

Case = TypeVar("Case")

SEED = int(os.environ.get("REMIT_TEST_SEED", "1"))


def is_soak() -> bool:
    """Return True if every case of every matrix is to run."""
    return os.environ.get("REMIT_SOAK", "") not in ("", "0")


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """Return `count` of the cases in their order, chosen by the seed; in a soak, all of them."""
    every = list(cases)
    if is_soak() or count >= len(every):
        return every
    chosen = random.Random(SEED).sample(range(len(every)), count)
    return [every[index] for index in sorted(chosen)]


soak_only = pytest.mark.skipif(not is_soak(), reason="one of the counts of `make soak`")
