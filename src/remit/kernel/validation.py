"""What a pydantic model found wrong, in words that quote nothing of a long value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["first_error"]


def first_error(error: ValidationError) -> tuple[str, str]:
    """The first error as its dotted key (empty for the document itself) and its message."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return ".".join(str(part) for part in first["loc"]), message[:1].lower() + message[1:]
