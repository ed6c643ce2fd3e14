"""Failed attempts: their outcome, error code and bill, and their report to the circuit breaker."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Literal

from remit.gateway.budget import BudgetRefusedError, TokenBudgeter
from remit.gateway.cancellation import ENDED_BY
from remit.gateway.circuit_breakers import Permit
from remit.gateway.neutral_calls import finite
from remit.gateway.stream import StreamTap
from remit.gateway.values import Attempt, Call, Candidate, Failure, Refusal
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.kernel.json_text import sound_text
from remit.providers import CODES, UNSENT, ProviderError

_log = logging.getLogger("remit.gateway")


def failure_of(
    tap: StreamTap,
    attempt: Attempt,
    permit: Permit,
    error: BaseException,
    limits_s: tuple[float, float | None],
) -> Failure:
    """Return the failure that an exception stands for, and report to the circuit breaker.

    The report is a failure of the provider, a success, or nothing, as the error says about its
    health. A TimeoutError after the first piece counts as a success, because the model still
    answered. A ProviderError with the code ``TIMEOUT``, as of a stream that paused too long, counts
    as a failure. The code is ``TIMEOUT`` for a timeout, ``CANCELLED`` for a cancellation, and that
    of a ProviderError if it is known. Any other error is logged. All else becomes
    ``PROVIDER_ERROR``. The permit concerns the circuit alone: the reservation is settled by
    :func:`remit.gateway.records.bill_of`, as the failure's ``billing`` says.

    Args:
        tap: the stream of the attempt.
        attempt: the attempt.
        permit: the circuit breaker's permit.
        error: the exception that the attempt raised.
        limits_s: longest wait in seconds for the whole answer, and for a stream's first piece; the
            second is None if it has no shorter limit.

    Raises:
        BaseException: ``error`` itself if it is no failure of the call, such as a closing loop.
    """
    billing = _billing_of(attempt, error, has_output=tap.pieces > 0)
    if isinstance(error, TimeoutError):
        # Pieces came until the time limit of the whole answer, so the model is not ill.
        permit.report("ok" if tap.pieces else "bad")
        longest_s, first_s = limits_s
        within = longest_s if tap.pieces or first_s is None else first_s
        message = f"no answer within {within:g} s"
        failure = Failure(RouteOutcome.TIMEOUT, "TIMEOUT", message, billing)
    elif isinstance(error, ProviderError):
        if error.stale or error.code == "LOCAL_ERROR":
            permit.report("nothing")
        else:
            permit.report("bad" if error.speaks_of_health else "ok")
        timed_out = error.code == "TIMEOUT"
        failure = Failure(
            RouteOutcome.TIMEOUT if timed_out else RouteOutcome.ERROR,
            error.code if error.code in CODES else "PROVIDER_ERROR",
            message_of(error),
            billing,
            finite(error.retry_after_s),
            error.reply,
            error.answer,
            error.cause,
        )
    elif isinstance(error, asyncio.CancelledError):
        permit.report("nothing")
        failure = cancelled(error, billing)
    elif isinstance(error, Exception):  # whatever a provider object does is on record
        _log.warning(
            "provider %s broke its protocol: %s", attempt.to.provider_id, type(error).__name__
        )
        _log.debug("where it broke:\n%s", "".join(traceback.format_tb(error.__traceback__)))
        # Of a provider that speaks a dialect it is our own fault, not its own.
        permit.report("bad" if attempt.to.outgoing is None else "nothing")
        message = f"the provider object raised {type(error).__name__}"
        failure = Failure(RouteOutcome.ERROR, "PROVIDER_ERROR", message, billing)
    else:  # the loop is closing: recovery will find the call
        permit.report("nothing")
        raise error
    return failure


def cancelled(
    error: BaseException,
    billing: Literal["nothing", "arrived", "bound"] = "nothing",
    suffix: str = "",
) -> Failure:
    """Return the failure of a call whose caller was cancelled, with the reason of ``ENDED_BY``.

    Any other reason is that the caller disconnected.

    Args:
        error: the cancellation.
        billing: how the attempt is billed.
        suffix: text to add to the reason.
    """
    said = error.args[0] if error.args else ""
    why = said if said in ENDED_BY else "the caller disconnected"
    return Failure(RouteOutcome.ERROR, "CANCELLED", why + suffix, billing)


def message_of(error: RemitError) -> str:
    """Return an error's message as valid Unicode, which the ledger can store.

    A message of a provider object may be no text, or have no text.

    Args:
        error: the error.
    """
    try:
        return sound_text(str(error.message))
    except Exception:  # noqa: BLE001 - an object of the provider's may raise anything
        return f"the provider object raised {type(error).__name__} without a readable message"


def _billing_of(
    attempt: Attempt, error: BaseException, *, has_output: bool
) -> Literal["nothing", "arrived", "bound"]:
    """Return how a failed attempt is billed.

    Args:
        attempt: the attempt.
        error: the exception that it failed with.
        has_output: True if content came; content that came was produced and is billed.
    """
    if has_output:
        return "arrived"
    if not attempt.sent or UNSENT in getattr(error, "__notes__", ()):
        return "nothing"
    if isinstance(error, ProviderError) and not error.maybe_billed:
        # A provider that speaks a dialect knows whether its request can have arrived; a provider
        # object that raises a timeout without a status does not.
        timed_out = error.code == "TIMEOUT" and error.status is None
        return "bound" if timed_out and attempt.to.outgoing is None else "nothing"
    return "bound"


def refusal_of_failure(failed: PromptResponse | None) -> Refusal | None:
    """Return the code and message of a failed attempt; None without one.

    Args:
        failed: the response of the attempt.
    """
    return None if failed is None else Refusal(failed.error_code or "", failed.error_message or "")


def budget_refusal(
    budgeter: TokenBudgeter | None, call: Call, to: Candidate | None
) -> Refusal | None:
    """Return the refusal if the budget would refuse the call now; else None.

    A reservation decides for calls that are sent; this check is for calls that no model can take. A
    spent budget is reported rather than an open circuit.

    Args:
        budgeter: the enforced budgets; None if none are enforced.
        call: the call.
        to: the candidate whose amount is checked; None for no check.
    """
    if budgeter is None or to is None:
        return None
    check = budgeter.check_path(call.path, to.amount)
    if check.allowed or check.code == "BUDGET_BUSY":
        return None
    code, _, message = check.reason.partition(": ")
    return Refusal(code, message, remaining=check.remaining)


def refusal_of_budget(error: BudgetRefusedError) -> Refusal:
    """Return the refusal of a call that a budget refused, with its code and remaining amounts.

    Args:
        error: the budget's error.
    """
    return Refusal(error.code, error.message, None, error.retry_after_s, error.remaining)
