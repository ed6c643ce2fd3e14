"""The base of every section of the settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of settings; immutable, and refuses unknown keys and values of another type.

    Numbers are finite, because each session records the settings in JSON.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
