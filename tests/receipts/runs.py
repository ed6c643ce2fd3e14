"""Runs of an agent with tools and approvals, their receipts, and the public verifiers."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents.tools import Tool, ToolError
from remit.ledger import Extract, LedgerClient, make_extract, read_extract
from remit.testing import ScriptedModel, ToolUse
from remit.views import public_receipts, read_receipts

ORACLE = Path(__file__).parent.parent / "oracles/receipts_oracle.py"
PYTHON = Path(sys.prefix) / "oracles/bin/python"
needs_oracles = pytest.mark.skipif(
    not PYTHON.exists(), reason="the public verifiers are not installed: `make test` does it"
)
CHECKOUT = os.environ.get("REMIT_AGENTBOUNDARY", "")
"""A checkout of agentboundary, which replaces the release; its suite has forty scenarios."""
ANYTHING = {"type": "object"}
FORMATS = ("agentboundary", "agentboundary-0.2", "capsule")


def refund(**arguments: Any) -> dict[str, Any]:
    """Pay an order back; fail for order 0."""
    if not arguments.get("order"):
        raise ToolError("There is no such order.")
    return {"refunded": arguments}


def look(**arguments: Any) -> str:
    """Look something up."""
    return f"found {sorted(arguments)}"


TOOLS = (
    Tool("refund", "Pay an order back.", ANYTHING, refund),
    Tool("look", "Look something up.", ANYTHING, look),
)


def answers_of(number: int) -> list[Any]:
    """Return the model's answers in one session: five tool calls, of which two wait."""
    return [
        ToolUse("look", {"é": number, "name": "Zoë", "weights": [0.5, 19.99, 1e-7]}),
        ToolUse("refund", {"order": number + 1, "usd": 5.5, "reason": "broken"}),
        ToolUse("erase_all", {"now": True}),
        ToolUse("refund", {"order": number + 2, "big": 2**70}),
        "One refund was made, the other was denied.",
    ]


def play(runtime: Runtime, number: int, approver: str = "Ada") -> str:
    """Play one session, in which one refund is granted and one is denied; return its id."""
    agent = runtime.agent("desk", instructions="Refund.", tools=list(TOOLS), approve=["refund"])
    session = agent.session(user="u1", subject_id=f"person-{number}")
    result = session.turn(f"Please refund order {number}.")
    granted = True
    while result.waiting_for:
        for request in runtime.approvals.pending(session_id=session.session_id):
            runtime.approvals.decide(
                request.request_id, granted=granted, by=approver, reason="seen"
            )
        granted, result = False, session.resume()
    assert result.response == "One refund was made, the other was denied."
    return str(session.session_id)


@contextmanager
def playing(
    place: Path, sessions: int, approver: str = "Ada"
) -> Iterator[tuple[Runtime, list[str]]]:
    """Open a new root in which some sessions were played."""
    model = ScriptedModel(*(one for number in range(sessions) for one in answers_of(number)))
    with Runtime.open(place, create=True, providers={"scripted": model}) as runtime:
        yield runtime, [play(runtime, number, approver) for number in range(sessions)]


def extract_of(ledger: LedgerClient, **of: str) -> Extract:
    """Return the extract of a run or an action, as a reader of its file has it."""
    return read_extract(json.dumps(make_extract(ledger, of)), ledger.verifier_key)


def receipts_of(ledger: LedgerClient, session: str, kind: Any) -> list[dict[str, Any]]:
    """Return the receipts of a session in a public format."""
    receipts = read_receipts(extract_of(ledger, session_id=session))
    return [*public_receipts(ledger, receipts, kind)]


def verdicts(what: str, cases: Any) -> Any:
    """Return what a public verifier says about each case."""
    pipes = _oracle()
    assert pipes.stdin
    assert pipes.stdout
    pipes.stdin.write(json.dumps([what, cases]) + "\n")
    pipes.stdin.flush()
    answer = pipes.stdout.readline()
    assert answer, "the verifier ended; its standard error says why"
    return json.loads(answer)


@functools.cache
def _oracle() -> subprocess.Popen[str]:
    """Start the verifiers, whose import takes seconds; they end with this process."""
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT}/src"} if CHECKOUT else None
    process = subprocess.Popen(
        [str(PYTHON), str(ORACLE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process
