"""What is stated of the models of a set: in a file, in the words of ``remit.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remit.kernel.errors import ConfigError
from remit.kernel.settings import RoutedModelSettings
from remit.providers.prices import PriceTable
from remit.routing.candidate import Candidate
from remit.routing.model_registry import candidate_of
from tools.route_evaluation.errors import EvaluationError

__all__ = ["read_candidates", "stated_candidates"]


def read_candidates(path: Path, *, prices: PriceTable | None = None) -> tuple[Candidate, ...]:
    """Candidates of a TOML file with ``[routing.models.NAME]``, by name; other tables are ignored.

    Args:
        path: such a file; ``remit.toml`` is one.
        prices: the shipped table when left out.

    Raises:
        EvaluationError: it cannot be read, or states no model, or one wrongly.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(f"The candidates file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise EvaluationError(f"The candidates file {path} is not TOML: {error}.") from error
    routing = document.get("routing")
    listed = routing.get("models") if isinstance(routing, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise EvaluationError(f"{path} states no model.",
                              next_step='It takes [routing.models."NAME"] for each.')  # fmt: skip
    stated = {model: _stated(model, table, str(path)) for model, table in listed.items()}
    return stated_candidates(stated, str(path), prices=prices)


def stated_candidates(
    models: Mapping[str, RoutedModelSettings],
    name: str,
    *,
    prices: PriceTable | None = None,
) -> tuple[Candidate, ...]:
    """Candidates by name, as the registry of a root makes them, but of usual reliability.

    Prices are the table's; where it has none, those that are stated with the model.

    Args:
        models: settings by name.
        name: what errors call the source.
        prices: the shipped table when left out.

    Raises:
        EvaluationError: a model's abilities or languages are none.
    """
    table = prices or PriceTable.shipped()
    return tuple(_candidate(model, models[model], table, name) for model in sorted(models))


def _stated(model: str, table: Any, name: str) -> RoutedModelSettings:
    try:
        return RoutedModelSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(("routing.models", model, *map(str, first["loc"])))
        raise EvaluationError(f"{name}, {key}: {first['msg']}.",
                              next_step="See docs/evaluation.md.") from error  # fmt: skip


def _candidate(model: str, stated: RoutedModelSettings, prices: PriceTable, name: str) -> Candidate:
    try:
        return candidate_of(model, stated, prices)
    except ConfigError as error:
        raise EvaluationError(f"{name}: {error}") from error
