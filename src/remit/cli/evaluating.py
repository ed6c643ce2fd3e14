"""``remit route evaluate``."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from remit.cli.shared import echo_json, note, progress, reads, say

if TYPE_CHECKING:
    from remit.routing.candidate import Candidate
    from remit.routing.evaluation import Evaluation, Outcome, Policy
    from remit.routing.weights import Weights

__all__ = ["evaluate"]

_FORMS = ("jsonl", "routerbench-csv")
_MANY = 1_000_000


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
                required=False)  # fmt: skip
@click.option("--candidates", "candidates_file", type=click.Path(path_type=Path, dir_okay=False),
              help="What is stated of the models, as TOML (default: the root's).")  # fmt: skip
@click.option("--weights", "weights_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Rules of scoring (default: the root's, else the shipped ones).")  # fmt: skip
@click.option("--task", default="", help="Only the prompts of this task.")
@click.option("--format", "form", type=click.Choice(_FORMS), default=_FORMS[0], show_default=True,
              help="What FILE is.")  # fmt: skip
@reads
def evaluate(
    file: Path | None,
    candidates_file: Path | None,
    weights_file: Path | None,
    task: str,
    form: str,
    root: Path | None,
    as_json: bool,
) -> None:
    """Replay a set whose answers are graded already, and print what each policy is worth.

    FILE is the set, - for standard input; without it, the small set that comes with Remit. Nothing
    is sent to any model.
    """
    from remit.routing.evaluation import evaluate as count
    from remit.routing.evaluation import open_set, open_shipped_set

    name = "the shipped set" if file is None else str(file)
    weights = _weights(weights_file, root)
    with _opened(file) if file else open_shipped_set() as stream:
        rows = open_set(stream, form if file else _FORMS[0], name=name, task=task)
        first = next(rows, None)
        among = list(first.results) if first else []
        candidates = _candidates(candidates_file, file, root, among)
        policies = _policies(candidates, weights)
        seen, done = _bar(stream)
        found = count(
            itertools.chain([first] if first else [], rows),
            policies,
            models=[one.model_id for one in candidates] or None,
            seen=seen,
        )
        done()
    if as_json:
        echo_json({"set": name, "rule_version_hash": weights.rule_version_hash, **found.to_dict()})
        return
    for line in _report(found, [one.name for one in policies if not one.family]):
        say(line)
    left_out = sorted(set(among) - {one.model_id for one in candidates})
    if not candidates:
        note("Nothing is stated of these models, so nothing was scored: see --candidates.")
    elif left_out:
        note(f"Left out, for nothing is stated of them: {', '.join(left_out)}.")


def _opened(file: Path) -> IO[bytes]:
    from remit.routing.evaluation import EvaluationError

    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise EvaluationError(f"The set {file} cannot be read: {error.strerror}.") from error


def _weights(file: Path | None, root: Path | None) -> Weights:
    """The rules named, else the root's, else those that come with Remit."""
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.routing.weights import Weights

    if file is None:
        place = find_root(root)
        of_root = place.path / load_settings(place.config).settings.routing.rules
        file = of_root if of_root.is_file() else None
    return Weights.from_file(file) if file else Weights.shipped()


def _candidates(
    file: Path | None, data: Path | None, root: Path | None, among: Sequence[str]
) -> Sequence[Candidate]:
    """What the file named states; else of the shipped set; else the root's settings."""
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.providers.prices import PriceTable
    from remit.routing.evaluation import read_candidates, shipped_candidates, stated_candidates

    if data is None and file is None:
        return shipped_candidates()
    place = find_root(root)
    settings = load_settings(place.config).settings
    prices = PriceTable.shipped()
    if settings.budget.prices:
        prices = prices.overlaid(PriceTable.from_file(place.path / settings.budget.prices))
    if file:
        return read_candidates(file, prices=prices)
    known = {name: one for name, one in settings.routing.models.items() if name in among}
    return stated_candidates(known, "the settings", prices=prices)


def _policies(candidates: Sequence[Candidate], weights: Weights) -> list[Policy]:
    from remit.routing.evaluation import preference_policies, scoring_policy, sweep

    if not candidates:
        return []
    return [
        scoring_policy(candidates, weights),
        scoring_policy(candidates, weights, name="scoring, told the task", told_task=True),
        *preference_policies(candidates, weights),
        *sweep(candidates, weights),
        *sweep(candidates, weights, family="scoring told the task by weight of price",
               told_task=True),
    ]  # fmt: skip


def _bar(stream: IO[bytes]) -> tuple[Callable[[int], None] | None, Callable[[], None]]:
    """A progress bar by bytes read, and its end; only where the stream is a file."""
    from remit.routing.evaluation.shipped import settings

    try:
        total = os.fstat(stream.fileno()).st_size
        stream.tell()
    except OSError:
        total = 0
    if not total:
        return None, lambda: None
    show, step = progress("evaluating"), settings().progress_rows

    def seen(rows: int) -> None:
        if rows % step == 0:
            show(min(stream.tell(), total - 1), total)

    return seen, lambda: show(total, total)


def _report(found: Evaluation, listed: Sequence[str]) -> Iterable[str]:
    """The figures for people; of the policies only those ``listed``."""
    policies = [found.policy(name) for name in listed]
    tasks = ", ".join(f"{rows:,} {task or 'without a task'}" for task, rows in found.tasks.items())
    yield f"{found.rows:,} prompts: {tasks}."
    yield f"Quality from 0 to 1, with its 95% interval; cost in US dollars per {_MANY:,} prompts."
    yield ""
    shown = [*found.models, found.random, found.oracle, *policies]
    heads = ["policy", "quality", "interval", "cost", "against best single", "gap closed", ""]
    yield from _table(heads, [_figures(one, found) for one in shown])
    yield ""
    yield "Quality by task"
    heads = ["policy", *(task or "(none)" for task in found.tasks)]
    yield from _table(heads, [_by_task(one, found) for one in shown])
    if policies:
        yield ""
        yield "Share of each model"
        heads = ["policy", *(one.name for one in found.models)]
        yield from _table(
            heads, [[one.name, *(f"{share:.0%}" for share in one.shares.values())]
                    for one in policies],
        )  # fmt: skip
    for frontier in found.frontiers:
        yield ""
        yield f"Frontier of {frontier.family}: area {frontier.area:.4f}"
        for corner in frontier.hull:
            yield f"  {corner.quality:.3f} for {_dollars(corner.cost_usd)}"


def _figures(one: Outcome, found: Evaluation) -> list[str]:
    interval, against = one.interval, one.against_best
    alone = one in found.models
    roles = {
        "best single": alone and one.name == found.best_single,
        "cheapest": alone and one.name == found.cheapest,
        "dearest": alone and one.name == found.dearest,
        "expected of chance": one is found.random,
        "best answer each time": one is found.oracle,
    }
    return [
        one.name,
        f"{one.quality:.3f}",
        f"{interval.low:.3f}-{interval.high:.3f}",
        _dollars(one.cost_usd),
        f"{against.quality:+.3f} ({against.interval.low:+.3f} to {against.interval.high:+.3f})",
        "-" if one.gap_closed is None else f"{one.gap_closed:.0%}",
        ", ".join(role for role, holds in roles.items() if holds),
    ]


def _by_task(one: Outcome, found: Evaluation) -> list[str]:
    return [one.name, *(f"{one.tasks[task].quality:.3f}" for task in found.tasks)]


def _dollars(cost_usd: float) -> str:
    """The cost of many prompts: of one it is too small to be read."""
    return f"${cost_usd * _MANY:.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    lines = [heads, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        yield "  ".join(cells).rstrip()
