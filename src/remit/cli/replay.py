"""The command ``remit replay``: a recorded run answers its program again, or is stepped through."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.options import reads
from remit.cli.output import echo_json, note, say, say_text
from remit.cli.roots import open_settings

if TYPE_CHECKING:
    from remit.gateway import RecordedCall, Recording
    from remit.kernel.settings import Settings

_KEY = "sk-remit-replay"
_HELP = "[Enter] next   r request   a answer   q quit: "


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("run")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 chooses one.")
@click.option("--any-results", is_flag=True, help="Accept any results of the client's own tools.")
@click.option("--step", is_flag=True, help="Wait before each call; without a server, only show it.")
@reads
def replay(
    root: Path | None,
    as_json: bool,
    run: str,
    command: tuple[str, ...],
    port: int | None,
    any_results: bool,
    step: bool,
) -> None:
    """Answer a program from a recorded run, without a provider.

    RUN is a session, a work order (WO-…), or an entry (LED-…) of the session. After --, give the
    COMMAND that starts the program: the command finds the replay in OPENAI_BASE_URL,
    ANTHROPIC_BASE_URL and the like. Without COMMAND, the replay listens until Ctrl-C. The first
    difference from the recording ends the replay. The exit code is 1 after a difference, or if
    recorded calls were not made; else it is that of COMMAND. The ledger is only read.
    """
    from remit.gateway import Recording
    from remit.ledger import open_root_ledger
    from remit.server import ReplayServer

    place, loaded = open_settings(root)
    settings = loaded.settings
    with open_root_ledger(place, settings.ledger, signing=False) as ledger:
        recording = Recording(ledger, run, any_results)
        if step and not command and port is None:
            for call in recording.calls:
                if not _stop_at(recording, call):
                    break
            return
        ended, asking = threading.Event(), asyncio.Lock()

        async def pause(call: RecordedCall) -> None:
            async with asking:
                if not ended.is_set() and not await asyncio.to_thread(_stop_at, recording, call):
                    ended.set()

        if rebuilt := sum(one.is_rebuilt for one in recording.calls):
            note(
                f"{rebuilt} of {len(recording.calls)} answers were streams whose events are not "
                "recorded; they are streamed with the recorded content. Set [gateway] "
                "record_streams = true before a run to replay its streams byte for byte."
            )
        with ReplayServer(
            recording, place, settings, port=port or 0, pause=pause if step else None
        ) as server:
            code = 0
            if command:
                code = _run(command, _variables(settings, server.url), quiet=as_json, typed=step)
            else:
                (note if as_json else say)(f"The replay of {run} listens on {server.url}")
                note(f"  OpenAI clients: base_url={server.url}/v1   Anthropic clients: "
                     f"base_url={server.url}   Ctrl-C ends the replay.")  # fmt: skip
                try:
                    ended.wait()
                except KeyboardInterrupt:
                    note("")
        _report(recording, as_json=as_json, code=code)


def _report(recording: Recording, *, as_json: bool, code: int) -> None:
    """Print the outcome of a replay and exit: with ``code``, or 1 if the replay differed.

    Raises:
        RemitError: the first difference, or the recorded calls that were not made.
    """
    if as_json:
        difference = recording.difference
        echo_json(
            {
                "run": recording.run, "calls": len(recording.calls),
                "replayed": len(recording.replayed), "upstream_calls": 0,
                "difference": None if difference is None else asdict(difference),
            }
        )  # fmt: skip
    recording.finish()
    note(f"Replayed {len(recording.replayed)} of {len(recording.calls)} calls; 0 upstream calls.")
    raise SystemExit(code)


def _run(command: tuple[str, ...], variables: dict[str, str], *, quiet: bool, typed: bool) -> int:
    """Run a program to its end and return its exit code.

    Args:
        command: the program and its arguments.
        variables: variables to set in its environment.
        quiet: True to send its standard output to standard error.
        typed: True to leave standard input to this command.

    Raises:
        click.UsageError: the program does not exist.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the person names the program
            command, env={**os.environ, **variables}, check=False,
            stdout=sys.stderr.fileno() if quiet else None,
            stdin=subprocess.DEVNULL if typed else None,
        )  # fmt: skip
    except OSError as error:
        raise click.UsageError(f"{command[0]} cannot be started: {error.strerror}.") from error
    return done.returncode


def _variables(settings: Settings, url: str) -> dict[str, str]:
    """Return the variables that lead clients and Remit's own providers to the replay."""
    paths = {"openai": "/v1", "gemini": "/v1beta"}
    found = {"GOOGLE_GEMINI_BASE_URL": url}
    for provider in settings.providers.values():
        if provider.base_url_env:
            found[provider.base_url_env] = url + paths.get(provider.kind, "")
        if provider.api_key_env:
            found[provider.api_key_env] = _KEY
    return found


def _stop_at(recording: Recording, call: RecordedCall) -> bool:
    """Print a call and ask what to do; return False if the person quits or input has ended."""
    from remit.ledger import call_answer

    entry = recording.ledger.read(call.exchange_entry_id)
    meta = entry.metadata
    say(f"{call.number}/{len(recording.calls)}  {entry.id}  {call.provider_id}/{call.model_id}  "
        f"{meta['outcome']}  {meta['input_tokens']}+{meta['output_tokens']} tokens")  # fmt: skip
    say_text(f"    {meta['response'] or meta.get('error_message') or '(no text)'}")
    while True:
        try:
            typed = input(_HELP if sys.stdin.isatty() else "").strip().lower()
        except EOFError:
            return False
        if typed == "r":
            say_text(_indented(recording.request_of(call)))
        elif typed == "a":
            answer = call_answer(recording.ledger, entry.id) if "answer" in meta else b""
            say_text(_indented(answer) if answer else str(meta.get("content_blocks") or ""))
        else:
            return typed != "q"


def _indented(text: bytes) -> str:
    """Return a JSON text with one member a line; any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.decode("utf-8", "replace")
