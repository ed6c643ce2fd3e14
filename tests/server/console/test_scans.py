"""No page reads more of a ledger that has grown: counted in SQLite's own steps, not in time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import pytest
from benchmarks.agents.conversations import opened_runtime
from benchmarks.console.recorded import Recorded, Script, record

from remit.agents import ApprovalQueue
from remit.ledger import LedgerClient, LedgerEntry, open_root_ledger
from remit.ledger.sqlite import SqliteStore
from remit.runtime import OpenRoot, Runtime
from remit.server.authentication import DEVELOPER
from remit.server.console import (
    approvals,
    calls,
    decisions,
    journeys,
    key_pages,
    now,
    proposals,
    sessions,
    spend,
    verification,
)
from remit.server.console.caches import KeptReport, KeptUsage, UntilNextEntry, WaitingApprovals
from remit.server.console.pages import Asked, Page, Sources
from tests.server.console.client import VIEWS

LONG, CALLS = "SES-LONG0000000001", "SES-CALLS000000001"
SIZE, MORE = 26, 60  # sessions of ten turns: more than any list of a page has
EVERY = 100  # steps of SQLite's machine
SHOWS = {
    view.path: view.show
    for module in (
        now,
        calls,
        sessions,
        journeys,
        key_pages,
        decisions,
        spend,
        approvals,
        verification,
        proposals,
    )
    for view in module.VIEWS
}


class Grown:
    """A root that grows, and what its console reads."""

    def __init__(self, runtime: Runtime, ledger: LedgerClient) -> None:
        self._ledger = runtime.ledger
        self._chance = random.Random(1)
        self._moment = datetime.now(UTC) - timedelta(days=9)
        self._turns = 10
        settings = runtime.loaded.settings.approvals
        queue = ApprovalQueue(ledger, settings)
        learned = KeptReport(runtime.root, ledger)
        waiting = WaitingApprovals(ledger, queue)
        root = OpenRoot(lambda: (runtime.root, runtime.loaded), lambda: ledger)
        self._sources = Sources(
            runtime, ledger, queue, root, root, KeptUsage(ledger), learned, waiting,
            UntilNextEntry(ledger),
        )  # fmt: skip
        self._steps = 0
        store = ledger._store
        assert isinstance(store, SqliteStore)
        store._reader.set_progress_handler(self._tick, EVERY)

    def _tick(self) -> int:
        self._steps += 1
        return 0

    def now(self) -> str:
        """When the next entry was written: days ago, two seconds after the one before."""
        self._moment += timedelta(seconds=2)
        return self._moment.isoformat(timespec="microseconds")[:-6] + "Z"

    def grow(self, script: Script, count: int) -> None:
        """More sessions, more of the long one, more calls of one that all share."""
        with mock.patch("remit.ledger.transaction.utc_now", self.now):
            for number in range(count):
                self._copy(script.session, f"SES-{self._chance.getrandbits(60):016X}")
                self._copy(script.waits if number % 2 else script.approved,
                           f"SES-{self._chance.getrandbits(60):016X}")  # fmt: skip
                self._turns += 1
                self._copy(script.turn, LONG, self._turns)
                self._ledger.write_many([entry for _ in range(20) for entry in self._call()])
        self._ledger.index_text()

    def _copy(self, recorded: Recorded, name: str, turn: int = 0) -> None:
        base = self._ledger.count()
        self._ledger.write_many(list(recorded.again(name, base, self._chance, turn)))

    def _call(self) -> Iterator[LedgerEntry]:
        named = {"agent_id": "app", "session_id": CALLS, "contract_id": "PRC-PASSTHROUGH-001"}
        yield LedgerEntry("DISPATCH", "PRC-PASSTHROUGH-001", "DISPATCHED", "To openai/gpt-4o-mini",
                          metadata=dict(named))  # fmt: skip
        more = {"outcome": "success", "model_id": "gpt-4o-mini", "prompt": "hi", "response": "so"}
        yield LedgerEntry("EXCHANGE", "PRC-PASSTHROUGH-001", "SUCCESS", "Completed",
                          metadata=named | more)  # fmt: skip

    def steps_of(self, path: str) -> int:
        """What making a page takes, once it was made before."""
        parts = urlsplit(path)
        at = max((one for one in SHOWS if parts.path.startswith(one)), key=len)
        rest = parts.path.removeprefix(at).strip("/")
        asked = Asked(parts.path, rest, DEVELOPER, dict(parse_qsl(parts.query)))
        for _ in range(2):
            self._steps = 0
            made = SHOWS[at](self._sources, asked)
            assert isinstance(made, Page), path
        return self._steps * EVERY

    def first(self, event: str, session: str = "", place: int = 0) -> str:
        """The id of an entry."""
        found = self._ledger.query(event_type=event, session_id=session or None, limit=place + 1)
        return [one.id for one in found][place]


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[tuple[Grown, Script]]:
    with opened_runtime(tmp_path / "root", "http://127.0.0.1:9") as runtime:
        script = record(runtime)
        settings = runtime.loaded.settings.ledger
        with open_root_ledger(runtime.root, settings, signing=False) as ledger:
            made = Grown(runtime, ledger)
            made.grow(script, SIZE)
            runtime.ledger.checkpoint()
            yield made, script


def test_a_page_reads_no_more_of_a_ledger_that_has_grown(
    grown: tuple[Grown, Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, script = grown
    for view in (sessions, spend):
        monkeypatch.setattr(view, "_LATEST_ROWS", 20)
    monkeypatch.setattr(calls, "_SEARCHED_TEXTS", 200)
    monkeypatch.setattr(now, "_GRACE", timedelta(days=2))  # as in the first half hour of a day
    call, long = ledger.first("EXCHANGE", CALLS, 200), ledger.first("EXCHANGE", LONG, 20)
    early = ledger.first("EXCHANGE", script.session.session_id)
    paths = [
        *VIEWS, f"/console/sessions/{LONG}", f"/console/sessions/{CALLS}",
        f"/console/sessions/{LONG}?before={long}", f"/console/sessions?before={call}",
        f"/console/sessions/{script.session.session_id}",
        *(f"/console/journey/{one}" for one in (call, long, early)),
        f"/console/why/{call}", f"/console/verify/{early}", "/console/spend?since=30d&by=key",
        "/console/calls?word=hi", "/console/spend?since=30d&by=session",
        "/console/proposals/report",
        f"/console/approvals/{ledger.first('APPROVAL_REQUESTED')}",
    ]  # fmt: skip
    before = {path: ledger.steps_of(path) for path in paths}
    ledger.grow(script, MORE)
    after = {path: ledger.steps_of(path) for path in paths}
    grew = {
        path: (before[path], after[path])
        for path in paths
        if after[path] > 1.25 * before[path] + 3000
    }
    assert not grew
