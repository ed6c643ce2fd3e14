"""``remit learn``: lists the proposals of learners and records a person's decisions."""

from __future__ import annotations

import click

from remit.cli.learn_judge import judge
from remit.cli.learn_prompt import prompt
from remit.cli.learn_replay import replay
from remit.cli.learn_report import report
from remit.cli.operations import add_commands


@click.group()
def learn() -> None:
    """Review what Remit learned: signals, proposals, and their adoption."""


learn.add_command(judge)
learn.add_command(prompt)
learn.add_command(replay)
learn.add_command(report)
add_commands(learn)
