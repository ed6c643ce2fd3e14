"""The prompt of the shell, with history, a status line and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.output import ColorDepth
from typing_extensions import override

from remit.cli.output import no_colour


class ShellCompleter(Completer):
    """A completer of command names, and of request ids after some commands.

    Args:
        commands: the names of all commands, with the slash.
        takes_request: the commands that take a request.
    """

    def __init__(self, commands: Iterable[str], takes_request: Iterable[str]) -> None:
        self._commands = sorted(commands)
        self._takes_request = frozenset(takes_request)
        self.requests: Sequence[tuple[str, str]] = ()
        """Ids of what waits, each with the call that it is for."""

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the commands that begin with the typed word; an empty line has no completions.

        After a command that takes a request, the ids of requests and ``last`` are yielded that
        begin with the typed text, in any case.
        """
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        if not space:
            for command in self._commands:
                if name and command.startswith(name):
                    yield Completion(command, -len(name))
        elif name in self._takes_request and " " not in rest:
            for request_id, call in (*self.requests, ("last", "")):
                if request_id.lower().startswith(rest.lower()):
                    yield Completion(request_id, -len(rest), display_meta=call)


def typed_lines(
    history: Path, completer: ShellCompleter, status: Callable[[], str]
) -> Iterator[str]:
    """Yield the lines that a user types at a terminal, without blank lines.

    Ends at the end of the input (Ctrl-D). Ctrl-C discards the typed line.

    Args:
        history: the file of earlier lines; created readable for this user alone.
        completer: the completions on Tab.
        status: returns the line below the prompt; called before each line.
    """
    history.touch(mode=0o600)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=completer,
        complete_while_typing=False,
        color_depth=ColorDepth.DEPTH_1_BIT if no_colour() else None,
    )
    while True:
        below = status()
        try:
            line = session.prompt("> ", bottom_toolbar=below).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line:
            yield line
