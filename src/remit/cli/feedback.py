"""``remit feedback``: records how good the answer of a call was, as a reader judged."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    FILE,
    echo_json,
    emit,
    limited,
    one_line,
    open_ledger,
    print_json_list,
    reads,
    say_list,
    table,
    whoami,
)

if TYPE_CHECKING:
    from remit.learning import Feedback
    from remit.ledger import LedgerClient


@click.command()
@click.argument("target", required=False, metavar="[ID]")
@click.option("--score", type=float, help="Score from 0 (bad) to 1 (good).")
@click.option("--label", default="", help="Label to count by, such as wrong_unit.")
@click.option("--reason", default="", help="Reason; erased together with its subject.")
@click.option("--by", help="Author of the feedback (default: the current user).")
@click.option("--reference", help="Grade the answer by this reference: 1 if equal, else 0.")
@click.option(
    "--schema", type=FILE, help="Grade the answer by this JSON Schema: 1 if valid, else 0."
)
@click.option(
    "--idempotency-key",
    default="",
    help="Idempotency key: repeated feedback with the same key is recorded once.",
)
@click.option("--shares", is_flag=True, help="Show the share of feedback of each author.")
@limited
@reads
def feedback(
    root: Path | None,
    as_json: bool,
    limit: int | None,
    target: str | None,
    score: float | None,
    label: str,
    reason: str,
    by: str | None,
    reference: str | None,
    schema: Path | None,
    idempotency_key: str,
    shares: bool,
) -> None:
    """Rate an answer. Without a score or label, list the recorded feedback.

    ID is an entry (LED-…) of an exchange, turn or work order, a work order (WO-…), a routing
    decision (DEC-…), a turn of a session (SES-…/3), or a session (SES-…) for its latest turn.
    """
    from remit.learning import give_feedback, grade_by_reference, grade_by_schema

    if shares:
        _shares(root, as_json, limit)
        return
    grades = [reference is not None, schema is not None, score is not None or bool(label)]
    if sum(grades) > 1:
        raise click.UsageError("Give --score and --label, or --reference, or --schema.")
    if not any(grades):
        if reason or by or idempotency_key:
            raise click.UsageError("Give --score, --label, --reference or --schema.")
        with open_ledger(root) as client:
            _list(client, target, as_json, limit)
        return
    if target is None:
        raise click.UsageError("Give the ID that the feedback is about.")
    name = by or whoami()
    with open_ledger(root, signing=True) as client:
        if reference is not None:
            given = grade_by_reference(client, target, reference, by=name)
        elif schema is not None:
            given = grade_by_schema(client, target, _schema(schema), by=name)
        else:
            given = give_feedback(
                client, target, score=score, label=label, reason=reason, by=name,
                idempotency_key=idempotency_key,
            )  # fmt: skip
    emit(as_json, _plain(given), [_line(given)])


def _shares(root: Path | None, as_json: bool, limit: int | None) -> None:
    from remit.learning import rater_shares, read_samples

    with open_ledger(root) as client:
        found = rater_shares(read_samples(client))
    if as_json:
        echo_json({"raters": [asdict(one) for one in found[:limit]]})
        return
    rows = [
        (one.rater, str(one.graded), f"{one.weight:.3f}", f"{100 * one.share:.1f} %")
        for one in found
    ]
    say_list(table(("who", "exchanges", "weight of each", "of a signal"), rows), limit)


def _list(ledger: LedgerClient, target: str | None, as_json: bool, limit: int | None) -> None:
    from itertools import islice

    from remit.learning import feedback_on
    from remit.learning.judges import is_uncalibrated

    found, asks = feedback_on(ledger, target), is_uncalibrated(ledger)
    if as_json:
        shown = ({**_plain(one), "uncalibrated": asks(one)} for one in islice(found, limit))
        print_json_list("feedback", shown)
    else:
        lines = (f"{_line(one)}{'  UNCALIBRATED' if asks(one) else ''}" for one in found)
        say_list(lines, limit)


def _schema(file: Path) -> Any:
    from remit.cli.learn_files import read_table

    return read_table(file)


def _plain(given: Feedback) -> dict[str, Any]:
    return {**asdict(given), "reason": given.reason}


def _line(given: Feedback) -> str:
    score = "" if given.score is None else f"{given.score:g}"
    said = " ".join(word for word in (score, given.label) if word)
    line = (
        f"{given.entry_id}  {given.target_type.replace('_', ' ')} {given.target_entry_id}: {said} "
        f"({given.source}: {given.by})"
    )
    if given.reason:
        line += f"  {given.reason}"
    if given.again:
        line += "  already recorded under this idempotency key"
    elif given.replaces:
        line += f"  replaces {given.replaces}"
    return one_line(line)
