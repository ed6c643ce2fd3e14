"""Reading a wire that may hold anything: token counts, texts, identifiers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.exchange import TextDelta, TextSink
from remit.providers.protocol import EventSink, ProviderError

__all__ = ["count", "free", "number_or_none", "texts_of", "well_formed"]


def texts_of(on_text: TextSink | None) -> EventSink | None:
    """A sink for everything that hands on the texts alone."""
    if on_text is None:
        return None

    def take(event: Any) -> None:
        if isinstance(event, TextDelta):
            on_text(event.text)

    return take


@contextlib.contextmanager
def well_formed(secret: str = "") -> Iterator[None]:
    """Turn what a misshapen answer trips over into a :class:`ProviderError`.

    Args:
        secret: blotted out of whatever an error says, wherever a server put it.
    """
    try:
        yield
    except ProviderError as error:
        if secret and secret in error.message:
            error.message = error.message.replace(secret, "[key]")
            error.args = (error.message,)
        raise
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ProviderError(
            "SERVER_ERROR",
            f"the answer does not have the API's form ({type(error).__name__}: {error})",
            True,
            maybe_billed=True,
        ) from error


def number_or_none(value: Any) -> int | None:
    """A token count, or ``None`` where ``value`` is not one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER:
        return value
    return None


_CHECKED = frozenset(
    {"model", "messages", "system", "tools", "max_tokens", "max_completion_tokens", "temperature",
     "stream", "stream_options", "n"}
)  # fmt: skip


def free(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without what a request says elsewhere, where it was checked and bounded."""
    return {name: value for name, value in parameters.items() if name not in _CHECKED}


def count(value: Any) -> int:
    """A token count; 0 where none was reported."""
    return number_or_none(value) or 0
