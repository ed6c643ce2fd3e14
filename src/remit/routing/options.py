"""How one request shall be routed, and what came of it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from remit.gateway import LLMGateway
from remit.gateway.auth import Identity
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, PromptResponse, TextSink
from remit.kernel.settings import default_settings
from remit.kernel.validation import check_fields
from remit.providers import EventSink
from remit.routing.candidate import Candidate
from remit.routing.emitters import NO_OP_DECISION_EMITTER, DecisionEmitter
from remit.routing.exploration import Exploration
from remit.routing.prompts import StagePrompts
from remit.routing.scoring import ScoringFn, score_candidates
from remit.routing.weights import Rules

_Positive = Annotated[float, Field(gt=0, lt=1e9)]
_TIMEOUT_VARIABLE = "REMIT_MODEL_TIMEOUT"


@dataclass(frozen=True, slots=True)
class EnsembleOptions:
    """How several models answer at once.

    Attributes:
        size: how many are asked.
        join: ``vote``: the answer that most give; ``judge``: the one that another model prefers;
            ``fields``: of JSON answers, for each field the value that most give.
        judge: the judges, tried in order. Left out: the candidates themselves.
        timeout_s: those that have not answered by then do not count.
        max_usd: as many are asked as surely cost no more together; ``None``: no bound of its own.
    """

    size: Annotated[int, Field(ge=1)] = 3
    join: Literal["vote", "judge", "fields"] = "vote"
    judge: Sequence[Candidate] = ()
    timeout_s: _Positive = 60.0
    max_usd: _Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self, "an ensemble")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a pipeline.

    Attributes:
        name: unique among the stages.
        contract_id: the contract whose prompt pack makes this stage's prompt out of
            ``question``, ``draft`` (the answer so far) and ``notes`` (by stage); empty: what was
            asked is sent as it is.
        candidates: who may do it; empty: those of the route.
        revises: whether its answer is the answer from then on, or a note on it.
    """

    name: str
    contract_id: str = ""
    candidates: Sequence[Candidate] = ()
    revises: bool = True


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """What :func:`remit.routing.route_request` needs beside the prompt.

    Attributes:
        gateway: every call goes through it.
        candidates: models that may answer, each with a name of its own.
        request: what else the calls say: contract, session, agent, limits. Its prompt and model
            are replaced.
        rules: scoring rules and their version; the shipped ones when left out.
        task: name of the task; empty: read off the prompt.
        operator_preference: a name of the rules' ``preferences``.
        mode: ``single``, ``ensemble`` or ``pipeline``.
        scoring_fn: scores instead of Remit's own function.
        decision_emitter: gets the decision, once; by default it does nothing.
        model_timeout_s: the longest that one model may take; ``REMIT_MODEL_TIMEOUT``, else
            the shipped default, when left out.
        emitter_timeout_s: the longest wait for the emitter.
        ensemble: of mode ``ensemble``.
        stages: of mode ``pipeline``, in order.
        prompts: makes a stage's or a judge's request out of its contract.
        exploration: draws another than the best model now and then; in the mode `single` alone.
        route: the name that the call asked for, as records show it.
        identity: who calls, where already authenticated.
        on_text: receives the answer's text as it comes: of the model that answers, alone.
        sink: receives all that its stream brings.
    """

    gateway: LLMGateway
    candidates: Sequence[Candidate]
    request: PromptRequest | None = None
    rules: Rules | None = None
    task: str = ""
    operator_preference: str = ""
    mode: Literal["single", "ensemble", "pipeline"] = "single"
    scoring_fn: ScoringFn = score_candidates
    decision_emitter: DecisionEmitter = NO_OP_DECISION_EMITTER
    model_timeout_s: float | None = None
    emitter_timeout_s: float = field(
        default_factory=lambda: default_settings().routing.emitter_timeout_s
    )
    ensemble: EnsembleOptions = field(default_factory=EnsembleOptions)
    stages: Sequence[Stage] = ()
    prompts: StagePrompts | None = None
    exploration: Exploration | None = None
    route: str = ""
    identity: Identity | None = None
    on_text: TextSink | None = None
    sink: EventSink | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("single", "ensemble", "pipeline"):
            raise InvalidInputError(f"Unknown routing mode {self.mode!r}.",
                                    next_step="Use single, ensemble or pipeline.")  # fmt: skip
        if self.model_timeout_s is not None:
            _check_positive("model_timeout_s", self.model_timeout_s)
        _check_positive("emitter_timeout_s", self.emitter_timeout_s)
        names = [stage.name for stage in self.stages]
        if self.mode == "pipeline" and (not names or len(set(names)) != len(names)):
            raise InvalidInputError("A pipeline requires stages with unique names.")
        if self.mode == "pipeline" and not self.stages[-1].revises:
            raise InvalidInputError(
                "The last stage of a pipeline must revise, because it makes the answer."
            )
        if self.prompts is None and any(stage.contract_id for stage in self.stages):
            raise InvalidInputError("Stages with a contract require a prompt builder.")


@dataclass(frozen=True, slots=True)
class RouteResult:
    """Who answered, and what.

    Attributes:
        model_id: the candidate that was chosen.
        response: the gateway's.
        scores: of every candidate.
        fallback_attempts: models tried minus one.
        latency_ms: from the beginning of routing to the answer, in milliseconds.
        cost_usd: of all calls that were made for it.
        decision_id: ``DEC-`` and 32 hex digits.
    """

    model_id: str
    response: PromptResponse
    scores: Mapping[str, float]
    fallback_attempts: int
    latency_ms: float
    cost_usd: float
    decision_id: str


def model_timeout_s(
    environment: Mapping[str, str] | None = None, *, default: float | None = None
) -> float:
    """The longest that one model may take, seconds: ``REMIT_MODEL_TIMEOUT``, else the default.

    Raises:
        InvalidInputError: the variable holds no number above 0.
    """
    variables = os.environ if environment is None else environment
    text = variables.get(_TIMEOUT_VARIABLE)
    if not text:
        return default_settings().routing.model_timeout_s if default is None else default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    _check_positive(_TIMEOUT_VARIABLE, value)
    return value


def _check_positive(name: str, value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < 1e9:  # type: ignore[operator]
        raise InvalidInputError(f"{name} is {value!r}; it must be a number above 0.")
