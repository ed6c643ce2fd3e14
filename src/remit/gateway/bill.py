"""The bill of one attempt, whether answered or failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.gateway.billing import Bill, estimate
from remit.gateway.config import RouterConfig
from remit.gateway.values import Attempt, Call, Failure
from remit.providers import ProviderResponse


def bill_of(
    call: Call, attempt: Attempt, result: ProviderResponse | Failure, config: RouterConfig
) -> Bill:
    """Return the bill of an attempt: as reported, estimated, or at the upper bound.

    Args:
        call: the call.
        attempt: the attempt.
        result: its answer or failure.
        config: the rules of estimates.
    """
    to, tap = attempt.to, call.tap
    tariff = to.tariff
    if attempt.cached is not None:
        return tariff.nothing()
    held = attempt.hold or to.amount
    asked: Mapping[str, Any] = {}
    is_text = True
    if to.outgoing is not None:
        endpoint = to.outgoing.body.endpoint
        asked, is_text = to.outgoing.body.value, bool(endpoint.output_limit)
        if endpoint.is_unpriced:
            is_billed = isinstance(result, ProviderResponse) or result.billing != "nothing"
            return tariff.unpriced() if is_billed else tariff.nothing()
    if isinstance(result, ProviderResponse):
        if to.outgoing is not None and to.outgoing.body.endpoint.free:
            # Of a batch that the provider did not name nothing more will be heard.
            named = call.on_record is not None and call.on_record.keeps_hold(result)
            if named or not held.tokens:
                return tariff.nothing()
            return tariff.at_bound(held, to.bound)
        return tariff.answered(result, asked, to.bound) or tariff.at_bound(held, to.bound)
    if result.answer is not None and result.answer.output_tokens:
        # The provider failed after it had put something out, and says how much that was.
        return tariff.answered(result.answer, asked, to.bound) or tariff.at_bound(held, to.bound)
    if result.billing == "nothing":
        return tariff.nothing()
    if result.billing == "bound" or not is_text or tariff.thinks_unseen(asked):
        # What was thought and not shown is billed like what arrived; of sound and pictures
        # the number of tokens that arrived is unknown.
        return tariff.at_bound(held, to.bound)
    reported = tap.input_tokens if tap.input_tokens is not None else to.bound[0]
    tokens = estimate(config, to.sent, reported, tap.size, tap.pieces, to.bound)
    return tariff.assumed(tokens, "estimated", asked)
