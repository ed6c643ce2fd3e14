"""Forms that answers share: the error, and pages of a list."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """A failure and its remedy."""

    code: str = Field(description="for programs")
    message: str = Field(description="for people: what happened and why")
    next_step: str | None = Field(None, description="what can be done about it")
    param: str | None = Field(None, description="the field at fault")


class Error(BaseModel):
    """The answer to every request that fails."""

    error: ErrorDetail


class Paged(BaseModel):
    """A page of a list."""

    next_cursor: str | None = Field(description="where the next page begins; null at the end")
