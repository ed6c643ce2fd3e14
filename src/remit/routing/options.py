"""Options and results of routing one request."""

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
from remit.kernel.pydantic_validation import check_fields
from remit.kernel.settings import default_settings
from remit.providers import EventSink
from remit.routing.canary import Canary
from remit.routing.candidate import Candidate
from remit.routing.emitters import NO_OP_DECISION_EMITTER, DecisionEmitter
from remit.routing.exploration import Exploration
from remit.routing.scores import ScoringFn, score_candidates
from remit.routing.stage_requests import StagePrompts
from remit.routing.weights import Rules

_Positive = Annotated[float, Field(gt=0, lt=1e9)]
_TIMEOUT_VARIABLE = "REMIT_MODEL_TIMEOUT"


@dataclass(frozen=True, slots=True)
class EnsembleOptions:
    """Options of an ensemble, in which several models answer at once.

    Attributes:
        size: number of models.
        join: ``vote`` takes the most frequent answer, ``judge`` the one that another model prefers,
            ``fields`` the most frequent value of each field of JSON answers.
        judge: the judges, tried in order; empty for the candidates themselves.
        timeout_s: answers after this many seconds are ignored.
        max_usd: upper bound of the cost of all together; None for no bound.

    Raises:
        InvalidInputError: a value has another type or range.
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
    """A stage of a pipeline.

    Attributes:
        name: unique among the stages.
        contract_id: the contract whose prompt pack makes the stage's prompt from ``question``,
            ``draft`` (the answer so far) and ``notes`` (by stage); empty to send the caller's
            request.
        candidates: candidates of the stage; empty for those of the route.
        revises: True if its answer replaces the draft, False if it is a note.
    """

    name: str
    contract_id: str = ""
    candidates: Sequence[Candidate] = ()
    revises: bool = True


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """Options of :func:`remit.routing.route_request`.

    Attributes:
        gateway: makes every call.
        candidates: models that may answer, with unique names.
        request: contract, session, agent and limits of the calls; its prompt and model are
            replaced.
        rules: scoring rules and their version; None for the shipped ones.
        task: name of the task; empty to read it from the prompt.
        operator_preference: a name of the rules' ``preferences``.
        mode: ``single``, ``ensemble`` or ``pipeline``.
        scoring_fn: scores instead of Remit's own function.
        decision_emitter: receives the decision once.
        model_timeout_s: longest wait for one model in seconds; None for ``REMIT_MODEL_TIMEOUT``,
            else the shipped default.
        emitter_timeout_s: longest wait for the emitter in seconds.
        ensemble: options of mode ``ensemble``.
        stages: stages of mode ``pipeline``, in order.
        prompts: makes the request of a stage or a judge from its contract.
        exploration: sometimes draws another model than the best; in mode ``single`` only.
        canary: draws between the current and a proposed route; in mode ``single`` only.
        route: the name that the call asked for, for records.
        identity: the caller, if already authenticated.
        on_text: receives the text of the answering model as it comes.
        sink: receives every event of its stream.

    Raises:
        InvalidInputError: the options contradict each other or have a wrong value.
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
    canary: Canary | None = None
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
    """The answer to a routed request.

    Attributes:
        model_id: the chosen candidate.
        response: the gateway's response.
        scores: the score of each candidate.
        fallback_attempts: number of models tried, minus one.
        latency_ms: milliseconds from the start of routing to the answer.
        cost_usd: cost of all calls.
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
    """Return the longest wait for one model in seconds: ``REMIT_MODEL_TIMEOUT``, else the default.

    Args:
        environment: the variables; None for those of the process.
        default: the default; None for the shipped one.

    Raises:
        InvalidInputError: the variable is not a number above 0.
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
