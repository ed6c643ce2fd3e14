"""One run from one seed."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from tests.simulation import actors
from tests.simulation.database import Database, Faults, SimulatedLedger
from tests.simulation.invariants import Watch
from tests.simulation.patches import in_world
from tests.simulation.world import Process, World

__all__ = ["Outcome", "run", "scratch"]

_FAULTS_S = 15.0  # then all that is broken is mended
_END_S = 120.0  # by then all must have come to its end
_SHOWN = 10  # of each kind of work that is left
_ON_ONE_LOG = 100  # processes; more wait for its one writer, and have longer


@dataclass(slots=True)
class Outcome:
    """What became of a run.

    Attributes:
        refusals: calls that a budget refused.
        waits_s: of each transaction, how long it waited for the one writer; in seconds.
        took_s: how much virtual time passed.
    """

    seed: int
    events: int
    commits: int
    took_s: float
    violations: list[str]
    refusals: int
    waits_s: list[float] = field(default_factory=list)


def scratch() -> Path:
    """A folder in memory, where there is one."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="remit-sim-", dir=memory if memory.is_dir() else None))


def _empty_ledger(folder: Path, tokens: int) -> Path:
    """Return a ledger with a budget of so many tokens, for runs to copy."""
    made = folder / f"empty-{tokens}.db"
    if not made.exists():
        with LedgerClient(made) as ledger:
            TokenBudgeter(ledger).allocate(BudgetScope(actors.SESSION), tokens)
    return made


class _Simulation:
    """Starts processes, breaks things, starts them again."""

    def __init__(self, world: World, database: Database, processes: int) -> None:
        self.world, self.database = world, database
        self.watch = Watch(world, database)
        self._kind_of: dict[Process, str] = {}
        database.on_stop = self._stop
        self._processes = processes
        self.breaks = True
        self._machines = max(2, processes * 2 // 3)
        self._kinds = ("gateway", "holder", "worker", "holder", "gateway", "submitter")

    def start(self) -> None:
        """Have all processes begin."""
        for number in range(self._processes):
            self._start(
                self._kinds[number % len(self._kinds)], self.world.random.randrange(self._machines)
            )

    def _start(self, kind: str, machine: int) -> None:
        process = Process(self.world, machine)
        self.world.current = process
        ledger = SimulatedLedger(self.database, process)
        chance = self.world.random
        if kind == "gateway":
            main: Coroutine[Any, Any, Any] = actors.gateway(
                process, ledger, self.watch, chance.randint(2, 6)
            )
        elif kind == "holder":
            lanes = max(1, self._processes // 20)
            name = f"session:SES-{chance.randrange(lanes)}"
            main = actors.holder(process, ledger, self.watch, name, chance.randint(3, 6))
        elif kind == "submitter":
            main = actors.submitter(process, ledger, self.watch, chance.randint(2, 4))
        else:
            main = actors.worker(process, ledger, self.watch)
        process.run(main)
        self.world.current = None
        self._kind_of[process] = kind
        if kind != "worker":
            self.watch.busy.add(process)
        if self.breaks:
            self._plan(process, kind)

    def _plan(self, process: Process, kind: str) -> None:
        """Decide what will happen to a process, and when."""
        world, chance = self.world, self.world.random
        while chance.random() < 0.6:
            at = chance.uniform(0, _FAULTS_S) - world.now
            if at < 0:
                continue
            what = chance.choice(("pause", "suspend", "cut", "kill"))
            for_s = chance.choice((0.2, 2.0, 5.0, 9.0)) * chance.uniform(0.5, 1.5)
            world.after(at, self._fault(process, kind, what, for_s))

    def _stop(self, process: Process) -> None:
        """Stop a process in the middle of a transaction."""
        what = self.world.random.choice(("pause", "suspend", "kill"))
        for_s = self.world.random.choice((0.5, 4.0, 8.0))
        self._fault(process, self._kind_of[process], what, for_s)()

    def _fault(self, process: Process, kind: str, what: str, for_s: float) -> Any:
        world = self.world

        def happen() -> None:
            if process.dead:
                return
            if what == "kill":
                process.kill()
                world.after(for_s, lambda: self._start(kind, process.machine))
            elif what == "cut":
                process.cut_off_until = max(process.cut_off_until, world.now + for_s)
            else:
                process.pause(for_s, suspended=what == "suspend")

        return happen


def run(
    seed: int,
    processes: int = 10,
    folder: Path | None = None,
    *,
    batch_s: float | None = None,
    measure_s: float = 0.0,
) -> Outcome:
    """Simulate once.

    Args:
        seed: decides everything.
        processes: how many at a time.
        folder: for the ledger; one of its own when left out.
        batch_s: how long the one writer takes for a batch; drawn when left out.
        measure_s: only run for so long, nothing breaking, to see how long transactions wait.
    """
    own = folder is None
    folder = folder or scratch()
    path = folder / f"{seed}.db"
    with ExitStack() as stack:
        if own:
            stack.callback(shutil.rmtree, folder)
        world = World(seed)
        chance = world.random
        budget = actors.BUDGETS[1] if measure_s else chance.choice(actors.BUDGETS)
        shutil.copy(_empty_ledger(folder, budget * max(1, processes // 10)), path)
        end_s = _END_S * max(1.0, processes / _ON_ONE_LOG)
        faults = Faults(batch_s=chance.choice((0.001, 0.004, 0.02)) if batch_s is None else batch_s)
        if not measure_s:
            faults.lock_timeout_s = chance.choice((2.0, 30.0))
            faults.lose_request, faults.lose_answer, faults.late_commit = (
                chance.choice((0.0, 0.02, 0.1)) for _ in range(3)
            )
            faults.stop = chance.choice((0.0, 0.02, 0.05))
        database = Database(world, path, faults)
        was_enabled = gc.isenabled()
        gc.disable()  # what it would close belongs to processes that were killed
        try:
            with in_world(world):
                simulation = _Simulation(world, database, processes)
                simulation.breaks = not measure_s
                simulation.start()
                world.after(_FAULTS_S, lambda: _mend(faults))
                world.run(measure_s or _FAULTS_S)
                if not measure_s and not world.violations:
                    world.run(end_s, simulation.watch.is_quiet)
                    if not world.violations and not simulation.watch.is_quiet():
                        world.violated(f"after {end_s:g} s there is still work: {_left(database)}")
                for process in world.processes:
                    process.kill()
        finally:
            if was_enabled:
                gc.enable()
        database.store.close()
        if not measure_s and not world.violations:
            simulation.watch.check_end(path)
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
    return Outcome(
        seed, world.events, database.commits, world.now, world.violations,
        simulation.watch.refusals, database.waits_s,
    )  # fmt: skip


def _mend(faults: Faults) -> None:
    faults.stop = faults.lose_request = faults.lose_answer = faults.late_commit = 0.0


def _left(database: Database) -> str:
    read = database.store._reader.execute
    orders = read("SELECT order_id, state, worker, attempts FROM orders").fetchall()
    calls = read("SELECT dispatch_entry_id, owner FROM in_flight").fetchall()
    return f"{len(orders)} orders {orders[:_SHOWN]}, {len(calls)} calls {calls[:_SHOWN]}"
