"""Forms that answers share: the error, and pages of a list."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

_DEFAULT_LIMIT = 50
_MAX_PAGE = 500


def _flag(value: object) -> object:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def _name(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("it contains a control character, or begins or ends with a space")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""``true`` or ``false``, and nothing else."""

Printable = AfterValidator(_name)
"""Refuses a text with a control character, or with a space at its begin or end."""


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


class Page(BaseModel):
    """The wanted part of a list.

    Unknown parameters are refused, so that a typo cannot select everything.

    `limit` is 1 to 500 items, 50 by default; `cursor` continues after the previous page.
    """

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        _DEFAULT_LIMIT, ge=1, le=_MAX_PAGE, description="Maximum number of items on the page."
    )
    cursor: Annotated[str | None, WithJsonSchema({"type": "string"})] = Field(
        None, description="`next_cursor` of the previous page."
    )


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
