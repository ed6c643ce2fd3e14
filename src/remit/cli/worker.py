"""``remit worker``: runs a worker for submitted orders, and lists workers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.operations import add_commands
from remit.cli.options import common
from remit.cli.output import note, say
from remit.cli.roots import whoami
from remit.kernel.message_text import count

if TYPE_CHECKING:
    from remit.runtime import OrderWorker, Runtime


@click.group(invoke_without_command=True)
@click.option(
    "--queue", "queues", multiple=True, help="Queue to take orders from. Repeat for several queues."
)
@click.option(
    "--concurrency", type=click.IntRange(1), help="Number of orders to run at the same time."
)
@click.option(
    "--app", metavar="MODULE:FUNCTION", help="Module and function that define agents and schedules."
)
@click.option("--model", help="Model for agents that do not name one.")
@common
@click.pass_context
def worker(
    context: click.Context,
    /,
    root: Path | None,
    queues: tuple[str, ...],
    concurrency: int | None,
    app: str | None,
    model: str | None,
) -> None:
    """Run submitted orders; on SIGTERM, finish the running ones.

    A second signal ends the process at once. Other workers resume turns that do not end in time.

    Orders come from `remit order submit` and Agent.submit. Any number of workers can run, on any
    machines that share the ledger's database. Agents of installed packages are available.
    Agents defined in code come from --app, a function that receives the runtime.
    """
    if context.invoked_subcommand is not None:
        if any((root, queues, concurrency, app, model)):
            raise click.UsageError(f"Options go after `{context.invoked_subcommand}`.")
        return
    from remit.runtime import OrderWorker, Runtime, load_app

    with Runtime.open(root, model=model, by=whoami()) as runtime:
        agents, schedules = load_app(runtime, app) if app else ([], [])
        made = OrderWorker(
            runtime, agents, schedules, queues=queues or ("default",), at_once=concurrency
        )
        asyncio.run(_run(made, runtime))


async def _run(made: OrderWorker, runtime: Runtime) -> None:
    """Work until a signal arrives; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: os._exit(128 + signal.SIGTERM))
        made.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)

    def ready() -> None:
        name, _, queues = made.seat.removeprefix("worker:").partition("/")
        say(f"Worker {name} takes orders of {queues.replace(',', ', ')}")

    if left := await made.run(ready):
        note(f"{count(left, 'turn')} did not end in time; other workers will resume them.")
        await asyncio.to_thread(runtime.ledger.flush)
        os._exit(0)  # not cancelled, which would be their end
    await runtime.aclose()


add_commands(worker)
