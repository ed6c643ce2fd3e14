"""A root with a great ledger: built once below a directory, and used again by the next run."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from benchmarks.agents.conversations import opened_runtime
from benchmarks.console.recorded import Recorded, Script, record
from benchmarks.gateways.progress import tell
from remit.gateway.auth import Identity
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.learning import Estimate
from remit.learning.proposals import Change, Learner
from remit.ledger import LedgerClient, LedgerEntry, open_root_ledger
from remit.runtime import Runtime

HOME = Path("/tmp/bench_console")
GREAT_EVENTS = 20_000
GREAT = "SES-GREATGREATGREAT0"
DAILY = "SES-DAYDAYDAYDAYDAY0"
"""One session for all calls of a key that name none."""

_DAYS = 30
_BATCH = 500
_PROPOSALS = 3
_ROUTES = """
[routing.models."gpt-4o-mini"]
provider = "openai"
abilities = { general = 60 }
input_usd_per_million = 0.15

[routing.models."gpt-4.1"]
provider = "openai"
abilities = { general = 76 }
input_usd_per_million = 2.0
"""


@dataclass(frozen=True)
class Grown:
    """A root that was built, and what to look at in it.

    Attributes:
        session: one of ten turns.
        exchange: a call of that session.
        great_exchange: a call in the middle of the session of 20,000 events.
        daily_exchange: a call in the middle of the session that calls without one share.
        fallback: a call that went to another model than the one asked for.
        request: that waits for a person.
        proposal: that is open.
    """

    root: Path
    entries: int
    session: str
    exchange: str
    great_exchange: str
    daily_exchange: str
    fallback: str
    request: str
    proposal: str


def grown(entries: int) -> Grown:
    """The root of so many entries."""
    place = HOME / f"root-{entries}"
    known = place / "bench.json"
    if not known.exists():
        started = time.perf_counter()
        shutil.rmtree(place, ignore_errors=True)
        HOME.mkdir(parents=True, exist_ok=True)
        _build(place, entries)
        built = _looked_up(place, entries)
        known.write_text(json.dumps(asdict(built), default=str))
        size = sum(file.stat().st_size for file in place.glob("ledger.db*")) / 1e9
        tell(f"Built in {time.perf_counter() - started:.0f} s, {size:.2f} GB")
    found = json.loads(known.read_text())
    return Grown(**{**found, "root": Path(found["root"])})


def _build(place: Path, entries: int) -> None:
    runtime = opened_runtime(place, "http://127.0.0.1:9")
    try:
        with (place / "remit.toml").open("a", encoding="utf-8") as settings:
            settings.write(_ROUTES)
        script = record(runtime)
        _propose(runtime)
        writer = _Writer(runtime.ledger, entries)
        with mock.patch("remit.ledger.transaction.utc_now", writer.now):
            writer.grow(script)
        runtime.ledger.checkpoint()
    finally:
        runtime.close()


class _Writer:
    """Writes copies until there are so many entries, their times spread over a month."""

    def __init__(self, ledger: LedgerClient, entries: int) -> None:
        self._ledger = ledger
        self._entries = entries
        self._chance = random.Random(1)
        self._next = ledger.count()
        self._end = time.time()
        self._waiting: list[LedgerEntry] = []
        self._written = 0

    def now(self) -> str:
        """When the next entry was written."""
        self._written += 1
        left = max(0.0, 1 - self._written / self._entries)
        moment = datetime.fromtimestamp(self._end - left * _DAYS * 86_400, UTC)
        return moment.isoformat(timespec="microseconds")[:-6] + "Z"

    def grow(self, script: Script) -> None:
        """Agents' sessions, and between them calls of one key; the great session in their midst."""
        number, told, great = 0, self._next, False
        while self._next < self._entries:
            number += 1
            if not great and self._next > self._entries / 2:
                great = True
                turns = GREAT_EVENTS // len(script.turn.entries)
                self._add(self._copy(script.session, GREAT))
                for turn in range(11, turns + 1):
                    self._add(self._copy(script.turn, GREAT, turn))
            name = f"SES-{number:016d}"
            self._add(self._copy(script.session, name))
            if number % 20 == 0:
                self._add(self._copy(script.approved, f"SES-A{number:015d}"))
            if number % 400 == 0:
                self._add(self._copy(script.waits, f"SES-W{number:015d}"))
            if number % 50 == 0:
                self._add(iter([_refused(number)]))
            for _ in range(10):
                self._add(self._call())
            if self._next - told > 100_000:
                told = self._next
                tell(f"{self._next:,} entries")
        self._flush()

    def _copy(self, recorded: Recorded, name: str, turn: int = 0) -> Iterator[LedgerEntry]:
        return recorded.again(name, self._next, self._chance, turn)

    def _call(self) -> Iterator[LedgerEntry]:
        """A call of a client that names no session."""
        named = {"agent_id": "app", "session_id": DAILY, "contract_id": "PRC-PASSTHROUGH-001"}
        said = f"Question {self._chance.getrandbits(40)}: what is this about?"
        yield LedgerEntry(
            "DISPATCH", "PRC-PASSTHROUGH-001", "DISPATCHED",
            "Dispatching to openai/gpt-4o-mini", metadata=dict(named),
        )  # fmt: skip
        yield LedgerEntry(
            "EXCHANGE", "PRC-PASSTHROUGH-001", "SUCCESS", "Exchange completed",
            metadata=named | {
                "framework_id": "FMWK-GATEWAY", "tier": "", "work_order_id": "",
                "outcome": "success", "model_id": "gpt-4o-mini", "provider_id": "openai",
                "dispatch_entry_id": f"LED-{self._next:08x}", "key_id": "KEY-0000000000000001",
                "input_tokens": 812, "output_tokens": 93, "latency_ms": 812.5,
                "cost_usd": 0.000177, "cost_certainty": "measured", "finish_reason": "stop",
                "prompt": [{"role": "user", "content": said}],
                "response": f"It is about {self._chance.getrandbits(60)}.",
            },
        )  # fmt: skip

    def _add(self, entries: Iterator[LedgerEntry]) -> None:
        found = list(entries)
        self._next += len(found)
        self._waiting += found
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._ledger.write_many(self._waiting)
        self._waiting = []
        assert self._ledger.count() == self._next


def _refused(number: int) -> LedgerEntry:
    return LedgerEntry(
        "PROMPT_REJECTED", "PRC-PASSTHROUGH-001", "REJECTED", "The budget is exhausted",
        metadata={"agent_id": "app", "session_id": DAILY, "error_code": "BUDGET_EXHAUSTED",
                  "contract_id": "PRC-PASSTHROUGH-001", "number": number},
    )  # fmt: skip


def _propose(runtime: Runtime) -> None:
    evidence = [one.id for one in runtime.ledger.query(event_type="EXCHANGE", limit=10)]
    otto = Identity("otto", "operator", key_id="KEY-0000000000000002")
    learner = Learner(runtime.root, runtime.ledger, runtime.loaded, otto)
    predicted = Estimate(
        value=0.1, low=0.05, high=0.15, samples=400, effective_samples=300.0, method="betting"
    )
    for number in range(_PROPOSALS):
        change = Change("prompt", contract_id="PRC-EXECUTE-001", additions=[f"Unit {number}."])
        learner.propose(
            change, evidence=evidence, predicted=predicted, replay={"held_out": 400},
            reason="Units are missing.",
        )  # fmt: skip


def _looked_up(place: Path, entries: int) -> Grown:
    root = Root(place)
    with open_root_ledger(root, load_settings(root.config).settings.ledger) as ledger:

        def first(test: Callable[[LedgerEntry], bool] = bool, **where: str) -> LedgerEntry:
            found = ledger.query(**where, with_content=False)  # type: ignore[arg-type]
            return next(filter(test, found))

        session = f"SES-{max(1, entries // 500):016d}"
        middle = _middle(ledger, GREAT), _middle(ledger, DAILY)
        return Grown(
            place,
            ledger.count(),
            session,
            first(event_type="EXCHANGE", session_id=session).id,
            *middle,
            first(lambda one: "fallback_from" in one.metadata, event_type="EXCHANGE").id,
            first(event_type="APPROVAL_REQUESTED", session_id=_waiting(ledger)).id,
            first(event_type="SIGNAL_PROPOSED").submission_id,
        )


def _middle(ledger: LedgerClient, session: str) -> str:
    ((count,),) = ledger.select(
        "SELECT count(*) FROM entries WHERE session_id = ? AND event_type = 'EXCHANGE'", (session,)
    )
    ((seq,),) = ledger.select(
        "SELECT seq FROM entries WHERE session_id = ? AND event_type = 'EXCHANGE' "
        "ORDER BY seq LIMIT 1 OFFSET ?",
        (session, count // 2),
    )
    return f"LED-{seq:08x}"


def _waiting(ledger: LedgerClient) -> str:
    ((session,),) = ledger.select(
        "SELECT session_id FROM entries WHERE event_type = 'APPROVAL_REQUESTED' "
        "ORDER BY (session_id LIKE 'SES-W%') DESC, seq DESC LIMIT 1"
    )
    return str(session)
