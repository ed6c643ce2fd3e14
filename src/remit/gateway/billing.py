"""What a call can cost at most, and what it did cost (SPEC 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from remit.gateway.bounds import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    Media,
    bound_of,
    call_bound,
    media_of,
    percent_of,
)
from remit.gateway.budget import Amount, Hold, TokenUsage, usd_of
from remit.gateway.config import RouterConfig
from remit.gateway.validation import Sent, response_schema
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest
from remit.providers import ProviderResponse
from remit.providers.prices import Price, PriceTable, Usage
from remit.providers.wire.body import Body

__all__ = ["IMAGE_TOKENS", "Bill", "Billing", "estimate", "input_bound"]

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
_TOOLS_TOKENS = 1_024  # what providers may add unseen where tools are offered


class Bill(Struct):
    """What one attempt is charged.

    Attributes:
        usage: tokens, and their cost in nano-dollars where a price is known.
        certainty: ``measured``, ``estimated``, ``upper_bound`` or ``unpriced``.
        price_version: of the table that was asked.
    """

    usage: TokenUsage
    certainty: str
    price_version: str

    def metadata(self, *, charged: bool) -> dict[str, Any]:
        """The keys of the ``EXCHANGE`` that state it; ``price_version`` marks what was charged."""
        if not charged:
            guessed = self.certainty in ("estimated", "upper_bound")
            return {"cost_certainty": self.certainty} if guessed else {}
        nano = self.usage.cost_nano
        shown: dict[str, Any] = {
            "cost_certainty": self.certainty,
            "price_version": self.price_version,
        }
        if nano is not None:
            shown["cost_usd"] = usd_of(nano)
        return shown


class Billing:
    """Bounds and bills by a table of prices.

    Args:
        prices: the table.
        config: what providers may add unseen, and who bills nothing.
    """

    def __init__(self, prices: PriceTable, config: RouterConfig) -> None:
        self._prices = prices
        self._config = config

    def bound(
        self, request: PromptRequest, sent: Sent, provider_id: str, model_id: str
    ) -> tuple[Amount, tuple[int, int]]:
        """The most that a call can use, and the same as input and output tokens."""
        media = Media(sent.images)
        if not sent.bounded:
            media.other = media_of({"messages": sent.messages}).other or "messages"
        body: dict[str, Any] = {"messages": sent.messages, "max_tokens": request.max_tokens}
        if request.tools or response_schema(request):
            body |= {"tools": request.tools, "response_format": response_schema(request)}
        bound = bound_of(
            "", body, sent.size, media, self._prices.find(provider_id, model_id),
            self._config.server_tool_uses, (provider_id, model_id),
            provider_id in self._config.free_providers,
        )  # fmt: skip
        return bound.amount, bound.tokens

    def at_bound(self, model_id: str, held: Hold | Amount, tokens: tuple[int, int]) -> Bill:
        """The bill for usage that nobody reported: all that the call holds."""
        tokens_out = max(0, min(tokens[1], held.tokens - tokens[0]))
        return self._bill(
            held.nano, held.tokens - tokens_out, tokens_out, model_id, "upper_bound", "upper_bound"
        )

    def body_bound(
        self, body: Body, provider_id: str, model_id: str
    ) -> tuple[Amount, tuple[int, int]]:
        """:meth:`bound` of a body as it is on the wire."""
        if body.endpoint.free:
            return Amount(0, 0), (0, 0)
        bound = call_bound(
            body.endpoint.name, body.value, len(body.raw), self._prices.find(provider_id, model_id),
            uses=self._config.server_tool_uses, model=(provider_id, model_id),
            free=provider_id in self._config.free_providers,
        )  # fmt: skip
        return bound.amount, bound.tokens

    def limits(self, provider_id: str, model_id: str) -> tuple[int | None, bool]:
        """Most output tokens that a model can make, where the table knows; and whether Chat
        Completions takes its limit as ``max_completion_tokens`` alone."""
        price = self._prices.find(provider_id, model_id)
        return (None, False) if price is None else (
            price.max_output_tokens, price.max_completion_tokens
        )  # fmt: skip

    def batch_bound(
        self, body: Body, provider_id: str, model_id: str
    ) -> tuple[Amount, tuple[int, int]]:
        """:meth:`body_bound` of a request in a batch; tools of the provider's keep their price."""
        amount, bound = self.body_bound(body, provider_id, model_id)
        tools = body.value.get("tools")
        own = isinstance(tools, list) and any(
            not isinstance(tool, dict) or tool.get("type") not in (None, "function", "custom")
            for tool in tools
        )
        if amount.nano is not None and not own:
            percent = self._batch_percent(provider_id, model_id)
            amount = replace(amount, nano=-(-amount.nano * percent // 100))
        return replace(amount, lowered=None, output=0), bound

    def _batch_percent(self, provider_id: str, model_id: str) -> int:
        """What of its price a model costs in a batch, by the table: its service tier ``batch``."""
        price = self._prices.find(provider_id, model_id)
        tiers = {} if price is None else price.surcharges.get("service_tier", {})
        return min(100, tiers.get("batch", 100))

    def window(self, provider_id: str, model_id: str) -> int | None:
        """Most tokens that a call of a model can hold, where the table knows."""
        price = self._prices.find(provider_id, model_id)
        return None if price is None else price.context_window

    def answered(
        self, provider_id: str, model_id: str, answer: ProviderResponse, asked: Mapping[str, Any]
    ) -> Bill | None:
        """The bill for an answer; ``None`` where neither it nor the call says what was used.

        Args:
            asked: the fields of the call, which may ask for a dearer service.
        """
        price = self._prices.find(provider_id, model_id)
        by_length = price is not None and (price.per_second or price.per_character)
        if by_length and (bill := self._sound(provider_id, price, model_id, answer, asked)):
            return bill
        if not answer.usage_reported:
            return None
        return self.measured(provider_id, model_id, answer, asked)

    def measured(
        self,
        provider_id: str,
        model_id: str,
        answer: ProviderResponse,
        asked: Mapping[str, Any] = _NO_FIELDS,
        *,
        in_batch: bool = False,
    ) -> Bill:
        """The bill for what the provider reported.

        Args:
            asked: the fields of the call, which may ask for a dearer service.
            in_batch: whether it was a request of a batch.
        """
        price = self._prices.find(provider_id, model_id)
        nano = None
        if provider_id in self._config.free_providers:
            nano = 0
        elif price is not None:
            usage = _usage(answer)
            if usage is None:  # parts that exceed their total: at the dearest, then
                tokens = (answer.input_tokens, answer.output_tokens)
                return self.assumed(provider_id, model_id, tokens, "upper_bound", asked)
            percent = max(100, percent_of(price, asked))
            if in_batch:
                percent = -(-percent * self._batch_percent(provider_id, model_id) // 100)
            nano = -(-price.cost_nano(usage) * percent // 100)
            for name, times in answer.server_tool_uses.items():
                nano += price.server_tools.get(name, 0) * times
        return self._bill(
            nano, answer.input_tokens, answer.output_tokens, model_id, "measured", "unpriced"
        )

    def assumed(
        self,
        provider_id: str,
        model_id: str,
        tokens: tuple[int, int],
        certainty: str,
        asked: Mapping[str, Any] = _NO_FIELDS,
    ) -> Bill:
        """The bill for unreported usage: at the dearest that so many tokens can cost.

        Args:
            asked: the fields of the call, which may ask for a dearer service.
        """
        price = self._prices.find(provider_id, model_id)
        nano = self._bound_nano(provider_id, price, *tokens)
        if nano and price is not None:
            nano = -(-nano * max(100, percent_of(price, asked)) // 100)
        return self._bill(nano, *tokens, model_id, certainty, certainty)

    def _sound(
        self, provider_id: str, price: Price | None, model_id: str, answer: ProviderResponse,
        asked: Mapping[str, Any],
    ) -> Bill | None:  # fmt: skip
        """The bill for sound that costs by its length or by the text spoken."""
        if price is None or provider_id in self._config.free_providers:
            return None
        spoken = asked.get("input")
        if price.per_second and answer.audio_seconds is not None:
            nano = price.sound_nano(seconds=answer.audio_seconds)
        elif price.per_character and isinstance(spoken, str):
            nano = price.sound_nano(characters=len(spoken))
        else:
            return None
        return self._bill(nano, 0, 0, model_id, "measured", "measured")

    def thinks_unseen(
        self, provider_id: str, model_id: str, parameters: Mapping[str, Any] | None
    ) -> bool:
        """Whether a model may have been thinking without a word of it in the stream.

        The table of prices says so of its models; the setting ``thinking_models`` of others.
        """
        price = self._prices.find(provider_id, model_id)
        if price is not None and price.thinks:
            return True
        if any(map(model_id.startswith, self._config.thinking_models)):
            return True
        return any((parameters or {}).get(name) is not None for name in _THINKING)

    def nothing(self, model_id: str) -> Bill:
        """The bill for a call that was refused: none."""
        return self._bill(0, 0, 0, model_id, "measured", "measured")

    def _bound_nano(
        self, provider_id: str, price: Price | None, tokens_in: int, tokens_out: int
    ) -> int | None:
        if provider_id in self._config.free_providers:
            return 0
        return None if price is None else price.bound_nano(tokens_in, tokens_out)

    def _bill(
        self,
        nano: int | None,
        tokens_in: int,
        tokens_out: int,
        model_id: str,
        certainty: str,
        unpriced: str,
    ) -> Bill:
        if nano is not None:  # as far as a record's number is exact: nine million dollars
            nano = min(nano, MAX_SAFE_INTEGER)
        usage = TokenUsage(tokens_in, tokens_out, model_id, nano)
        return Bill(usage, unpriced if nano is None else certainty, self._prices.version)


def input_bound(config: RouterConfig, request: PromptRequest, sent: Sent) -> int:
    """Most input tokens: no token is shorter than a byte; the rest is what providers add unseen."""
    bound = sent.size + MESSAGE_TOKENS * (len(sent.messages) + 1)
    bound += IMAGE_TOKENS * sent.images
    if request.tools or response_schema(request):
        bound += _TOOLS_TOKENS
    return bound


def estimate(config: RouterConfig, sent: Sent, reported_in: int | None, text_bytes: int,
             pieces: int, bound: tuple[int, int]) -> tuple[int, int]:  # fmt: skip
    """Tokens of a stream that broke off: what was reported, else by the bytes.

    A piece of a stream is a token or more; bytes per token are set so low that ordinary text
    has fewer tokens than this says.
    """
    per_token = config.estimated_bytes_per_token
    tokens_in = int(sent.size / per_token) + MESSAGE_TOKENS * len(sent.messages)
    tokens_in += IMAGE_TOKENS * sent.images
    tokens_out = max(pieces, math.ceil(text_bytes / per_token))
    if reported_in is not None:
        tokens_in = reported_in
    return max(1, min(tokens_in, bound[0])), min(tokens_out, bound[1] or tokens_out)


_THINKING = ("thinking", "reasoning", "reasoning_effort")


def _usage(answer: ProviderResponse) -> Usage | None:
    """Counts as the table takes them; ``None`` where they cannot be true."""
    try:
        return Usage(
            answer.input_tokens,
            answer.output_tokens,
            answer.cached_input_tokens or 0,
            answer.cache_write_tokens or 0,
            answer.reasoning_tokens or 0,
            answer.cache_write_short_tokens or 0,
            answer.audio_input_tokens or 0,
            answer.audio_output_tokens or 0,
        )
    except RemitError:
        return None
