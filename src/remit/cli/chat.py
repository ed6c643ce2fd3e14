"""``remit chat``, the ADMIN shell, and ``remit ask``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.options import common, reads
from remit.cli.output import echo_json, note, progress, say, say_text, screen
from remit.cli.roots import whoami
from remit.kernel.message_text import count

if TYPE_CHECKING:
    from remit.agents import Approval
    from remit.agents.supervisor import TurnResult
    from remit.runtime import Conversation, Runtime


_LAST = re.compile(r"(?:the\s+)?last(?:\s+one)?(?=$|[\s,:])[\s,:]*", re.IGNORECASE)
_WIDE = 60

_HELP = """\
/session   show the session id             /cost       show usage and cost
/trace     show the steps of the last turn /verify     verify the ledger
/approvals list waiting tool calls         /approve [ID] [reason]  approve a tool call
/resume    resume the unfinished turn      /deny [ID] [reason]     deny a tool call
/cancel    cancel the unfinished turn      /help       show this help
/exit      end the session
ID: a request's id, a unique prefix of its number, or `last`; optional if one call waits."""


def _which(function: Any) -> Any:
    """Add ``--model`` and ``--session`` to a command."""
    about = "The model that answers: auto, a provider, a model, or provider/model."
    session = click.option("--session", "session_id", help="Continue this session.")
    return click.option("--model", help=about)(session(function))


@click.command()
@_which
@click.option("--agent", "agent_id", help="Talk to this agent of an installed package.")
@common
def chat(
    root: Path | None, model: str | None, session_id: str | None, agent_id: str | None
) -> None:
    """Talk to the ADMIN agent. With piped input, the agent answers each line."""
    run_chat(root, model, session_id, agent_id)


def run_chat(
    root: Path | None, model: str | None, session_id: str | None, agent_id: str | None = None
) -> None:
    """Open the root and talk until the person ends the shell; create the root if none exists.

    An unfinished turn of a given session is taken up first, see :meth:`Shell.pick_up`. The session
    is ended at the end.

    Args:
        root: the directory; None for the nearest root.
        model: the model that answers; None for the agent's own or the configured one.
        session_id: the session to continue; None for a new one.
        agent_id: an agent of a package; None for ADMIN.

    Raises:
        RemitError: the root cannot be opened, no model can be reached, or the session or agent
            does not exist.
    """
    from remit.runtime import Runtime

    _announce(root)
    with Runtime.open(root, model=model, create=True, by=whoami()) as runtime:
        begin, answers = runtime.session, runtime.default_model
        if agent_id is not None:
            agent = runtime.packaged_agent(agent_id, model=model)
            begin, answers = agent.session, agent.model
        runtime.require_model(answers)
        with begin(session_id) as conversation:
            name = "/".join(answers).lstrip("/")
            note(f"{conversation.session_id} on {name}; /help lists the commands")
            shell = Shell(runtime, conversation)
            if session_id is not None:
                shell.pick_up()
            shell.talk()


@click.command()
@click.argument("message", nargs=-1, required=True)
@_which
@reads
def ask(
    root: Path | None,
    as_json: bool,
    message: tuple[str, ...],
    session_id: str | None,
    model: str | None,
) -> None:
    """Ask the ADMIN agent one question and print the answer.

    The message `-` is standard input. A root is created if none exists. Exit 1 if no answer passed
    the quality gate, or if a tool call waits for approval.
    """
    from remit.agents.supervisor import TurnPendingError
    from remit.cli.turn_display import TurnPrinter, turn_data
    from remit.runtime import Runtime

    text = sys.stdin.read() if message == ("-",) else " ".join(message)
    if not text.strip():
        raise click.UsageError("The message is empty.")
    _announce(root)
    with Runtime.open(root, model=model, create=True, by=whoami()) as runtime:
        runtime.require_model()
        with runtime.session(session_id) as conversation:
            try:
                with TurnPrinter(quiet=as_json) as printer:
                    result = conversation.turn(text, on_event=printer)
            except TurnPendingError as pending:
                if as_json:
                    echo_json({"session_id": session_id, "waiting_for": [*pending.request_ids]})
                raise
            printer.finish(result)
    if as_json:
        echo_json(turn_data(result))
    else:
        note(f"session {result.session_id}, {count(result.cost_summary['total_tokens'], 'token')}")
    raise SystemExit(1 if result.failed or result.waiting else 0)


def _announce(root: Path | None) -> None:
    """Print a note with the path of the root to create, if no root exists."""
    from remit.kernel.root import find_root

    if not (place := find_root(root)).exists():
        note(f"There is no root yet. Creating one at {place.path.resolve()}, as `remit init` does.")


class Shell:
    """A terminal conversation with one agent in one session.

    A program may use the shell for an agent of its own.

    Args:
        runtime: the open root.
        conversation: the session.
    """

    def __init__(self, runtime: Runtime, conversation: Conversation) -> None:
        self._runtime = runtime
        self._conversation = conversation
        self._commands: dict[str, Callable[[str], None]] = {
            "/session": self._show_session,
            "/cost": self._show_cost,
            "/trace": self._show_trace,
            "/verify": self._show_verification,
            "/approvals": self._show_approvals,
            "/approve": lambda rest: self._decide(rest, granted=True),
            "/deny": lambda rest: self._decide(rest, granted=False),
            "/resume": lambda _: self._resume(),
            "/cancel": self._cancel,
            "/help": lambda _: say_text(_HELP),
        }

    def pick_up(self) -> None:
        """Resume an unfinished turn, or ask for the decisions that it needs.

        Without a terminal, the commands for the decisions are printed. If another process still
        works on the turn, a note is printed instead. Does nothing without an unfinished turn.
        """
        before = self._conversation.unfinished()
        if before is None:
            return
        if self._runtime.leases.is_held(f"session:{self._conversation.session_id}"):
            note("Another process is working on the last turn of this session.")
        elif before.waiting_for:
            self._decide_waiting()
        else:
            self._resume()

    def talk(self) -> None:
        """Answer every line until ``/exit`` or the end of the input.

        A line that begins with ``/`` is a command of the shell; any other line is a turn. A waiting
        or stopped turn, a busy session, a refused decision and invalid input are printed, and the
        next line is read. Other errors, such as LedgerError, are raised.
        """
        for line in self._lines():
            name, _, rest = line.partition(" ")
            if name == "/exit":
                return
            if not line.startswith("/"):
                self._work(partial(self._conversation.turn, line))
            elif (command := self._commands.get(name)) is not None:
                self._guarded(partial(command, rest.strip()))
            else:
                note(f"Unknown command {name}.\n{_HELP}")

    # -- turns -------------------------------------------------------------------------------

    def _work(self, begin: Callable[..., TurnResult | None]) -> None:
        """Run a turn and print the result; on a terminal, ask for pending decisions."""
        from remit.cli.turn_display import TurnPrinter

        def turn() -> None:
            try:
                with TurnPrinter() as printer:
                    result = begin(on_event=printer)
            except KeyboardInterrupt:
                note("\n[cancelled; calls already sent are recorded]")
                return
            if result is None:
                note("This session has no unfinished turn.")
                return
            printer.finish(result)
            if result.waiting and sys.stdin.isatty():
                self._decide_waiting()

        self._guarded(turn)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a command and print expected errors, so that the shell continues."""
        from remit.agents import ApprovalError
        from remit.agents.supervisor import TurnCancelledError, TurnPendingError
        from remit.gateway.leases import LeaseBusyError
        from remit.kernel.errors import InvalidInputError

        try:
            work()
        except KeyboardInterrupt:
            note("\n[interrupted]")
        except TurnPendingError as error:
            note(error.message)
            self._list_waiting()
        except (TurnCancelledError, LeaseBusyError, ApprovalError, InvalidInputError) as error:
            note(error.message)
            if error.next_step:
                note(f"  next: {error.next_step}")

    def _resume(self) -> None:
        self._work(self._conversation.resume)

    def _cancel(self, _: str) -> None:
        cancelled = self._conversation.cancel()
        note("The turn is cancelled." if cancelled else "This session has no unfinished turn.")

    # -- approvals ---------------------------------------------------------------------------

    def _decide_waiting(self) -> None:
        """Ask about each request in a terminal, and resume the turn after the last decision.

        Without a terminal, print the commands for a decision.
        """
        from remit.cli.approve import ask_person

        if not sys.stdin.isatty():
            self._list_waiting()
            return
        for request in self._waiting():
            answer, given = ask_person(request.tool_id, request.arguments, request.kind)
            if answer == "later":
                note(
                    "To decide later, use /approvals, /approve ID or /deny ID here, or `remit "
                    "approve`."
                )
                return
            self._runtime.approvals.decide(
                request.request_id,
                granted=answer == "granted",
                by=whoami(),
                arguments=given if answer == "granted" else None,
            )
        self._resume()

    def _list_waiting(self) -> None:
        from remit.views.wording import call_text

        for request in self._waiting():
            called = call_text(request.tool_id, request.arguments)
            note(
                f"{called} waits for approval. Run `remit approve {request.request_id}` (--deny "
                "to deny), then "
                f"`remit session resume {self._conversation.session_id}`"
            )

    def _waiting(self) -> list[Approval]:
        return self._runtime.approvals.pending(session_id=self._conversation.session_id)

    def _decide(self, rest: str, *, granted: bool) -> None:
        from remit.cli.approve import continuing

        request, reason = self._meant(rest, granted=granted)
        queue = self._runtime.approvals
        queue.decide(
            request.request_id, granted=granted, by=whoami(), reason=reason,
            arguments=request.arguments if granted else None,
        )  # fmt: skip
        decided = queue.get(request.request_id)
        note(f"{decided.tool_id} is {decided.state}.")
        if decided.session_id != self._conversation.session_id:
            note(f"{continuing(decided)} when {decided.session_id} is resumed.")
        elif not self._waiting():
            self._resume()

    def _meant(self, rest: str, *, granted: bool) -> tuple[Approval, str]:
        """Return the request that a line names, and the reason in the line.

        Raises:
            ApprovalError: the line does not name exactly one waiting request.
        """
        from remit.agents import ApprovalError
        from remit.cli.approve import named_request

        here, queue = self._waiting(), self._runtime.approvals
        said = _LAST.match(rest)
        if said is not None and here:
            return here[-1], rest[said.end() :].strip()
        name, _, reason = rest.partition(" ")
        if not name and len(here) != 1:
            raise ApprovalError(
                f"{len(here)} tool calls of this session wait for approval.",
                next_step="Give the ID of one; /approvals lists them.",
            )
        if not name:
            return here[0], ""
        try:
            return named_request(queue, name), reason.strip()
        except ApprovalError:
            # Words alone are a reason for the one that waits; only a no may be so short.
            if granted or len(here) != 1 or any(map(str.isdigit, name)):
                raise
            return here[0], rest

    # -- what is shown -----------------------------------------------------------------------

    def _show_approvals(self, _: str) -> None:
        from remit.cli.approve import print_waiting

        print_waiting(self._runtime.approvals.pending(), self._conversation.session_id)

    def _show_session(self, _: str) -> None:
        say(f"{self._conversation.session_id}, {count(self._conversation.turn_count, 'turn')}")

    def _show_cost(self, _: str) -> None:
        from remit.cli.turn_display import cost_text

        cost = self._conversation.cost()
        say(
            f"{count(cost['llm_calls'], 'call')}, {count(cost['input_tokens'], 'token')} in, "
            f"{cost['output_tokens']:,} out; {cost_text(cost)}"
        )

    def _show_trace(self, _: str) -> None:
        from remit.views import journey_text, open_journey

        last = self._conversation.turn_count + (self._conversation.unfinished() is not None)
        if not last:
            note("This session has no turn yet.")
            return
        ledger, session_id = self._runtime.ledger, self._conversation.session_id
        journey = open_journey(ledger, session_id=session_id, turn=last)
        columns, colour = screen()
        for line in journey_text(journey, colour=colour, width=columns):
            click.echo(line)

    def _show_verification(self, _: str) -> None:
        ledger, gates = self._runtime.ledger, self._runtime.loaded.settings.gates
        great = ledger.count() > gates.full_entries
        report = ledger.verify(since_mark=great, progress=progress("verifying"))
        word = "verified" if report.verified else "NOT VERIFIED"
        say(f"{word}: {count(report.entries, 'entry')}, {count(report.contents, 'content value')}")
        if report.last_full:
            note(
                f"Verified earlier and not read again: {count(report.unread, 'entry')}. The last "
                f"full verification was on {report.last_full}."
            )
        for problem in report.lines():
            say(f"  {problem}")

    # -- lines -------------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        """Yield the user's lines, without blank lines."""
        if not sys.stdin.isatty():
            for raw in sys.stdin.buffer:
                line = raw.decode("utf-8", "replace").strip()
                if line:
                    note(f"\n> {line}")
                    yield line
            return
        from remit.cli.shell_prompt import ShellCompleter, typed_lines
        from remit.views.wording import call_text

        history = self._runtime.root.path / "chat_history"
        completer = ShellCompleter([*self._commands, "/exit"], ["/approve", "/deny"])

        def status() -> str:
            waiting = self._runtime.approvals.pending()
            completer.requests = [
                (one.request_id, call_text(one.tool_id, one.arguments, _WIDE)) for one in waiting
            ]
            return self._status(sum(one.session_id == here for one in waiting))

        here = self._conversation.session_id
        yield from typed_lines(history, completer, status)

    def _status(self, waiting: int) -> str:
        from remit.cli.turn_display import cost_text

        cost = self._conversation.cost()
        return (
            f" {self._conversation.session_id}  {count(self._conversation.turn_count, 'turn')}  "
            f"{count(cost['llm_calls'], 'call')}  {count(cost['total_tokens'], 'token')}  "
            f"{cost_text(cost)}" + (f"  {waiting} waiting: /approvals" if waiting else "")
        )
