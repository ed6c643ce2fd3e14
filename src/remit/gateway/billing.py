"""Upper bounds and bills of calls, computed from a table of prices."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from remit.gateway.bounds import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    Bound,
    Media,
    UsageBound,
    bound_of,
    media_of,
    service_of,
)
from remit.gateway.budget import Amount, Hold, TokenUsage
from remit.gateway.config import RouterConfig
from remit.gateway.field_bounds import DEFINITIONS, billed_uses, offered_tools
from remit.gateway.validation import Sent, response_schema
from remit.kernel.budget_values import NANO
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.providers import Body, ProviderResponse
from remit.providers.prices import PriceTable, Usage
from remit.providers.wire import FormBody

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
_THINKING = ("thinking", "reasoning", "reasoning_effort")
_MAX_TARIFFS = 1_024  # clients name models: what is remembered of them has an end
_FREE = Bound(Amount(0, 0), (0, 0, None))
_ORDINARY = ("default", "standard", "on_demand")  # services at the price of the table
_LARGEST_WINDOW = 10_000_000  # tokens, of a model whose window is unknown
# Results of the provider's own tools may fill a window several times.
_TIMES_THE_BOUND = 10
_WIDE, _WIDE_WINDOW = "context-1m", 1_000_000  # Anthropic's beta, for accounts that have it
_LONGEST_SOUND_S = 86_400
_TOOLS_TOKENS = 1_024  # Providers may add an unseen prompt when tools are offered.


class Bill(Struct, gc=False):
    """The charge for one attempt.

    :meth:`metadata` gives its keys in the record.

    Attributes:
        usage: tokens, and their cost in nano-dollars if a price is known.
        certainty: ``measured``, ``estimated``, ``upper_bound`` or ``unpriced``.
        price_version: version of the price table.
    """

    usage: TokenUsage
    certainty: str
    price_version: str

    def metadata(self, *, charged: bool) -> dict[str, Any]:
        """Return the keys of the ``EXCHANGE`` that state the bill.

        The keys are ``cost_certainty``, ``price_version`` and, if the cost is known, ``cost_usd``.

        Args:
            charged: whether budgets were charged. If not, only ``cost_certainty`` is stated, and
                only if it is ``estimated`` or ``upper_bound``.
        """
        if not charged:
            guessed = self.certainty in ("estimated", "upper_bound")
            return {"cost_certainty": self.certainty} if guessed else {}
        nano = self.usage.cost_nano
        shown: dict[str, Any] = {
            "cost_certainty": self.certainty,
            "price_version": self.price_version,
        }
        if nano is not None:
            shown["cost_usd"] = nano / NANO
        return shown


class Billing:
    """Tariffs of models, by a table of prices.

    Args:
        prices: the table.
        config: tokens that providers may add unseen, and the providers that are free.

    Attributes:
        of: returns the tariff of a provider and model, also of a model without a price. The latest
            1,024 tariffs are cached.
    """

    def __init__(self, prices: PriceTable, config: RouterConfig) -> None:
        self._prices = prices
        self._config = config
        self.of: Callable[[str, str], Tariff] = functools.lru_cache(_MAX_TARIFFS)(
            lambda *model: Tariff(model, prices, config)
        )

    def per_call(self, model: tuple[str, str], nano: int) -> Tariff:
        """Return a tariff with a fixed price for each answered call.

        Args:
            model: provider and model.
            nano: the price in nano-dollars.
        """
        return Tariff(model, self._prices, self._config, nano)


class Tariff:
    """Upper bounds and bills of one model.

    :meth:`bound`, :meth:`body_bound` and :meth:`batch_bound` give the most that a call can cost
    before it is sent. The other methods give a :class:`Bill` for its end. Nothing is written.

    Args:
        model: provider and model.
        prices: the table of prices.
        config: tokens that providers may add unseen, and the providers that are free.
        per_call_nano: a price in nano-dollars for each answered call, whatever it contains; None to
            bill by the table.

    Attributes:
        price: the price of the model; None if the table has none.
    """

    __slots__ = ("_free", "_model", "_per_call", "_thinks", "_uses", "_version", "price")

    def __init__(
        self,
        model: tuple[str, str],
        prices: PriceTable,
        config: RouterConfig,
        per_call_nano: int | None = None,
    ) -> None:
        provider_id, model_id = model
        self._model = model
        self._per_call = per_call_nano
        self._version = prices.version
        self.price = price = prices.find(provider_id, model_id)
        self._free = provider_id in config.free_providers
        self._uses = config.server_tool_uses
        self._thinks = (price is not None and price.thinks) or any(
            map(model_id.startswith, config.thinking_models)
        )

    def bound(self, request: PromptRequest, sent: Sent) -> Bound:
        """Return the upper bound of a call in neutral form.

        Args:
            request: the request.
            sent: the request, encoded.
        """
        media = Media(sent.images)
        if not sent.bounded:
            found = media_of({"messages": sent.messages})
            media.other, media.tools = found.other or "messages", found.tools
        body: dict[str, Any] = {"messages": sent.messages, "max_tokens": request.max_tokens}
        if request.tools or response_schema(request):
            body |= {"tools": request.tools, "response_format": response_schema(request)}
        return bound_of("", body, sent.size, media, self.price, self._uses, self._model, self._free)

    def body_bound(
        self, body: Body, uses: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Bound:
        """Return the upper bound of a call whose body is in the provider's dialect.

        A call of a free endpoint has the bound zero.

        Args:
            body: the body.
            uses: how often a tool of the provider may be used if the body does not say; None for
                the configured number.
            headers: the client's headers, which may ask for a larger context window (``context-1m``
                in ``anthropic-beta``); None for none.
        """
        if body.endpoint.free:
            return _FREE
        price = self.price
        if headers and price is not None and _WIDE in headers.get("anthropic-beta", ""):
            wide = max(_WIDE_WINDOW, price.context_window or 0)
            price = dataclasses.replace(price, context_window=wide)
        media = media_of(body.value)
        if isinstance(body, FormBody):
            media.seconds = body.seconds
        return bound_of(
            body.endpoint.name, body.value, len(body.raw) - media.data, media, price,
            uses or self._uses, self._model, self._free,
        )  # fmt: skip

    def batch_bound(self, body: Body) -> Bound:
        """Return the upper bound of a request in a batch, at the batch price.

        A batch is sent as it is, so a limit that a request does not state makes the bound
        unbounded; ``amount.unbounded`` then names the limit to send. A request with any tool but
        plain functions is bounded at the full price. The amount cannot be lowered.

        Args:
            body: the request as it is sent in the batch.
        """
        if body.value.get("service_tier") in (None, "auto"):  # no default lifts it out of the batch
            body = replace(body, value={**body.value, "service_tier": "default"})
        bound = self.body_bound(body)
        if limit := bound.limits.field:
            amount = replace(bound.amount, bounded=False, unbounded=f"send {limit}")
            bound = replace(bound, amount=amount)
        nano = bound.amount.nano
        added = media_of(body.value).tools
        offered = offered_tools(body.endpoint.name, body.value, added)
        if nano is not None and all(kind in DEFINITIONS for _, _, kind, _ in offered):
            nano = -(-nano * self._batch_percent() // 100)
        amount = replace(bound.amount, nano=nano, lowered=None, output=0)
        return Bound(amount, bound.usage)

    def _batch_percent(self) -> int:
        """Return the batch price of the model in percent of its ordinary price, at most 100."""
        tiers = {} if self.price is None else self.price.surcharges.get("service_tier", {})
        return min(100, tiers.get("batch", 100))

    def _percent(self, asked: Mapping[str, Any], served: Mapping[str, Any]) -> int:
        """Return the multiplier of the price in percent.

        The service that the provider reports decides. If it reports none, or one that the table
        does not know, the requested service counts, but never below 100.
        """
        percent = 100
        for name, times in self.price.surcharges.items() if self.price is not None else ():
            given = served.get(name, "")
            wanted = service_of(asked, name) if "serviceTier" in asked else asked.get(name)
            if given in times:
                each = times[given]
            elif given in _ORDINARY or not isinstance(wanted, str):
                each = 100
            else:
                each = max(100, times.get(wanted, 100))
            percent = -(-percent * each // 100)
        return percent

    def at_bound(self, held: Hold | Amount, bound: UsageBound) -> Bill:
        """Return the bill for usage that was not reported: the whole reservation.

        The certainty is ``upper_bound``.

        Args:
            held: the reservation, or the upper bound of the call.
            bound: upper bound of the usage, by which the reserved tokens are divided.
        """
        tokens_out = max(0, min(bound[1], held.tokens - bound[0]))
        return self._bill(
            held.nano, held.tokens - tokens_out, tokens_out, "upper_bound", "upper_bound"
        )

    def answered(
        self, answer: ProviderResponse, asked: Mapping[str, Any], bound: UsageBound
    ) -> Bill | None:
        """Return the bill for an answer; None if neither the answer nor the call states the usage.

        A tariff with a price for each call bills that price. Sound is billed by its seconds or by
        the characters spoken, if the table prices them so. Everything else is billed as
        :meth:`measured`.

        Args:
            answer: the answer.
            asked: the fields of the call, which may ask for a dearer service.
            bound: upper bound of the usage.
        """
        if self._per_call is not None:
            return self._bill(self._per_call, 0, 0, "measured", "measured")
        price = self.price
        if price is not None and (price.per_second or price.per_character) and not self._free:
            spoken = asked.get("input")  # sound costs by its length, or by the text spoken
            if price.per_second and 0 < (answer.audio_seconds or 0) <= _LONGEST_SOUND_S:
                nano = price.sound_nano(seconds=answer.audio_seconds or 0)
                return self._bill(nano, 0, 0, "measured", "measured")
            if price.per_character and isinstance(spoken, str):
                nano = price.sound_nano(characters=len(spoken))
                return self._bill(nano, 0, 0, "measured", "measured")
        return self.measured(answer, asked, bound)

    def measured(
        self,
        answer: ProviderResponse,
        asked: Mapping[str, Any],
        bound: UsageBound,
        *,
        in_batch: bool = False,
    ) -> Bill | None:
        """Return the bill for the usage that the provider reported; None if there is no plausible
        report.

        A report is implausible if its parts exceed their total, if a count is not credible, or if
        the provider's tools cost more than their bound. The certainty is ``measured``. It is
        ``estimated`` if the provider ran a tool that has no price of that provider, and
        ``unpriced``, without a cost, if the model has no price.

        Args:
            answer: the answer.
            asked: the fields of the call, which may ask for a dearer service.
            bound: upper bound of the usage.
            in_batch: whether the call was a request of a batch.
        """
        if not answer.usage_reported:
            return None
        price, tokens_in, tokens_out = self.price, answer.input_tokens, answer.output_tokens
        if not (self.is_credible(tokens_in, bound[0]) and self.is_credible(tokens_out, bound[1])):
            return None
        nano, certainty = None, "measured"
        if self._free:
            nano = 0
        elif price is not None:
            written, short = answer.cache_write_tokens or 0, answer.cache_write_short_tokens or 0
            if written > short and not _asks_long_cache(asked):
                short = written - (answer.cache_write_long_tokens or 0)
            try:
                usage = Usage(
                    tokens_in, tokens_out, answer.cached_input_tokens or 0, written,
                    answer.reasoning_tokens or 0, short, answer.audio_input_tokens or 0,
                    answer.audio_output_tokens or 0,
                )  # fmt: skip
            except InvalidInputError:
                return None
            served = {**answer.served, "service_tier": "batch"} if in_batch else answer.served
            percent = self._percent(asked, served)
            nano = -(-price.cost_nano(usage) * percent // 100)
            if answer.server_tool_uses:
                uses = billed_uses(answer.server_tool_uses, asked, price)
                nano_uses = price.tools_nano(uses)
                if nano_uses > (bound[2] or 0):
                    return None
                nano += nano_uses
                if price.assumes_tools or not uses.keys() <= price.server_tools.keys():
                    certainty = "estimated"
        return self._bill(nano, tokens_in, tokens_out, certainty, "unpriced")

    def is_credible(self, count: int, bound: int) -> bool:
        """Return True unless a reported count exceeds the model's window.

        If the bound is not below the window, the limit is ten times the bound.

        Args:
            count: the input tokens or the output tokens that the provider reported.
            bound: the call's upper bound of them.
        """
        window = (self.price.context_window if self.price else None) or _LARGEST_WINDOW
        return count <= (window if bound < window else _TIMES_THE_BOUND * bound)

    def assumed(
        self, tokens: tuple[int, int], certainty: str, asked: Mapping[str, Any] = _NO_FIELDS
    ) -> Bill:
        """Return the bill for unreported usage at the dearest price of so many tokens.

        The cost is None if the model has no price, and 0 for a free provider; the certainty is the
        given one in any case.

        Args:
            tokens: input and output tokens.
            certainty: the certainty to state.
            asked: the fields of the call, which may ask for a dearer service.
        """
        price, nano = self.price, None
        if self._free:
            nano = 0
        elif price is not None:
            percent = self._percent(asked, _NO_FIELDS)
            nano = -(-price.bound_nano(*tokens) * percent // 100)
        return self._bill(nano, *tokens, certainty, certainty)

    def thinks_unseen(self, parameters: Mapping[str, Any]) -> bool:
        """Return True if the model may think without any sign of it in the stream.

        Args:
            parameters: the fields of the call.
        """
        return self._thinks or any(parameters.get(name) is not None for name in _THINKING)

    def nothing(self) -> Bill:
        """Return the bill of a call that the provider did not charge: zero."""
        return self._bill(0, 0, 0, "measured", "measured")

    def unpriced(self) -> Bill:
        """Return the bill of an answered request that no table has a price for."""
        return self._bill(None, 0, 0, "unpriced", "unpriced")

    def _bill(
        self, nano: int | None, tokens_in: int, tokens_out: int, certainty: str, unpriced: str
    ) -> Bill:
        if nano is None:
            certainty = unpriced
        elif nano > MAX_SAFE_INTEGER:  # A recorded number is exact up to nine million dollars.
            nano = MAX_SAFE_INTEGER
        usage = TokenUsage(tokens_in, tokens_out, self._model[1], nano)
        return Bill(usage, certainty, self._version)


def _asks_long_cache(value: Any) -> bool:
    """Return True if a call asks for a cache that is kept longer than the ordinary time."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            if value.get("ttl") not in (None, "5m", "30m"):
                return True
            if value.get("prompt_cache_retention") not in (None, "in_memory", "in-memory"):
                return True
            left += value.values()
        elif isinstance(value, (list, tuple)):
            left += value
    return False


def input_bound(request: PromptRequest, sent: Sent) -> int:
    """Return an upper bound of the input tokens of a call in neutral form.

    Each byte counts as one token; tokens that providers add unseen are included.

    Args:
        request: the request.
        sent: the request, encoded.
    """
    bound = sent.size + MESSAGE_TOKENS * (len(sent.messages) + 1)
    bound += IMAGE_TOKENS * sent.images
    if request.tools or response_schema(request):
        bound += _TOOLS_TOKENS
    return bound


def estimated_input(config: RouterConfig, sent: Sent) -> int:
    """Return the estimated input tokens of a request, at least 1.

    The configured bytes per token are so few that ordinary text has fewer tokens than estimated.

    Args:
        config: the estimate of bytes per token.
        sent: the request.
    """
    tokens = int(sent.size / config.estimated_bytes_per_token)
    return max(1, tokens + MESSAGE_TOKENS * len(sent.messages) + IMAGE_TOKENS * sent.images)


def estimated_output(config: RouterConfig, text_bytes: int, pieces: int, bound: int) -> int:
    """Return the estimated output tokens of a stream that broke off, at most the bound.

    Each piece of the stream counts as at least one token. A bound of 0 limits nothing.

    Args:
        config: as for :func:`estimated_input`.
        text_bytes: bytes of the text that arrived.
        pieces: number of pieces that arrived.
        bound: upper bound of the output tokens.
    """
    tokens = max(pieces, math.ceil(text_bytes / config.estimated_bytes_per_token))
    return min(tokens, bound or tokens)
