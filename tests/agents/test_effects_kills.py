"""kill -9 after a tool took effect, then "Please try again": nothing is done a second time."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents import killed_effects
from tests.support.postgres import PostgresServer
from tests.support.processes import run_forked
from tests.support.roots import new_root
from tests.support.soak import sample

# The writes after the effect: the tool's result with the next call's DISPATCH, the EXCHANGE, and
# the answer with the end of the turn. Kills at 0 end the process within the tool.
_PLACES = [(0, ""), (1, "before"), (1, "after"), (2, "before"), (2, "after"), (3, "before")]
_AGAIN = [(-1, ""), (1, "before"), (1, "after"), (2, "after"), (3, "after")]
_CASES = [
    case
    for case in itertools.product(_PLACES, ("turn", "resume", "stream"), ("ask", "fail"), _AGAIN)
    # Without an approval only a grant starts the tool again; `fail` ends the order at once.
    if not (case[2] == "fail" and case[3] != (-1, ""))
] + [
    (place, how, "ask", again)
    for place, how, again in itertools.product(
        _PLACES, ("turn resume", "resume turn", "turn turn", "turn stream"), _AGAIN
    )
]


class _Case:
    """One root, and the processes that work on its one session."""

    def __init__(self, directory: Path, policy: str, database: str, *, above: str = "") -> None:
        self.root = new_root(directory / "root", database=database)
        self.ledger_at = database or str(self.root / "ledger.db")
        self.environment = dict(os.environ)
        if database:
            self.environment["REMIT_DATABASE_URL"] = database
        self.effects = directory / "effects"
        self.policy = policy
        self.above = above
        self.session = ""

    def run(self, how: str, at: int = -1, when: str = "") -> dict[str, Any] | None:
        """Run one process; return ``None`` if it was killed."""
        done = run_forked(
            killed_effects.main, str(self.root), str(self.effects), at, when, how, self.policy,
            self.session, self.above, environment=self.environment,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        self.session = self.session or lines[0]
        if done.returncode == -signal.SIGKILL:
            return None
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def ledger(self) -> LedgerClient:
        return LedgerClient(self.ledger_at, settings=default_settings().ledger)

    def unknown(self) -> set[str]:
        """Idempotency keys of calls that began and have no end."""
        with self.ledger() as ledger:
            begun = ledger.read_by_event_type("TOOL_INTENT")
            ended = ledger.read_by_event_type("TOOL_CALL")
        keys = {entry.metadata["idempotency_key"] for entry in begun}
        return keys - {entry.metadata["idempotency_key"] for entry in ended}

    def is_answered(self) -> bool:
        """Return True if the last turn was answered, whether or not anybody read the answer."""
        with self.ledger() as ledger:
            turns = ledger.read_by_event_type("TURN_RECORDED")
        return bool(turns) and "outcome" not in turns[-1].metadata

    def deny(self) -> int:
        """Say no to all that waits, as a person; return how much that was."""
        with self.ledger() as ledger:
            queue = ApprovalQueue(ledger)
            waiting = queue.pending()
            for approval in waiting:
                assert approval.kind == "unknown_outcome"
                queue.decide(approval.request_id, granted=False, by="Ada", reason="it was done")
        return len(waiting)

    def asked_about(self) -> set[str]:
        """Idempotency keys of the calls about which a person was asked."""
        with self.ledger() as ledger:
            requests = ledger.read_by_event_type("APPROVAL_REQUESTED")
        return {request.metadata["idempotency_key"] for request in requests}


# Who is above the agent that is killed, where, and how its turn is continued, until it is answered.
_ABOVE = [
    (above, place, again, how)
    for above, place, again, how in itertools.product(
        ("caller",), _PLACES, ("turn", "stream", "resume"), ("resume", "turn")
    )
]


@pytest.mark.soak
@pytest.mark.parametrize(("above", "place", "again", "how"), sample(_ABOVE, 2))
def test_killed_below_another_agent_nothing_is_done_twice_and_one_request_is_open(
    tmp_path: Path, above: str, place: tuple[int, str], again: str, how: str
) -> None:
    case = _Case(tmp_path, "ask", "", above=above)
    assert case.run("turn", *place) is None
    unknown = case.unknown()
    result = case.run(again)
    assert result is not None
    if result["waiting"]:
        assert case.unknown()
        assert case.deny() == len(result["waiting"]) == 1
        assert case.deny() == 0
        result = case.run(how)
        assert result is not None
    assert result["nothing"] or not result["waiting"]
    assert case.effects.read_text().splitlines() == ["12"]
    if unknown and place == (0, ""):
        assert unknown & case.asked_about() or case.is_answered()
    with case.ledger() as ledger:
        assert ledger.verify().verified


# The order of a worker, continued by another worker, by a program in its session, or by both.
_ORDERS = [
    (place, how, policy, again)
    for place, how, policy, again in itertools.product(
        _PLACES, ("order", "turn", "resume", "order turn", "turn order"), ("ask", "fail"), _AGAIN
    )
    if not (policy == "fail" and again != (-1, ""))
]


def _sampled(counts: dict[tuple[str, str], int]) -> list[Any]:
    cases = {"turn": _CASES, "order": _ORDERS}
    return [
        pytest.param(store, begun, *case)
        for (store, begun), count in counts.items()
        for case in sample(cases[begun], count)
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("store", "begun", "place", "how", "policy", "again"),
    _sampled(
        {
            ("sqlite", "turn"): 3, ("postgresql", "turn"): 1,
            ("sqlite", "order"): 1, ("postgresql", "order"): 1,
        }
    ),
)  # fmt: skip
def test_killed_after_an_effect_nothing_is_done_twice(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    store: str,
    begun: str,
    place: tuple[int, str],
    how: str,
    policy: str,
    again: tuple[int, str],
) -> None:
    database = ""
    if store == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
        request.addfinalizer(lambda: server.drop(database))
    case = _Case(tmp_path, policy, database)
    assert case.run(begun, *place) is None
    unknown = case.unknown()
    assert unknown or place not in [(0, ""), (1, "before")]
    first, *more = how.split()
    result = case.run(first, *again)  # it may be killed too
    for way in more or ["turn"]:
        if not case.is_answered():  # what is asked for after an answer is asked for anew
            case.deny()
            result = case.run(way)
    assert case.effects.read_text().splitlines() == ["12"]
    if result is None:  # killed after its answer was recorded
        return
    while result["waiting"]:
        assert case.deny()
        result = case.run("order" if begun == "order" and "order" in how else "resume")
        assert result is not None
    assert case.effects.read_text().splitlines() == ["12"]
    if policy == "ask":
        assert unknown <= case.asked_about()
        said = (killed_effects.DONE, killed_effects.UNKNOWN)
        ended = result["error_code"] == "cancelled"  # killed while it ended the turn before
        assert result["nothing"] or ended or result["output"] in said, result
    elif unknown:
        # A worker that finds the turn ended by a program reads the gate's verdict alone.
        codes = ("tool_outcome_unknown", *(("answer_rejected",) if begun == "order" else ()))
        assert result["nothing"] or result["error_code"] in codes
    with case.ledger() as ledger:
        assert ledger.verify().verified
