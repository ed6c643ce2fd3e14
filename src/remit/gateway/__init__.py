"""The gateway: authentication, budgets, recording and dispatch of every model call.

The room owns admission, reservation, dispatch and settlement of each call, virtual keys, budgets,
leases and batches. The room owns no protocol of a provider and chooses no model.

Invariants: a call is sent only after its ``DISPATCH`` and its reservation are durable; each
dispatch ends in exactly one ``EXCHANGE`` or ``EXCHANGE_ORPHANED``; spend never exceeds a limit by
more than a provider bills beyond the stated bound.

Start reading in :mod:`remit.gateway.call`. Doors: ``auth`` owns keys and identities, ``budget``
reserves and settles, ``leases`` exclude other processes, ``memory`` bounds the memory of a process,
``objects`` records who owns a file or batch at a provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.gateway.auth import Identity, KeyStore
    from remit.gateway.batches import BatchPlan, BatchRefusedError
    from remit.gateway.batches.audit import check_batches
    from remit.gateway.bounds import call_bound
    from remit.gateway.budget import (
        BudgetCheckResult,
        BudgetLimits,
        BudgetScope,
        DebitResult,
        TokenBudgeter,
        TokenUsage,
    )
    from remit.gateway.call_transactions import FinishCall, IdempotencyKeyUsedError
    from remit.gateway.caller_deletion import entries_of_batch, entries_of_call
    from remit.gateway.cancellation import (
        KEY_ENDED,
        SHUTTING_DOWN,
        STOPPED_BY_OWNER,
        STOPPED_READING,
    )
    from remit.gateway.choice import Chooser, owner_by_prefix, split_name
    from remit.gateway.circuit import CircuitState
    from remit.gateway.circuit_breakers import CircuitBreaker
    from remit.gateway.config import CircuitBreakerConfig, RouterConfig
    from remit.gateway.field_bounds import runs_at_provider
    from remit.gateway.gateway import LLMGateway, PromptRouter
    from remit.gateway.inflight import InFlightCalls
    from remit.gateway.leases import LeaseLostError
    from remit.gateway.neutral_calls import in_neutral_form
    from remit.gateway.ownership_audit import OWNERSHIP
    from remit.gateway.recorded_run import RecordedCall, Recording, ReplayDifference, neutral_text
    from remit.gateway.replay_gateway import ReplayGateway
    from remit.gateway.session_owners import NotYoursError, check_session, default_session, owner_of
    from remit.gateway.stored_response import CannotContinueError, KeptId, TooLongError
    from remit.gateway.transport import AnyProvider
    from remit.gateway.values import (
        Attempt,
        Call,
        CallReport,
        Candidate,
        Choice,
        DecisionStep,
        Failure,
        IsErased,
        Model,
        OnRecord,
        Part,
        Parts,
        Refusal,
        RefusedError,
    )
    from remit.kernel.exchange import MAX_ID_CHARS, PromptRequest, PromptResponse, RouteOutcome
    from remit.providers import Dispatched
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "KEY_ENDED",
    "MAX_ID_CHARS",
    "OWNERSHIP",
    "SHUTTING_DOWN",
    "STOPPED_BY_OWNER",
    "STOPPED_READING",
    "AnyProvider",
    "Attempt",
    "BatchPlan",
    "BatchRefusedError",
    "BudgetCheckResult",
    "BudgetLimits",
    "BudgetScope",
    "Call",
    "CallReport",
    "Candidate",
    "CannotContinueError",
    "Choice",
    "Chooser",
    "CircuitBreaker",
    "CircuitBreakerConfig",
    "CircuitState",
    "DebitResult",
    "DecisionStep",
    "Dispatched",
    "Failure",
    "FinishCall",
    "IdempotencyKeyUsedError",
    "Identity",
    "InFlightCalls",
    "IsErased",
    "KeptId",
    "KeyStore",
    "LLMGateway",
    "LeaseLostError",
    "Model",
    "NotYoursError",
    "OnRecord",
    "Part",
    "Parts",
    "PromptRequest",
    "PromptResponse",
    "PromptRouter",
    "RecordedCall",
    "Recording",
    "Refusal",
    "RefusedError",
    "ReplayDifference",
    "ReplayGateway",
    "RouteOutcome",
    "RouterConfig",
    "TokenBudgeter",
    "TokenUsage",
    "TooLongError",
    "call_bound",
    "check_batches",
    "check_session",
    "default_session",
    "entries_of_batch",
    "entries_of_call",
    "in_neutral_form",
    "neutral_text",
    "owner_by_prefix",
    "owner_of",
    "runs_at_provider",
    "split_name",
]
