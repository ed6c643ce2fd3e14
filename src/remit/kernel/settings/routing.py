"""The settings of routing: which models there are to choose from, and how."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remit.kernel.settings.section import Section

_Usd = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class RoutedModelSettings(Section):
    """``[routing.models.NAME]``: a model and its properties."""

    provider: str = Field(description="id of the provider that runs it")
    served_as: str = Field("", description="what the provider calls it, where that is another name")
    abilities: dict[str, int] = Field(
        default_factory=dict,
        description="percent by task (code, mathematics, reasoning, writing, summary, extraction, "
        "translation, chat); 'general' for those not named",
    )
    input_usd_per_million: _Usd | None = Field(
        None, description="price for scoring, where the table of prices has none"
    )
    output_usd_per_million: _Usd | None = Field(
        None, description="likewise for output; bills always go by the table of prices"
    )
    context_tokens: int = Field(
        0, ge=0, description="context window; 0: as the table of prices says"
    )
    tokens_per_s: int = Field(0, ge=0, description="output speed; 0: unknown")
    languages: list[str] = Field(
        default_factory=list,
        description="ISO 639 codes of those it is good at; empty: no statement",
    )
    tools: bool = Field(True, description="whether it takes tool definitions")
    images: bool = Field(False, description="whether it takes images")


class StageSettings(Section):
    """An element of a route's ``stages``."""

    name: str = Field(description="unique within the route")
    contract: str = Field(
        "", description="contract that makes its prompt; empty: what was asked, as it is"
    )
    models: list[str] = Field(
        default_factory=list, description="who may do it; empty: the models of the route"
    )
    revises: bool = Field(
        True, description="its answer is the answer from then on; false: a note for later stages"
    )


class RouteSettings(Section):
    """``[routing.routes.NAME]``: the route of calls with ``model: NAME``."""

    mode: Literal["single", "ensemble", "pipeline"] = Field(
        "single", description="one model; several at once; or stages, one after the other"
    )
    models: list[str] = Field(
        default_factory=list,
        description="names of [routing.models]; empty: all that can be reached, and the default "
        "model",
    )
    task: str = Field("", description="what its calls are; empty: derived from each prompt")
    operator_preference: str = Field(
        "", description="instead of routing.operator_preference: a name of the rules' preferences"
    )
    size: int = Field(3, ge=1, description="of an ensemble: how many models are asked at once")
    join: Literal["vote", "judge", "fields"] = Field(
        "vote", description="of an ensemble: how its answers are made one"
    )
    judge: list[str] = Field(
        default_factory=list, description="of an ensemble: models that judge; empty: its own"
    )
    timeout_s: _Seconds = Field(
        60.0, description="of an ensemble: who has not answered by then does not count"
    )
    max_usd: _Usd | None = Field(
        None, gt=0, description="of an ensemble: as many are asked as surely cost no more together"
    )
    stages: list[StageSettings] = Field(
        default_factory=list, description="of a pipeline: its stages, in order"
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
    """``[routing.exploration]``: how often another model than the best answers, to learn from."""

    share: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        allow_inf_nan=False,
        description="part of the decisions in which one of all candidates at random is asked "
        "first; 0: exploration is off",
    )
    tasks: list[str] = Field(
        default_factory=list, description="of which tasks alone; empty: of all"
    )
    usd_per_day: _Usd = Field(
        default=0.0, description="most that calls of models chosen so may cost in a day (UTC)"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.share and not self.usd_per_day:
            raise ValueError("exploration needs usd_per_day, the most that it may cost")
        return self


class RoutingSettings(Section):
    """``[routing]``: how a model is chosen for calls that name a route."""

    rules: str = Field(description="file of the scoring rules, relative to the root")
    operator_preference: str = Field(
        description="what routes prefer that say nothing else: balanced, quality, cost, speed, "
        "or another name of the rules; empty: nothing"
    )
    model_timeout_s: _Seconds = Field(
        description="longest call of one model; REMIT_MODEL_TIMEOUT goes before it"
    )
    emitter_timeout_s: _Seconds = Field(
        description="longest time that a decision's emitter is waited for"
    )
    reliability_decisions: int = Field(
        ge=0, description="latest decisions that models' reliability is computed from; 0: it is not"
    )
    set_aside: list[str] = Field(
        default_factory=list,
        description="names of [routing.models] that no route chooses while it has another",
    )
    exploration: ExplorationSettings = ExplorationSettings()
    models: dict[str, RoutedModelSettings]
    routes: dict[str, RouteSettings]
