"""The reservation of one call, and the names of the bounds that bills raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from remit.kernel.budget import Amount

__all__ = ["Hold", "TokenUsage", "bound_of", "row_of"]

_MAX_PERCENT = 1_000
"""No bound is raised beyond ten times: one absurd bill must not bar a model for ever."""


class TokenUsage(Struct, gc=False):
    """The tokens of a call, as the provider counted them or as they are charged.

    Attributes:
        input_tokens: tokens of the request.
        output_tokens: tokens of the answer.
        model_id: the model; empty if unknown.
        cost_nano: cost in nano-dollars; ``None`` if no price is known.
    """

    input_tokens: int
    output_tokens: int
    model_id: str = ""
    cost_nano: int | None = None

    @property
    def total(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


class Hold(Struct, forbid_unknown_fields=True, gc=False):
    """The reservation of one call on each of its accounts.

    Not changed once made. :meth:`encode` and :meth:`read` are its form in a column.

    Attributes:
        scopes: the accounts.
        tokens: reserved input and output tokens.
        nano: cost in nano-dollars; None if the model has no price.
        turns: number of calls that were counted.
        minute: minutes since 1970 at the reservation, for the limits per minute.
        bounded: False if the call had no upper bound.
        windows: number of each scope's window; empty if all are 0.
        percent: the percentage to which earlier bills had raised the bound.
        model: provider, model, cause and account of the bound; older versions wrote the first two.
        output: the lowered output limit of each answer; None if it was not lowered.
    """

    scopes: tuple[str, ...]
    tokens: int
    nano: int | None
    turns: int
    minute: int
    bounded: bool = True
    windows: tuple[int, ...] = ()
    percent: int = 100
    model: tuple[str, ...] | None = None
    output: int | None = None

    def numbered(self) -> list[tuple[str, int]]:
        """Return the scopes, each with the number of its window."""
        return list(zip(self.scopes, self.windows or (0,) * len(self.scopes), strict=True))

    def exceeded_by(self, usage: TokenUsage) -> list[str]:
        """Return which of ``tokens`` and ``cost`` exceed the bound, in this order.

        Empty if neither does, or if the call had no upper bound. A missing price exceeds nothing.

        Args:
            usage: the billed usage.
        """
        if not self.bounded:
            return []
        tokens_over = usage.input_tokens + usage.output_tokens > self.tokens
        cost_over = self.nano is not None and (usage.cost_nano or 0) > self.nano
        return ["tokens"] * tokens_over + ["cost"] * cost_over

    def raised_by(self, usage: TokenUsage) -> int | None:
        """Return the percentage to which a bill raises the model's bound; None if it does not.

        The percentage is relative to the unraised bound, rounded up, and at most 1,000.

        Args:
            usage: the billed usage.
        """
        if self.model is None or not self.exceeded_by(usage):
            return None
        parts = [(usage.total, self.tokens)]
        if self.nano is not None and usage.cost_nano is not None:
            parts.append((usage.cost_nano, self.nano))
        percent = max(-(-used * self.percent // max(held, 1)) for used, held in parts)
        return min(percent, _MAX_PERCENT)

    def overrun(self, usage: TokenUsage) -> dict[str, Any]:
        """Return the metadata of an ``EXCHANGE`` whose bill exceeds its bound; empty for any other.

        The keys are ``over_bound`` and, if the bill raises the bound of a model, ``raised_bound``.

        Args:
            usage: the billed usage.
        """
        if not (over := self.exceeded_by(usage)):
            return {}
        found: dict[str, Any] = {"over_bound": over}
        percent = self.raised_by(usage)
        if percent is not None and self.model is not None:
            names = ("provider_id", "model_id", "cause", "scope")
            found["raised_bound"] = {**dict(zip(names, self.model, strict=False)),
                                     "percent": percent}  # fmt: skip
        return found

    def encode(self) -> str:
        """Return the hold as JSON text for a column."""
        return _encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Hold | None:
        """Return the hold in a column; None if the text is not a hold.

        Args:
            text: the column's text, of this or an older version.
        """
        try:
            hold = _decode(text)
        except (ValueError, TypeError):
            return None
        return hold if len(hold.windows) in (0, len(hold.scopes)) else None

    @classmethod
    def read_exact(cls, text: str) -> Hold | None:
        """Return the hold if the text is what :meth:`encode` wrote, in this or an older version.

        Older versions wrote the first fields only: each new field was added at the end. Any other
        text is not a hold, although :meth:`read` may understand it. None for such a text.

        Args:
            text: the column's text.
        """
        hold = cls.read(text)
        if hold is None:
            return None
        written = msgspec.json.decode(text)
        values = {name: getattr(hold, name) for name in cls.__struct_fields__[: len(written)]}
        return hold if msgspec.json.encode(values).decode() == text else None

    @classmethod
    def decode(cls, text: str) -> Hold:
        """Return the hold that :meth:`encode` wrote; raise ValueError for any other text."""
        return _decode(text)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hold).decode


def bound_of(path: Sequence[str], amount: Amount) -> tuple[str, ...] | None:
    """Return provider, model, cause and account of the bound that the bill of a call may raise.

    The account is the key's, else the first.

    Args:
        path: scopes that pay.
        amount: upper bound of the call.

    Returns:
        The four names; None if the amount names no model.
    """
    if amount.model is None:
        return None
    for scope in path:
        if scope.startswith("key:"):
            return (*amount.model, scope)
    return (*amount.model, path[0] if path else "")


def row_of(raised: Sequence[str]) -> tuple[str, str]:
    """Return the columns ``provider_id`` and ``model_id`` of a bound in ``raised_bounds``.

    The second one names cause and account too. Rows of older versions name neither, and raise
    nothing any more.

    Args:
        raised: provider and model of the bound, then its cause and account, if known.
    """
    provider_id, model_id, *more = raised
    return provider_id, f"{model_id} [{'] ['.join(more)}]" if more else model_id
