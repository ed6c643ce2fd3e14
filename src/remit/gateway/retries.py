"""Retries of one model: whether a failed attempt may be repeated, after which wait, and how."""

from __future__ import annotations

import asyncio
import random

from msgspec import structs

from remit.gateway.config import RouterConfig
from remit.gateway.neutral_calls import finite
from remit.gateway.values import Call, Candidate, Choice
from remit.providers import ProviderError


async def next_attempt(
    config: RouterConfig,
    call: Call,
    choice: Choice,
    to: Candidate,
    error: BaseException,
    retries: int,
) -> tuple[Candidate | None, int] | None:
    """Wait; return the request to send again and the number of retries, or None to stop.

    The request is None if it must be made again: the provider may have learnt from the failure how
    to translate it. A stale connection is replaced, a request to a missing endpoint is translated,
    and a conversation that the provider no longer stores is sent whole, without counting a retry or
    waiting. Otherwise the wait is random, up to a bound that doubles with each retry, and at least
    the provider's ``retry-after``. The result is None if content was passed on to the client
    already, the provider may charge for the failed attempt, the error is not retryable, the retries
    are used up, or the provider asks for a longer wait than ``retry_max_ms``.

    Args:
        config: the bounds of a wait.
        call: the call; its ``translated`` or ``unfolded`` may gain the provider.
        choice: its choice, with the most retries of a model.
        to: the request that was sent.
        error: the error of the attempt.
        retries: number of retries of the model so far.

    Raises:
        CancelledError: the caller was cancelled during the wait.
    """
    if not isinstance(error, ProviderError) or call.tap.was_passed_on or call.tap.is_paid:
        return None
    if error.stale and to.outgoing is not None and not to.outgoing.reconnect:
        # Nothing is wrong with the provider: another connection, at once.
        to.outgoing = structs.replace(to.outgoing, reconnect=True)
        return to, retries
    if error.to_translate and to.provider_id not in call.translated:
        # The model has not been asked, so no retry is counted and nothing is waited for.
        call.translated |= {to.provider_id}
        return None, retries
    if error.to_unfold and to.provider_id not in call.unfolded:
        call.unfolded |= {to.provider_id}
        return None, retries
    wait_s = _wait_s(config, retries + 1, error.retry_after_s)
    if not error.retryable or retries >= choice.max_retries or wait_s is None:
        return None
    await asyncio.sleep(wait_s)
    return None, retries + 1


def _wait_s(config: RouterConfig, number: int, asked_s: float | None) -> float | None:
    """Return the seconds until retry ``number``; None if the provider asks for a longer wait than
    allowed.

    The wait is random up to a bound that doubles, and at least the provider's ``retry-after``.
    """
    bound = min(config.retry_max_ms, config.retry_base_ms * 2 ** (number - 1)) / 1000
    asked = finite(asked_s) or 0.0
    if asked > config.retry_max_ms / 1000:
        return None
    return max(random.uniform(0, bound), asked)  # noqa: S311
