"""The weights of the small local model; a test that needs them is skipped without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.settings import default_settings
from remit.runtime import weight_store

ONE_THREAD = {"REMIT_LOCAL__THREADS": "1"}
"""The environment of a model that is tested: on a busy machine, threads spin for each other."""


def local_weights() -> Path:
    """Return the file of the weights, or skip the test if it or the extra is missing."""
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    settings = default_settings()
    try:
        return weight_store(settings).path(settings.local.model)
    except RemitError as error:
        pytest.skip(f"the local model's weights are not here: {error.message}")
