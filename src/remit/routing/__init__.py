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
    from remit.routing.call_explanation import explain_call
    from remit.routing.canary import CanaryTerms, canary_in_force, terms_of
    from remit.routing.candidate import Candidate
    from remit.routing.decision import (
        RULES_UNAVAILABLE,
        RoutingDecision,
        RoutingDecisionRecord,
        build_routing_decision_record,
        compute_decision_hash,
        normalise_rule_version_hash,
    )
    from remit.routing.decision_explanation import explain
    from remit.routing.decision_replay import chances_of, find_decision, replay
    from remit.routing.emitters import (
        NO_OP_DECISION_EMITTER,
        DecisionEmitter,
        create_thought_record_emitter,
    )
    from remit.routing.ensemble import JUDGE_CONTRACT
    from remit.routing.errors import (
        CircuitOpenError,
        ErasedHeadError,
        FallbackChainExhaustedError,
        ModelCallError,
        NoAdapterError,
        RouteAttempt,
        RoutingError,
        WeightsError,
    )
    from remit.routing.intent import Intent, read_intent
    from remit.routing.learned_head import LearnedHead, append_head, buckets_of, head_on_record
    from remit.routing.model_registry import Registry
    from remit.routing.options import EnsembleOptions, RouteOptions, RouteResult, Stage
    from remit.routing.pre_registration import (
        REGISTRATION_FORMAT,
        Registration,
        read_registration,
        register_choices,
    )
    from remit.routing.reliability import Reliability
    from remit.routing.request import asked_of, new_request
    from remit.routing.route import aroute_request, route_request
    from remit.routing.router import Router
    from remit.routing.scores import Scoring, ScoringFn, ScoringInputs, score_candidates
    from remit.routing.stage_requests import StagePrompts
    from remit.routing.weights import Rules, Weights, load_rules
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "JUDGE_CONTRACT",
    "NO_OP_DECISION_EMITTER",
    "REGISTRATION_FORMAT",
    "RULES_UNAVAILABLE",
    "CanaryTerms",
    "Candidate",
    "CircuitOpenError",
    "DecisionEmitter",
    "EnsembleOptions",
    "ErasedHeadError",
    "FallbackChainExhaustedError",
    "Intent",
    "LearnedHead",
    "ModelCallError",
    "NoAdapterError",
    "Registration",
    "Registry",
    "Reliability",
    "RouteAttempt",
    "RouteOptions",
    "RouteResult",
    "Router",
    "RoutingDecision",
    "RoutingDecisionRecord",
    "RoutingError",
    "Rules",
    "Scoring",
    "ScoringFn",
    "ScoringInputs",
    "Stage",
    "StagePrompts",
    "Weights",
    "WeightsError",
    "append_head",
    "aroute_request",
    "asked_of",
    "buckets_of",
    "build_routing_decision_record",
    "canary_in_force",
    "chances_of",
    "compute_decision_hash",
    "create_thought_record_emitter",
    "explain",
    "explain_call",
    "find_decision",
    "head_on_record",
    "load_rules",
    "new_request",
    "normalise_rule_version_hash",
    "read_intent",
    "read_registration",
    "register_choices",
    "replay",
    "route_request",
    "score_candidates",
    "terms_of",
]

# Earlier names, for programs that catch them; they end with version 1.0.
DecisionNotFoundError = NotFoundError
RouteNotFoundError = NotFoundError
