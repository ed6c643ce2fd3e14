"""Every command prints recorded texts as printable text: no escapes, and one line an entry."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import click
import mcp.client.stdio  # noqa: F401 - binds the standard error of its import, not of a command
import pytest

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.ledger import LedgerClient, LedgerEntry
from tests.cli.conftest import Run
from tests.snapshots.declared import commands
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.soak import sample
from tests.support.wire import Raw, Step, completion, serve

FORGED = "LED-0fffffff  2031-01-01T00:00:00Z  FORGED"
EVIL = (
    f"a\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\x9b2J\x7f\x08\u202eb\u2066\u200f\n{FORGED}\r\n{FORGED}"
    f"\x0b{FORGED}\u2028{FORGED}\x85{FORGED}"
)
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
WAITS = {"serve", "worker run", "worker", "mcp gateway", "mcp serve", "chat", "witness serve"}
"""Commands that serve until they are stopped, or read what is typed."""


COMMANDS = {path[1:]: one for path, one in commands() if not isinstance(one, click.Group)}
EVERY = sorted(path for path in COMMANDS if " ".join(path) not in WAITS)


def _filled(path: tuple[str, ...], text: str) -> list[str]:
    """Return the arguments of a command: ``text`` for each argument and each required option."""
    found = [*path]
    for one in COMMANDS[path].params:
        if isinstance(one.type, click.Choice):
            value = str(next(iter(one.type.choices)))
        elif isinstance(one.type, (click.types.IntParamType, click.types.FloatParamType)):
            value = "1"
        else:
            value = text
        if isinstance(one, click.Argument):
            found.append(value)
        elif one.required:
            found += [one.opts[0], value]
    return found


def _takes(path: tuple[str, ...], option: str) -> bool:
    return any(option in one.opts for one in COMMANDS[path].params)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose texts, names and files would command a terminal."""
    place = new_root(tmp_path_factory.mktemp("hostile") / "root")
    evil_name = EVIL.replace("/", "").replace("\x00", "")[:60]
    (place / "HO1" / "contracts" / f"{evil_name}.yaml").write_text(EVIL)
    (place / "HOT" / evil_name).mkdir()
    session = "SES-EVILEVIL"
    about = {"provenance": {"agent_id": EVIL, "agent_class": EVIL, "session_id": session}}
    with LedgerClient(place / "ledger.db") as ledger:
        ledger.write(
            LedgerEntry("SESSION_START", session, "STARTED", EVIL, metadata={
                **about, "agent_id": EVIL, "user_id": EVIL})
        )  # fmt: skip
        for event in ("NOTE", "PROMPT_REJECTED", "DEGRADATION", "ESCALATION", "TOOL_CALL"):
            metadata = {**about, "error": EVIL, "tool_id": EVIL, "arguments": {EVIL: EVIL},
                        "result": EVIL, "reason": EVIL, "model_id": EVIL, EVIL: EVIL}  # fmt: skip
            ledger.write(LedgerEntry(event, session, EVIL, EVIL, metadata=metadata))
        ledger.write(
            LedgerEntry("TURN_RECORDED", session, "RECORDED", EVIL, metadata={
                **about, "turn_number": 1, "user_message": EVIL, "response": EVIL})
        )  # fmt: skip
        tool = Tool("pay", EVIL, {"type": "object"}, print)
        ApprovalQueue(ledger).request(
            tool, {EVIL: EVIL}, session_id=session, agent_id=EVIL, requested_by=EVIL
        )
    return place


def _require_printable(done: Any, command: tuple[str, ...]) -> None:
    for text in (done.stdout, done.stderr):
        found = RAW.search(text)
        assert found is None, (command, text[max(0, found.start() - 80) : found.end() + 20])
        assert not any(line.startswith(FORGED) for line in text.split("\n")), command
    assert "NameError" not in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("path", sample(EVERY, 20), ids=" ".join)
def test_no_command_prints_what_it_was_given_as_it_is(
    path: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    place = ("--root", root) if _takes(path, "--root") else ()
    yes = ("--yes",) if _takes(path, "--yes") else ()
    debug = ("--debug",) if _takes(path, "--debug") else ()
    first_line = EVIL.partition("\n")[0]
    with serve(
        completion(first_line)
    ) as server:  # The local model would take half a minute to answer.
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "k"}
        for text in (EVIL.replace("\x00", ""), f"\ud83d{EVIL}"):
            filled = _filled(path, text)
            done = run_remit(*filled, *yes, *debug, *place, cwd=tmp_path, environment=env)
            _require_printable(done, path)


@pytest.mark.parametrize(
    "command",
    [
        "ledger tail -n 50", "ledger query", "ledger show LAST",
        "ledger stats", "ledger verify", "session list", "session show SES-EVILEVIL",
        "trace SES-EVILEVIL", "trace SES-EVILEVIL --full", "approve", "approve last --deny --yes",
        "gate check --all", "doctor", "key list", "budget show", "usage", "usage --csv",
        "package list", "model list", "order list", "worker list", "tenant list", "config show",
        "learn signals", "learn proposals", "route status", "price list",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["lines", "json"])
def test_no_command_prints_what_is_recorded_as_it_is(
    command: str, form: str, root: Path, tmp_path: Path
) -> None:
    with LedgerClient(root / "ledger.db") as ledger:
        (last,) = ledger.query(event_type="TOOL_CALL", limit=1)
    words = [last.id if word == "LAST" else word for word in command.split()]
    more = ["--json"] if form == "json" else []
    done = run_remit(*words, *more, "--root", root, cwd=tmp_path)
    _require_printable(done, tuple(words))
    if form == "json" and done.returncode == 0 and done.stdout:
        json.loads(done.stdout)


def test_a_page_and_a_record_hold_no_escape_outside_json(root: Path, tmp_path: Path) -> None:
    page = run_remit("report", "--html", "-", "--root", root, cwd=tmp_path)
    assert page.stdout.startswith("<!doctype html>")
    assert RAW.search(page.stdout) is None
    with LedgerClient(root / "ledger.db") as ledger:
        (last,) = ledger.query(event_type="TOOL_CALL", limit=1)
        record = ledger.read_record(last.id)
    shown = run_remit("ledger", "show", last.id, "--record", "--root", root, cwd=tmp_path)
    assert shown.stdout.encode() == record
    assert json.loads(shown.stdout)["reason"] == EVIL


def test_a_log_record_is_printable(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    caplog.set_level(logging.ERROR)  # The command sets the root's level; this restores it.

    def fail(*_: object, **__: object) -> None:
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("other").exception("failed: %s", EVIL)
        raise ValueError(EVIL)

    monkeypatch.setattr(LedgerClient, "count", fail)
    done = run_remit("ledger", "stats", "--debug", "--root", root, cwd=tmp_path)
    assert "ValueError" in done.stderr
    _require_printable(done, ("ledger", "stats"))


HALF = "x \ud83d y"


def _stream(text: str) -> Raw:
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m",
             "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}  # fmt: skip
    data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    return Raw(data, content_type="text/event-stream")


@pytest.mark.parametrize("answer", [completion(HALF), _stream(HALF)])
def test_every_command_prints_it(remit: Run, remit_process: Run, answer: Step) -> None:
    with serve(answer) as server:
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "k"}
        remit("init", **env)
        asked = remit_process("ask", "hi", "--model", "openai/m", LC_ALL="C", **env)
        talked = remit("chat", "--model", "openai/m", stdin="hi\n/exit\n", **env)
        found = remit("ledger", "query", "--event-type", "EXCHANGE", "--json")
        ids = dict.fromkeys(re.findall(r'"id": ?"(LED-[0-9a-f]+)"', found.stdout))
        shown = [remit("ledger", "show", one, *more) for one in ids for more in ((), ("--json",))]
    for done in (asked, talked, found, *shown):
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert "x \ufffd y" in asked.stdout
    assert "x \ufffd y" in talked.stdout
    assert ids
    assert any("x \\ud83d y" in one.stdout for one in shown)  # the exact text, as JSON writes it
