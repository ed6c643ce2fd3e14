"""The entry point of ``remit``, and the printing of errors."""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import logging
import os
import re
import sys

import click

from remit._version import __version__
from remit.cli.output import note, printable
from remit.kernel.errors import InvalidInputError, RemitError, nearest

_COMMANDS = (
    "init", "setup", "doctor", "chat", "ask", "serve", "worker", "order", "mcp", "key", "team",
    "user", "organisation", "budget", "price", "usage", "ledger", "session", "trace", "replay",
    "report", "receipt", "trail", "route", "learn", "feedback", "approve", "model", "witness",
    "tenant", "package", "gate", "deploy", "bootstrap", "config", "completion",
)  # fmt: skip
"""The names of all commands, as the help lists them."""
_BY_HAND = (
    "setup", "doctor", "chat", "serve", "worker", "mcp", "session", "replay", "report",
    "approve", "witness", "package", "completion",
)  # fmt: skip
"""The commands with a module of their own name; other modules are made from operations."""
_MODULES = {**{name: name for name in _BY_HAND}, "ask": "chat"}


# Objects made and not freed before the collector looks. At Python's own 700 it takes a quarter of
# the time of a short command, looking through modules that stay to the end.
_GC_THRESHOLD = 50_000


class _Commands(click.Group):
    """The group of all commands; a command's module is imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"remit.cli.{_MODULES.get(cmd_name, 'operations')}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            near = nearest(name, _COMMANDS)
            hint = f"Did you mean {near!r}?" if near else "`remit --help` lists the commands."
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remit")
def _remit() -> None:
    """Remit: an accountable runtime for LLM agents."""


class _PrintableFormatter(logging.Formatter):
    """A log formatter whose output, with tracebacks, follows the commands' printing rules."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's message; lines after the first are indented."""
        return printable(super().format(record).replace("\n", "\n    "))


def _flush_output() -> None:
    """Flush standard output; discard it after an error, so that Python does not try again at exit.

    Raises:
        OSError: the output cannot be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _print_wrong_use(wrong: click.ClickException) -> None:
    """Print click's error, or the help that click raises for a group without a subcommand."""
    message = re.sub("a valid float( range)?[.]$", "a number.", wrong.format_message())
    message = re.sub("(a valid integer) range[.]$", r"\1.", message)
    if message.startswith("Usage: "):
        click.echo(message, err=True)
        return
    if isinstance(wrong, click.UsageError) and wrong.ctx is not None:
        path = wrong.ctx.command_path
        note(wrong.ctx.get_usage())
        note(f"Try '{path} --help' for help.")
        note("")
    note(f"Error: {message}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process.

    The exit code is 0 after success, 1 after a failure, 2 after wrong use or invalid input, and 130
    after an interrupt; a command may set its own. Errors are printed to standard error.

    Args:
        arguments: the arguments; those of the process if None.
    """
    if arguments is None:  # the process is this command's own
        gc.set_threshold(_GC_THRESHOLD)
        atexit.register(gc.freeze)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # The caller closed it.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):  # Any stored text can be printed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    level = os.environ.get("REMIT_LOG", "ERROR").upper()
    if level not in logging.getLevelNamesMapping():
        note(f"error: REMIT_LOG is {level!r}; use DEBUG, INFO, WARNING or ERROR.")
        sys.exit(2)
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintableFormatter("%(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("remit.settings").setLevel(min(logging.WARNING, logging.root.level))
    try:
        try:
            _remit.main(args=arguments, prog_name="remit", standalone_mode=False)
        finally:
            _flush_output()
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.ClickException as wrong:
        _print_wrong_use(wrong)
        sys.exit(wrong.exit_code)
    except (click.Abort, KeyboardInterrupt):
        note("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)  # The reader of our output has enough; what is recorded is durable.
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        note(f"error: Reading or writing failed: {error.strerror or error}{place}.")
        note("  next: Check the free space, the paths and their permissions.")
        sys.exit(1)
    except RemitError as error:
        note(f"error: {error.message}")  # a message may hold a provider's words
        if error.next_step:
            note(f"  next: {error.next_step}")
        sys.exit(2 if isinstance(error, InvalidInputError) else 1)
    except Exception as error:  # noqa: BLE001 - people get a sentence, not a traceback
        note(f"error: An internal error occurred ({type(error).__name__}).")
        note("  next: Run the command again with --debug, and report the traceback.")
        sys.exit(1)
