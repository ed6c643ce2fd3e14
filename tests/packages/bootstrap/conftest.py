"""A bootstrap of this tree's Remit, made once."""

from __future__ import annotations

from typing import Any

import pytest

from remit.packages import build_bundle
from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.bootstrap.making import packages
from tests.packages.making import LIMITS


@pytest.fixture(scope="session")
def bundle(from_source: Distribution) -> tuple[bytes, dict[str, Any]]:
    return build_bundle(repack_wheel(from_source), packages(), LIMITS)
