"""What happens when the loop around the model fails: one direct call, and the reason on record."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from remit.agents.sessions import Turn
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.workorders import EventSink, TextDelta
from remit.contracts import ContractError
from remit.kernel.errors import RemitError
from remit.kernel.exchange import (
    GatewayPort,
    PromptRequest,
    RouteOutcome,
    TextSink,
    conversation,
)

__all__ = ["LOOP_FAILURES", "LoopFailedError", "as_loop_failure", "direct_answer"]

_log = logging.getLogger("remit.supervisor")

LOOP_FAILURES = frozenset(
    {
        "contract_not_found",
        "contract_schema_invalid",
        "prompt_pack_not_found",
        "input_schema_invalid",
    }
)
"""Failures of the machinery around the model: a direct call can still answer."""


class LoopFailedError(RemitError):
    """The machinery of a turn failed, not the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def as_loop_failure(error: Exception) -> LoopFailedError:
    """Why the loop failed, as the record says it."""
    if isinstance(error, LoopFailedError):
        return error
    if isinstance(error, ContractError):
        return LoopFailedError(error.code, error.message)
    _log.warning("the turn's loop failed: %s", type(error).__name__)
    _log.debug("where it failed", exc_info=True)
    if isinstance(error, RemitError):
        return LoopFailedError(type(error).__name__, error.message)
    return LoopFailedError("internal_error", f"{type(error).__name__} in the loop")


async def direct_answer(
    gateway: GatewayPort | None,
    failed: LoopFailedError,
    message: str,
    turns: Sequence[Turn],
    journal: SupervisorJournal,
    max_tokens: int,
    contract_id: str,
    agent_class: str,
    model: tuple[str, str] | None,
    listen: EventSink,
) -> str:
    """The answer of one direct call, or an honest word that there is none."""
    if gateway is None:
        return f"I cannot answer: {failed.message}"
    provider_id, model_id = model or (None, None)
    provider_id = provider_id or None  # the name of a route has none
    sink: TextSink = lambda text: listen(TextDelta(text))  # noqa: E731
    response = await gateway.aroute(
        PromptRequest(
            prompt=message,
            prompt_pack_id="",
            contract_id=contract_id,
            agent_id=journal.agent_id,
            agent_class=agent_class,
            framework_id="",
            package_id="",
            work_order_id="",
            session_id=journal.session_id,
            tier="ho2",
            provider_id=provider_id,
            model_id=model_id,
            messages=[
                *conversation((turn.user_message, turn.response or "…") for turn in turns),
                {"role": "user", "content": message},
            ],
            max_tokens=max_tokens,
        ),
        on_text=sink,
    )
    if response.outcome is RouteOutcome.SUCCESS and response.content.strip():
        return response.content
    why = response.error_message or "the model gave no answer"
    return f"I cannot answer: {failed.message} The direct call failed too: {why}"
