"""Refusals of calls, on record."""

from __future__ import annotations

from remit.gateway.call import Call
from remit.gateway.records import rejection_entry
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, LedgerEntry, utc_now

__all__ = ["Rejections"]


class Rejections:
    """Puts on record what is refused.

    Args:
        ledger: where.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    async def reject(
        self,
        call: Call,
        code: str,
        message: str,
        remaining: int | None = None,
        retry_after_s: float | None = None,
        param: str | None = None,
    ) -> PromptResponse:
        """One ``PROMPT_REJECTED``; nothing held, nothing sent.

        Of a routed request one is written for the request, by its router.
        """
        request = call.request
        entry_id = ""
        if call.routed is None:
            entry: LedgerEntry = rejection_entry(request, code, message)
            ahead = await request.ahead.take() if request.ahead is not None else []
            write = self._ledger.submit([*ahead, entry])
            if request.ahead is not None:
                request.ahead.follow(write)
            entry_id = (await write)[-1]
        return PromptResponse(
            content="",
            outcome=RouteOutcome.REJECTED,
            input_tokens=0,
            output_tokens=0,
            model_id=request.model_id or "",
            provider_id=request.provider_id or "",
            latency_ms=0.0,
            timestamp=utc_now(),
            exchange_entry_id=entry_id,
            context_hash=call.request_hash,
            error_code=code,
            error_message=message,
            error_param=param,
            budget_remaining=remaining,
            fallback_from=tuple(call.passed_over),
            retry_after_s=retry_after_s,
        )
