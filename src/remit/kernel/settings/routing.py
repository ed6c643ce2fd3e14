"""The settings of routing: which models there are to choose from, and how."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remit.kernel.settings.section import Section

_Usd = Annotated[float, Field(ge=0, le=1_000_000)]
_Seconds = Annotated[float, Field(gt=0, le=1_000_000)]


class RoutedModelSettings(Section):
    """``[routing.models.NAME]``: a model that routes may choose.

    The fields are its provider and name there (empty: NAME), its abilities by task in percent,
    prices for scoring, context window, speed and languages, and whether it takes tools (by default
    yes) and images (no). The price table comes before the prices here, which are never charged.
    """

    provider: str = Field(description="id of the provider that serves the model")
    served_as: str = Field("", description="provider's name of the model, if different")
    abilities: dict[str, int] = Field(
        default_factory=dict,
        description="percent by task (code, mathematics, reasoning, writing, summary, extraction,"
        " translation, chat); 'general' applies to all other tasks",
    )
    input_usd_per_million: _Usd | None = Field(
        None, description="input price for scoring, if the price table has none"
    )
    output_usd_per_million: _Usd | None = Field(
        None,
        description="output price for scoring, if the price table has none; charges always use "
        "the price table",
    )
    context_tokens: int = Field(
        0, ge=0, description="context window in tokens; 0: from the price table"
    )
    tokens_per_s: int = Field(0, ge=0, description="output tokens per second; 0: unknown")
    languages: list[str] = Field(
        default_factory=list,
        description="ISO 639 codes of languages that the model handles well; empty: unknown",
    )
    tools: bool = Field(True, description="true if the model accepts tool definitions")
    images: bool = Field(False, description="true if the model accepts images")


class StageSettings(Section):
    """An element of a route's ``stages``: a name, a contract for the prompt, and models.

    The answer of a stage replaces the current answer, or is a note for later stages. Without a
    contract the stage sends the unchanged request, and without models it uses the route's.
    """

    name: str = Field(description="unique within the route")
    contract: str = Field(
        "", description="contract that builds the prompt; empty: the unchanged request"
    )
    models: list[str] = Field(
        default_factory=list, description="models for this stage; empty: the models of the route"
    )
    revises: bool = Field(
        True,
        description="true if this stage's answer replaces the current answer; false: a note for "
        "later stages",
    )


class RouteSettings(Section):
    """``[routing.routes.NAME]``: the route of calls whose model is NAME.

    The route asks one of its models, several in parallel (``ensemble``), or a sequence of stages
    (``pipeline``). Other fields are the task and the preference of the choice, and for an ensemble
    its size, the way to combine the answers, judges, a timeout and a cost limit. Without ``models``
    the route takes all available ones. An ensemble ignores answers after ``timeout_s``, and calls
    only as many models as fit ``max_usd`` at their highest cost.

    Raises:
        ValueError: stages are given in another mode, or missing in a pipeline; a stage's name or a
            model occurs twice; or the last stage is a note.
    """

    mode: Literal["single", "ensemble", "pipeline"] = Field(
        "single",
        description="single: one model; ensemble: several models in parallel; pipeline: stages in"
        " sequence",
    )
    models: list[str] = Field(
        default_factory=list,
        description="names of [routing.models]; empty: all available models and the default model",
    )
    task: str = Field("", description="task of the calls; empty: detected from each prompt")
    operator_preference: str = Field(
        "", description="preference of the rules that replaces routing.operator_preference"
    )
    size: int = Field(3, ge=1, description="ensemble: number of models called in parallel")
    join: Literal["vote", "judge", "fields"] = Field(
        "vote", description="ensemble: how the answers are combined"
    )
    judge: list[str] = Field(
        default_factory=list,
        description="ensemble: models that judge the answers; empty: the ensemble's own models",
    )
    timeout_s: _Seconds = Field(60.0, description="ensemble: answers that arrive later are ignored")
    max_usd: _Usd | None = Field(
        None,
        gt=0,
        description="ensemble: only as many models are called as fit this limit at their maximum "
        "cost",
    )
    stages: list[StageSettings] = Field(
        default_factory=list, description="pipeline: the stages, in order"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [stage.name for stage in self.stages]
        if (self.mode == "pipeline") != bool(names):
            raise ValueError("a route has stages if, and only if, its mode is 'pipeline'")
        if len(set(names)) != len(names):
            raise ValueError("two stages have one name")
        for models in (self.models, self.judge, *(stage.models for stage in self.stages)):
            if len(set(models)) != len(models):
                raise ValueError("a model is named twice")
        if self.stages and not self.stages[-1].revises:
            raise ValueError("the last stage makes the answer: it cannot be a note")
        return self


class ExplorationSettings(Section):
    """``[routing.exploration]``: how often another model than the best answers, to learn from.

    The fields are the share of decisions, at most 0.5, the tasks (empty: all), and the maximum cost
    per day of UTC. The default is off.

    Raises:
        ValueError: there is a share, but ``usd_per_day`` is 0.
    """

    share: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="share of decisions that try a random candidate first; 0: exploration is off",
    )
    tasks: list[str] = Field(
        default_factory=list, description="tasks that are explored; empty: all"
    )
    usd_per_day: _Usd = Field(default=0.0, description="maximum cost of exploration per day (UTC)")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.share and not self.usd_per_day:
            raise ValueError("exploration needs usd_per_day, the most that it may cost")
        return self


class GuardSettings(Section):
    """``[routing.guard]``: the evidence that a learned route needs, fixed before the first fit.

    The fields are the largest accepted loss of reward, as a part of 1, and the number of fits that
    may decide; 0 is any number, which needs more grades.
    """

    tolerance: float = Field(
        default=0.025,
        gt=0,
        le=0.5,
        description="largest accepted loss of reward against the best single model, of 1",
    )
    looks: int = Field(
        default=2,
        ge=0,
        le=100,
        description="number of fits that may decide on the growing grades; 0: any number, which "
        "needs more grades",
    )


class RoutingSettings(Section):
    """``[routing]``: how a model is chosen for calls that name a route.

    The fields are the scoring rules, the default preference, timeouts, the models and the routes,
    models of last resort, and the sections of exploration and of the guard.
    """

    rules: str = Field(description="file of the scoring rules, relative to the root")
    operator_preference: str = Field(
        description="default preference of routes: balanced, quality, cost, speed, or another "
        "preference of the rules; empty: none"
    )
    model_timeout_s: _Seconds = Field(
        description="timeout of a model call; REMIT_MODEL_TIMEOUT takes precedence"
    )
    emitter_timeout_s: _Seconds = Field(description="longest wait for a decision's emitter")
    reliability_decisions: int = Field(
        ge=0,
        description="number of latest decisions used to compute the reliability of models; 0: not"
        " computed",
    )
    set_aside: list[str] = Field(
        default_factory=list,
        description="names of [routing.models] that routes use only as a last resort",
    )
    exploration: ExplorationSettings = ExplorationSettings()
    guard: GuardSettings = GuardSettings()
    models: dict[str, RoutedModelSettings]
    routes: dict[str, RouteSettings]
