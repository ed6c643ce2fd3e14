"""Answers that do not have the form of their API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.dialect_error import DialectError
from remit.providers.protocol import ProviderError

__all__ = ["failed", "shaped", "unreadable"]


def unreadable(where: str) -> DialectError:
    """The error for an answer whose ``where`` is not what the API says."""
    return DialectError(
        f"The provider's answer cannot be translated: {where} does not have the API's form."
    )


def shaped(value: Any, kind: type, where: str) -> Any:
    """``value``, which must be a ``kind``."""
    if type(value) is not kind:
        raise unreadable(where)
    return value


def failed(error: Any) -> ProviderError:
    """What a provider reports in an answer's or event's place."""
    said = error.get("message", error) if isinstance(error, Mapping) else error
    return ProviderError("SERVER_ERROR", str(said), True, maybe_billed=True)
