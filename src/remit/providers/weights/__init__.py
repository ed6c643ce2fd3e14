"""Weights of local models: pulled out of wheels, checked, kept in the user's cache."""

from remit.providers.weights.weights import (
    KnownModel,
    ModelError,
    StoredModel,
    WeightStore,
    file_sha256,
    known_models,
)

__all__ = ["KnownModel", "ModelError", "StoredModel", "WeightStore", "file_sha256", "known_models"]
