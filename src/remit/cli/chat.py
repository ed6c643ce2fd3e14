"""``remit chat``: the ADMIN shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import common, note

if TYPE_CHECKING:
    from remit.runtime import Conversation, Runtime

__all__ = ["chat", "run_chat"]

_HELP = """\
/session   this session's id          /cost     what it has used
/trace     what happened, step by step  /verify   check the whole ledger
/help      this                       /exit     end the session"""


@click.command()
@click.option("--model", help="Which model answers: auto, a provider, a model, provider/model.")
@click.option("--session", "session_id", help="Go on with this session.")
@common
def chat(root: Path | None, model: str | None, session_id: str | None) -> None:
    """Talk to the ADMIN agent. With piped input it answers each line."""
    run_chat(root, model, session_id)


def run_chat(root: Path | None, model: str | None, session_id: str | None) -> None:
    """Open the root, making it when there is none, and talk."""
    from remit.runtime import Runtime

    with Runtime.open(root, model=model, create=True) as runtime:
        runtime.require_model()
        with runtime.session(session_id) as conversation:
            note(
                f"{conversation.session_id} on {runtime.provider_id}/{runtime.model_id}; "
                "/help says what else there is"
            )
            for line in _lines(runtime, conversation):
                if line == "/exit":
                    break
                _answer(runtime, conversation, line)


def _answer(runtime: Runtime, conversation: Conversation, line: str) -> None:
    from remit.cli.printing import TurnPrinter

    if line.startswith("/"):
        command = _SLASH.get(line.split()[0])
        if command is None:
            note(f"There is no {line.split()[0]}.\n{_HELP}")
        else:
            command(runtime, conversation)
        return
    printer = TurnPrinter()
    try:
        result = conversation.turn(line, on_event=printer)
    except KeyboardInterrupt:
        note("\n[interrupted; what was sent is on record]")
        return
    printer.finish(result)


def _lines(runtime: Runtime, conversation: Conversation) -> Iterator[str]:
    """What the user types, without blank lines."""
    if not sys.stdin.isatty():
        for raw in sys.stdin.buffer:
            line = raw.decode("utf-8", "replace").strip()
            if line:
                note(f"\n> {line}")
                yield line
        return
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    history = runtime.root.path / runtime.loaded.settings.chat.history_file
    history.touch(mode=0o600)
    status = _Status(conversation)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)), bottom_toolbar=status.text
    )
    while True:
        status.refresh()
        try:
            line = session.prompt("> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line:
            yield line


class _Status:
    """The line at the bottom; the ledger is asked once a turn, not once a keystroke."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._text = ""

    def refresh(self) -> None:
        cost = self._conversation.cost()
        self._text = (
            f" {self._conversation.session_id}  {self._conversation.turn_count} turns  "
            f"{cost['llm_calls']} calls  {cost['total_tokens']:,} tokens"
        )

    def text(self) -> str:
        return self._text


def _show_session(_: Runtime, conversation: Conversation) -> None:
    click.echo(f"{conversation.session_id}, {conversation.turn_count} turns")


def _show_cost(_: Runtime, conversation: Conversation) -> None:
    cost = conversation.cost()
    click.echo(
        f"{cost['llm_calls']} calls, {cost['input_tokens']:,} tokens in, "
        f"{cost['output_tokens']:,} out; no price is known for them yet"
    )


def _show_trace(runtime: Runtime, conversation: Conversation) -> None:
    from remit.cli.trace import print_trace, session_trace

    print_trace(session_trace(runtime.ledger, conversation.session_id))


def _show_verification(runtime: Runtime, _: Conversation) -> None:
    report = runtime.ledger.verify()
    word = "verified" if report.verified else "NOT VERIFIED"
    click.echo(f"{word}: {report.entries} entries, {report.contents} content values")
    for problem in report.problems:
        click.echo(f"  {problem}")


_SLASH: dict[str, Callable[[Runtime, Conversation], None]] = {
    "/session": _show_session,
    "/cost": _show_cost,
    "/trace": _show_trace,
    "/verify": _show_verification,
    "/help": lambda *_: click.echo(_HELP),
}
