"""``python -m tools.route_evaluation``."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

import click

from remit.cli.shared import echo_json, note, progress, reads, say
from remit.kernel.errors import RemitError
from remit.kernel.message_text import count
from remit.kernel.root import find_root
from remit.kernel.settings import load_settings
from remit.providers.prices import PriceTable
from remit.routing.candidate import Candidate
from remit.routing.weights import Weights
from tools.route_evaluation.candidates import read_candidates, stated_candidates
from tools.route_evaluation.counts import evaluate
from tools.route_evaluation.errors import EvaluationError
from tools.route_evaluation.figures import Evaluation, Outcome
from tools.route_evaluation.frontier import KEPT
from tools.route_evaluation.policy import (
    Policy,
    preference_policies,
    read_choices,
    registered_policy,
    scoring_policy,
    sweep,
)
from tools.route_evaluation.rows import FORMATS, open_set
from tools.route_evaluation.shipped import CANDIDATES, REPORT

__all__ = ["command", "main"]

_MANY = 1_000_000
_PROGRESS_ROWS = 500


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
                required=False)  # fmt: skip
@click.option("--candidates", "candidates_file", type=click.Path(path_type=Path, dir_okay=False),
              help="What is stated of the models, as TOML (default: the root's).")  # fmt: skip
@click.option("--weights", "weights_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Rules of scoring (default: the root's, else the shipped ones).")  # fmt: skip
@click.option(
    "--registration",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A registration of `remit route evaluate`, whose choices are a policy.",
)
@click.option("--task", default="", help="Only the prompts of this task.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="jsonl",
              show_default=True, help="What FILE is.")  # fmt: skip
@reads
def command(
    file: Path | None,
    candidates_file: Path | None,
    weights_file: Path | None,
    registration: Path | None,
    task: str,
    form: str,
    root: Path | None,
    as_json: bool,
) -> None:
    """Replay a set whose answers are graded already, and print what each policy is worth.

    FILE is the set, - for standard input; without it, the small set beside this tool. Nothing is
    sent to any model.
    """
    name = "the shipped set" if file is None else str(file)
    weights = _weights(weights_file, root)
    with _opened(file or REPORT) as stream:
        rows = open_set(stream, form if file else "jsonl", name=name, task=task)
        first = next(rows, None)
        among = list(first.results) if first else []
        candidates = _candidates(candidates_file, file, root, among)
        policies = _policies(candidates, weights)
        choices = read_choices(registration) if registration else {}
        if registration is not None:
            policies.append(registered_policy(choices))
        seen, done = _bar(stream)
        found = evaluate(
            itertools.chain([first] if first else [], rows),
            policies,
            models=[candidate.model_id for candidate in candidates] or None,
            seen=seen,
        )
        done()
    if choices:
        note(f"Registered, and not evaluated: {count(len(choices), 'prompt')}.")
    if as_json:
        echo_json({"set": name, "rule_version_hash": weights.rule_version_hash, **found.to_dict()})
        return
    for line in _report(found, [policy.name for policy in policies if not policy.family]):
        say(line)
    left_out = sorted(set(among) - {candidate.model_id for candidate in candidates})
    if not candidates:
        note("Nothing is stated of these models, so nothing was scored: see --candidates.")
    elif left_out:
        note(f"Left out, for nothing is stated of them: {', '.join(left_out)}.")


def main() -> None:
    """Run the command; errors are a sentence on standard error and exit code 1."""
    try:
        command(prog_name="python -m tools.route_evaluation")
    except RemitError as error:
        note(f"error: {error.message}")
        if error.next_step:
            note(f"  next: {error.next_step}")
        sys.exit(1)


def _opened(file: Path) -> IO[bytes]:
    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise EvaluationError(f"The set {file} cannot be read: {error.strerror}.") from error


def _weights(file: Path | None, root: Path | None) -> Weights:
    """The rules named, else the root's, else those that come with Remit."""
    if file is None:
        place = find_root(root)
        of_root = place.path / load_settings(place.config).settings.routing.rules
        file = of_root if of_root.is_file() else None
    return Weights.from_file(file) if file else Weights.shipped()


def _candidates(
    file: Path | None, data: Path | None, root: Path | None, among: Sequence[str]
) -> Sequence[Candidate]:
    """What the file named states; else of the shipped set; else the root's settings."""
    if data is None and file is None:
        return read_candidates(CANDIDATES)
    place = find_root(root)
    settings = load_settings(place.config).settings
    prices = PriceTable.shipped()
    if settings.budget.prices:
        prices = prices.overlaid(PriceTable.from_file(place.path / settings.budget.prices))
    if file:
        return read_candidates(file, prices=prices)
    known = {name: model for name, model in settings.routing.models.items() if name in among}
    return stated_candidates(known, "the settings", prices=prices)


def _policies(candidates: Sequence[Candidate], weights: Weights) -> list[Policy]:
    if not candidates:
        return []
    return [
        scoring_policy(candidates, weights),
        scoring_policy(candidates, weights, name="scoring, given the task", given_task=True),
        *preference_policies(candidates, weights),
        *sweep(candidates, weights),
        *sweep(candidates, weights, family="scoring given the task by weight of price",
               given_task=True),
    ]  # fmt: skip


def _bar(stream: IO[bytes]) -> tuple[Callable[[int], None] | None, Callable[[], None]]:
    """A progress bar by bytes read, and its end; only where the stream is a file."""
    try:
        total = os.fstat(stream.fileno()).st_size
        stream.tell()
    except OSError:
        total = 0
    if not total:
        return None, lambda: None
    show = progress("evaluating")

    def seen(rows: int) -> None:
        if rows % _PROGRESS_ROWS == 0:
            show(min(stream.tell(), total - 1), total)

    return seen, lambda: show(total, total)


def _report(found: Evaluation, listed: Sequence[str]) -> Iterable[str]:
    """The figures for people; of the policies only those ``listed``."""
    policies = [found.policy(name) for name in listed]
    tasks = ", ".join(f"{rows:,} {task or 'without a task'}" for task, rows in found.tasks.items())
    yield f"{count(found.rows, 'prompt')}: {tasks}."
    yield f"Quality from 0 to 1, with its 95% interval; cost in US dollars per {_MANY:,} prompts."
    yield ""
    shown = [*found.models, found.random, found.oracle, *policies]
    heads = ["policy", "quality", "interval", "cost", "against best single", "gap closed", ""]
    yield from _table(heads, [_figures(outcome, found) for outcome in shown])
    yield ""
    heads = ["policy", "RouterArena", "robustness", "models chosen"]
    yield from _table(heads, [
        [one.name, _share(one.arena_score), _share(one.robustness), str(one.models_chosen)]
        for one in shown
    ])  # fmt: skip
    if policies and all(one.robustness is None for one in policies):
        yield "Robustness to paraphrase is missing: no prompt of the set has paraphrases."
    yield ""
    yield "Quality by task"
    heads = ["policy", *(task or "(none)" for task in found.tasks)]
    yield from _table(heads, [_by_task(outcome, found) for outcome in shown])
    if policies:
        yield ""
        yield "Share of each model"
        heads = ["policy", *(outcome.name for outcome in found.models)]
        yield from _table(
            heads, [[outcome.name, *(f"{share:.0%}" for share in outcome.shares.values())]
                    for outcome in policies],
        )  # fmt: skip
    for frontier in found.frontiers:
        yield ""
        kept = "never" if frontier.kept_usd is None else f"for {_dollars(frontier.kept_usd)}"
        yield (
            f"Frontier of {frontier.family}: AIQ {frontier.aiq:.4f}, "
            f"{KEPT:.0%} of the best single model {kept}"
        )
        for corner in frontier.hull:
            yield f"  {corner.quality:.3f} for {_dollars(corner.cost_usd)}"


def _figures(outcome: Outcome, found: Evaluation) -> list[str]:
    interval, against = outcome.interval, outcome.against_best
    alone = outcome in found.models
    roles = {
        "best single": alone and outcome.name == found.best_single,
        "cheapest": alone and outcome.name == found.cheapest,
        "dearest": alone and outcome.name == found.dearest,
        "expected of chance": outcome is found.random,
        "best answer each time": outcome is found.oracle,
    }
    return [
        outcome.name,
        f"{outcome.quality:.3f}",
        f"{interval.low:.3f}-{interval.high:.3f}",
        _dollars(outcome.cost_usd),
        f"{against.quality:+.3f} ({against.interval.low:+.3f} to {against.interval.high:+.3f})",
        "-" if outcome.gap_closed is None else f"{outcome.gap_closed:.0%}",
        ", ".join(role for role, holds in roles.items() if holds),
    ]


def _by_task(outcome: Outcome, found: Evaluation) -> list[str]:
    return [outcome.name, *(f"{outcome.tasks[task].quality:.3f}" for task in found.tasks)]


def _share(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}"


def _dollars(cost_usd: float) -> str:
    """The cost of many prompts: of one it is too small to be read."""
    return f"${cost_usd * _MANY:.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    lines = [heads, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        yield "  ".join(cells).rstrip()


if __name__ == "__main__":
    main()
