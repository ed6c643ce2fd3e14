"""Routing: the choice of a model for a call, by rules that anyone can run again.

The room owns scores, chains of models, the record of each decision and its explanation, and the
trail of thoughts. The room owns no call: the gateway sends it.

Invariants: a decision names the hash of the rules that made it; the same inputs and rules give the
same decision; a route never widens the models that a key allows.

Start reading in :mod:`remit.routing.router`. Doors: ``intent`` reads a request, ``learned_head``
and ``weights`` contain the rules of scoring, ``scores`` computes scores, ``trail`` records
thoughts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.kernel.errors import NotFoundError

if TYPE_CHECKING:
    from remit.routing.call_explanation import explain_call as explain_call
    from remit.routing.canary import (
        CanaryTerms as CanaryTerms,
        canary_in_force as canary_in_force,
        terms_of as terms_of,
    )
    from remit.routing.candidate import Candidate as Candidate
    from remit.routing.decision import (
        RULES_UNAVAILABLE as RULES_UNAVAILABLE,
        RoutingDecision as RoutingDecision,
        RoutingDecisionRecord as RoutingDecisionRecord,
        build_routing_decision_record as build_routing_decision_record,
        compute_decision_hash as compute_decision_hash,
        normalise_rule_version_hash as normalise_rule_version_hash,
    )
    from remit.routing.decision_explanation import explain as explain
    from remit.routing.decision_replay import (
        chances_of as chances_of,
        find_decision as find_decision,
        replay as replay,
    )
    from remit.routing.emitters import (
        NO_OP_DECISION_EMITTER as NO_OP_DECISION_EMITTER,
        DecisionEmitter as DecisionEmitter,
        create_thought_record_emitter as create_thought_record_emitter,
    )
    from remit.routing.ensemble import JUDGE_CONTRACT as JUDGE_CONTRACT
    from remit.routing.errors import (
        CircuitOpenError as CircuitOpenError,
        ErasedHeadError as ErasedHeadError,
        FallbackChainExhaustedError as FallbackChainExhaustedError,
        ModelCallError as ModelCallError,
        NoAdapterError as NoAdapterError,
        RouteAttempt as RouteAttempt,
        RoutingError as RoutingError,
        WeightsError as WeightsError,
    )
    from remit.routing.intent import Intent as Intent, read_intent as read_intent
    from remit.routing.learned_head import (
        LearnedHead as LearnedHead,
        append_head as append_head,
        buckets_of as buckets_of,
        head_on_record as head_on_record,
    )
    from remit.routing.model_registry import Registry as Registry
    from remit.routing.options import (
        EnsembleOptions as EnsembleOptions,
        RouteOptions as RouteOptions,
        RouteResult as RouteResult,
        Stage as Stage,
    )
    from remit.routing.pre_registration import (
        REGISTRATION_FORMAT as REGISTRATION_FORMAT,
        Registration as Registration,
        read_registration as read_registration,
        register_choices as register_choices,
    )
    from remit.routing.reliability import Reliability as Reliability
    from remit.routing.request import asked_of as asked_of, new_request as new_request
    from remit.routing.route import aroute_request as aroute_request, route_request as route_request
    from remit.routing.router import Router as Router
    from remit.routing.scores import (
        Scoring as Scoring,
        ScoringFn as ScoringFn,
        ScoringInputs as ScoringInputs,
        score_candidates as score_candidates,
    )
    from remit.routing.stage_requests import StagePrompts as StagePrompts
    from remit.routing.weights import Rules as Rules, Weights as Weights, load_rules as load_rules
else:
    __getattr__ = lazy_names(__name__)

# Earlier names, for programs that catch them; they end with version 1.0.
DecisionNotFoundError = NotFoundError
RouteNotFoundError = NotFoundError
