"""Agents and schedules made by a program, given to ``remit worker`` as ``module:attribute``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.runtime.agent import Agent
from remit.runtime.schedules import Schedule

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime


def load_app(runtime: Runtime, place: str) -> tuple[list[Agent[Any]], list[Schedule[Any]]]:
    """Call a function of the program with the runtime; return its agents and schedules.

    The module is imported, and the working directory is added to ``sys.path``. An error of the
    module, other than ImportError and AttributeError, or of the function is raised unchanged.

    Args:
        runtime: the open root.
        place: ``module:function``. Modules are searched in the working directory too. The function
            returns one item or a list, or yields items; without items, both lists are empty.

    Raises:
        InvalidInputError: ``place`` does not name a function, the import fails, or the function
            returns another object than agents and schedules.
    """
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInputError(
            f"{place!r} does not name a function.", next_step="Write module:function."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{place!r} cannot be imported: {error}.",
            next_step="Start the worker in the directory of the module, or install the module.",
        ) from error
    if not callable(make):
        raise InvalidInputError(
            f"{place!r} is not a function.", next_step="Give a function that takes the runtime."
        )
    made = make(runtime)
    found = [made] if isinstance(made, (Agent, Schedule)) else made
    if not isinstance(found, Iterable) or isinstance(found, str):
        found = [found]
    agents: list[Agent[Any]] = []
    schedules: list[Schedule[Any]] = []
    for item in found:
        if isinstance(item, Agent):
            agents.append(item)
        elif isinstance(item, Schedule):
            schedules.append(item)
        else:
            raise InvalidInputError(
                f"{place!r} returned a {type(item).__name__}.",
                next_step="Return agents and schedules.",
            )
    return agents, schedules
