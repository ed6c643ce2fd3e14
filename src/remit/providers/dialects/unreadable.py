"""Errors of answers that do not have the form of their API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.dialect_error import DialectError
from remit.providers.protocol import ProviderError

__all__ = ["failed", "shaped", "unreadable"]


def unreadable(where: str) -> DialectError:
    """Return the error for an answer whose part ``where`` does not have the API's form."""
    return DialectError(
        f"The provider's answer cannot be translated: {where} does not have the API's form."
    )


def shaped(value: Any, kind: type, where: str) -> Any:
    """Return ``value`` if it is of the type ``kind``.

    Args:
        value: a part of an answer.
        kind: the exact type.
        where: the place of the part, for the error.

    Raises:
        DialectError: the value is of another type.
    """
    if type(value) is not kind:
        raise unreadable(where)
    return value


def failed(error: Any) -> ProviderError:
    """Return the error that a provider reports in place of an answer or event."""
    said = error.get("message", error) if isinstance(error, Mapping) else error
    return ProviderError("SERVER_ERROR", str(said), True, maybe_billed=True)
