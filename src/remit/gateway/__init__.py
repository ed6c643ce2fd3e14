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
    from remit.gateway.auth import Identity as Identity, KeyStore as KeyStore
    from remit.gateway.batches import BatchPlan as BatchPlan, BatchRefusedError as BatchRefusedError
    from remit.gateway.batches.audit import check_batches as check_batches
    from remit.gateway.bounds import call_bound as call_bound
    from remit.gateway.budget import (
        BudgetCheckResult as BudgetCheckResult,
        BudgetLimits as BudgetLimits,
        BudgetScope as BudgetScope,
        DebitResult as DebitResult,
        TokenBudgeter as TokenBudgeter,
        TokenUsage as TokenUsage,
    )
    from remit.gateway.call_transactions import (
        FinishCall as FinishCall,
        IdempotencyKeyUsedError as IdempotencyKeyUsedError,
    )
    from remit.gateway.caller_deletion import (
        entries_of_batch as entries_of_batch,
        entries_of_call as entries_of_call,
    )
    from remit.gateway.cancellation import (
        KEY_ENDED as KEY_ENDED,
        SHUTTING_DOWN as SHUTTING_DOWN,
        STOPPED_BY_OWNER as STOPPED_BY_OWNER,
        STOPPED_READING as STOPPED_READING,
    )
    from remit.gateway.choice import (
        Chooser as Chooser,
        owner_by_prefix as owner_by_prefix,
        split_name as split_name,
    )
    from remit.gateway.circuit import CircuitState as CircuitState
    from remit.gateway.circuit_breakers import CircuitBreaker as CircuitBreaker
    from remit.gateway.config import (
        CircuitBreakerConfig as CircuitBreakerConfig,
        RouterConfig as RouterConfig,
    )
    from remit.gateway.gateway import LLMGateway as LLMGateway, PromptRouter as PromptRouter
    from remit.gateway.inflight import InFlightCalls as InFlightCalls
    from remit.gateway.leases import LeaseLostError as LeaseLostError
    from remit.gateway.neutral_calls import in_neutral_form as in_neutral_form
    from remit.gateway.ownership_audit import OWNERSHIP as OWNERSHIP
    from remit.gateway.recorded_run import (
        RecordedCall as RecordedCall,
        Recording as Recording,
        ReplayDifference as ReplayDifference,
        neutral_text as neutral_text,
    )
    from remit.gateway.replay_gateway import ReplayGateway as ReplayGateway
    from remit.gateway.session_owners import (
        NotYoursError as NotYoursError,
        check_session as check_session,
        default_session as default_session,
        owner_of as owner_of,
    )
    from remit.gateway.stored_response import (
        CannotContinueError as CannotContinueError,
        KeptId as KeptId,
        TooLongError as TooLongError,
    )
    from remit.gateway.tool_bounds import runs_at_provider as runs_at_provider
    from remit.gateway.transport import AnyProvider as AnyProvider
    from remit.gateway.values import (
        Attempt as Attempt,
        Call as Call,
        CallReport as CallReport,
        Candidate as Candidate,
        Choice as Choice,
        DecisionStep as DecisionStep,
        Failure as Failure,
        IsErased as IsErased,
        Model as Model,
        OnRecord as OnRecord,
        Part as Part,
        Parts as Parts,
        Refusal as Refusal,
        RefusedError as RefusedError,
    )
    from remit.kernel.exchange import (
        MAX_ID_CHARS as MAX_ID_CHARS,
        PromptRequest as PromptRequest,
        PromptResponse as PromptResponse,
        RouteOutcome as RouteOutcome,
    )
    from remit.providers import Dispatched as Dispatched
else:
    __getattr__ = lazy_names(__name__)
