"""What answers share: the error, and pages of a list."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="for programs")
    message: str = Field(description="for people: what happened and why")
    next_step: str | None = Field(None, description="what can be done about it")
    param: str | None = Field(None, description="the field at fault")


class Error(BaseModel):
    """Every answer that is no success."""

    error: ErrorDetail


class Paged(BaseModel):
    """A page of a list."""

    next_cursor: str | None = Field(description="where the next page begins; null at the end")
