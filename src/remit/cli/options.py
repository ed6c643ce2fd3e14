"""Options that commands share, and types of their values."""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remit.cli.output import note, set_raw

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
INPUT = click.Path(path_type=Path, exists=True, dir_okay=False)


class NumberRange(click.FloatRange):
    """A click type for a number in a range; refuses NaN and infinity, which evade budgets."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the value as a float.

        Raises:
            click.BadParameter: the value is not a finite number in the range.
        """
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number in the range {self._describe_range()}.", param, ctx)
        return float(found)


_F = TypeVar("_F", bound=Callable[..., Any])


def debuggable(function: _F) -> _F:
    """Add ``--debug`` and ``--raw`` to a command.

    With ``--debug``, a failure also prints its traceback on standard error. ``--raw`` is in force
    until the command ends, see :func:`remit.cli.output.is_raw`. Errors of the command are raised
    unchanged.
    """

    @click.option("--debug", is_flag=True, help="Show a traceback on failure.")
    @click.option(
        "--raw", is_flag=True, help="Print recorded text unchanged, including control characters."
    )
    @functools.wraps(function)
    def wrapper(*args: Any, debug: bool, raw: bool, **kwargs: Any) -> Any:
        set_raw(raw)
        try:
            return function(*args, **kwargs)
        except Exception:
            if debug:
                note(traceback.format_exc().rstrip())
            raise
        finally:
            set_raw(False)

    return wrapper  # type: ignore[return-value]


def common(function: _F) -> _F:
    """Add ``--root``, ``--debug`` and ``--raw`` to a command."""
    option = click.option(
        "--root",
        type=FOLDER,
        help="Root directory (default: REMIT_ROOT, else the nearest .remit in a parent directory).",
    )
    return option(debuggable(function))


def with_json(function: _F) -> _F:
    """Add ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def reads(function: _F) -> _F:
    """Add ``--json`` and the options of :func:`common` to a command that shows something."""
    return with_json(common(function))
