"""Forms that answers share: the error, and pages of a list."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, create_model


class ErrorDetail(BaseModel):
    """A failure and its remedy.

    `code` is for programs, `message` and `next_step` for people; `param` names a field at fault.
    """

    code: str = Field(description="Error code for programs.")
    message: str = Field(description="Description of the failure and its cause, for people.")
    next_step: str | None = Field(None, description="Suggested next step.")
    param: str | None = Field(None, description="Name of the field at fault.")


class Error(BaseModel):
    """The answer to every request that fails.

    `error` holds the failure.
    """

    error: ErrorDetail


class Paged(BaseModel):
    """A page of a list.

    `next_cursor` is the `cursor` of the next request.
    """

    next_cursor: str | None = Field(description="Cursor of the next page; null on the last page.")


def listing(
    name: str, doc: str, *, base: type[BaseModel] = Paged, **members: Any
) -> type[BaseModel]:
    """Return the form of a list.

    Args:
        name: its name in the OpenAPI document.
        doc: its description there.
        base: :class:`Paged`, or BaseModel for a list without pages.
        members: the form of the items, keyed by the member that contains them.
    """
    fields: dict[str, Any] = {member: (list[item], ...) for member, item in members.items()}  # type: ignore[valid-type]
    return create_model(name, __base__=base, __doc__=doc, **fields)
