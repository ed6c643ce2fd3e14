"""Operations that are killed with SIGKILL at one step after another, and what is left then.

Run as a program it plays one scenario and prints what came of it in JSON. A child is forked for
each kill; it dies before its n-th event. An event is a step that the manager tells, or a system
call that changes the disk (and, for a new file, the moment when it is there and empty).
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from remit.packages import IncomingArchive, PackageError, PackageManager
from tests.packages.install.world import agreed, governed, managing, packed, small_root

SCENARIOS = ("install", "upgrade", "remove", "rollback")

_CALLS = ("replace", "rename", "unlink", "mkdir", "rmdir", "link", "symlink", "fsync", "truncate",
          "ftruncate", "pwrite")  # fmt: skip


class Clock:
    """Counts events, and ends the process before the n-th; or fails from the n-th on."""

    def __init__(self, last: int | None, error: int = 0) -> None:
        self.count = 0
        self._last = last
        self._error = error

    def tick(self, *_: object) -> None:
        if self._error and self._last is not None and self.count >= self._last:
            self.count += 1
            raise OSError(self._error, os.strerror(self._error))
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    @contextlib.contextmanager
    def wound(self) -> Iterator[None]:
        """Within this every change of the disk is an event."""
        plain = {name: getattr(os, name) for name in _CALLS}
        opens = io.open
        for name, call in plain.items():
            setattr(os, name, self._before(call))

        def noted(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if not set(mode) & set("wxa+"):
                return opens(file, mode, *more, **named)
            self.tick()
            stream = opens(file, mode, *more, **named)
            try:
                self.tick()
            except OSError:
                stream.close()
                raise
            return stream

        builtins.open = io.open = noted
        try:
            yield
        finally:
            builtins.open = io.open = opens
            for name, call in plain.items():
                setattr(os, name, call)

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def ticking(*given: Any, **named: Any) -> Any:
            self.tick()
            return call(*given, **named)

        return ticking


def prepare(top: Path, scenario: str) -> tuple[Path, Callable[[PackageManager], Any]]:
    """A root before the operation, and the operation."""
    scratch = top / "scratch"
    root = small_root(top / "before", scratch)
    one = {"HO1/data/one/stays.txt": b"1", "HO1/data/one/changes.txt": b"1",
           "HO1/data/one/deep/goes.txt": b"1"}  # fmt: skip
    two = {"HO1/data/one/stays.txt": b"1", "HO1/data/one/changes.txt": b"2",
           "HO2/new/folder/comes.txt": b"2"}  # fmt: skip
    first = packed(scratch, "PKG-ONE-001", "1.0.0", one)
    second = packed(scratch, "PKG-ONE-001", "2.0.0", two)
    needs = [{"package_id": "PKG-ONE-001", "version": ">=1.0.0"}]
    other = packed(
        scratch, "PKG-TWO-001", "1.0.0", {"HOT/data/two/a.txt": b"a", "HO1/data/two/b.txt": b"b"},
        dependencies=needs,
    )  # fmt: skip

    def bring(*archives: bytes) -> None:
        with managing(root) as manager:
            manager.install([IncomingArchive(data) for data in archives], dev=True)

    if scenario == "install":
        return root, lambda m: m.install([IncomingArchive(other), IncomingArchive(first)], dev=True)
    bring(first)
    if scenario == "upgrade":
        bring(other)
        return root, lambda m: m.install([IncomingArchive(second)], dev=True, only_upgrade=True)
    if scenario == "remove":
        return root, lambda m: m.remove("PKG-ONE-001")
    bring(second)
    return root, lambda m: m.rollback("PKG-ONE-001")


def forked(call: Callable[[], None]) -> int:
    """Run ``call`` in a child; its status: 0, or minus the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            call()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Game:
    """One scenario, on copies of one root."""

    def __init__(self, top: Path, scenario: str) -> None:
        self._top = top
        self.before, self._operation = prepare(top, scenario)
        self.after = self.copy("after")
        self._counted(self.after, self._operation)
        self.states = {"before": governed(self.before), "after": governed(self.after)}
        assert self.states["before"] != self.states["after"]

    def copy(self, name: str) -> Path:
        target = self._top / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.before, target)
        return target

    def events(self) -> int:
        """How many there are in the operation."""
        return self._counted(self.copy("counted"), self._operation)

    def kill(self, root: Path, last: int, operation: Callable[[PackageManager], Any]) -> int:
        def doomed() -> None:
            clock = Clock(last)
            with managing(root, clock.tick) as manager, clock.wound():
                operation(manager)

        return forked(doomed)

    def operate(self, root: Path, last: int) -> int:
        return self.kill(root, last, self._operation)

    def fail(self, root: Path, last: int, error: str) -> str:
        """Have the disk fail from an event on; the code of what came of it."""
        clock = Clock(last, getattr(errno, error))
        with managing(root) as manager:
            try:
                with clock.wound():
                    self._operation(manager)
            except PackageError as problem:
                return problem.code
        return ""

    def recover(self, root: Path, last: int) -> int:
        return self.kill(root, last, lambda manager: manager.recover())

    def state(self, root: Path) -> str:
        """Which state a root is in once the next command has run; raises unless all agrees."""
        with managing(root) as manager:
            manager.recover()
            registry = agreed(root, manager._ledger)
            recorded = len(registry.history.get("PKG-ONE-001", ()))
        found = governed(root)
        name = next((name for name, files in self.states.items() if files == found), "between")
        return f"{name} {recorded} {'in' if 'PKG-ONE-001' in registry.packages else 'out'}"

    def _counted(self, root: Path, operation: Callable[[PackageManager], Any]) -> int:
        clock = Clock(None)
        with managing(root, clock.tick) as manager, clock.wound():
            operation(manager)
        return clock.count


def play(top: Path, scenario: str, stride: int) -> dict[str, Any]:
    """Kill at every ``stride``-th event, and now and then kill what recovers from it as well.

    Returns:
        The number of events; and by outcome, how often it was.
    """
    game = Game(top, scenario)
    events = game.events()
    outcomes: dict[str, int] = {}
    problems = []
    for last in range(0, events, stride):
        root = game.copy("killed")
        try:
            status = game.operate(root, last)
            assert status == -signal.SIGKILL, status
            # How far the recovery gets is another one each time.
            again = game.recover(root, (last * 7) % 40) if (last // stride) % 4 == 0 else 0
            assert again in (0, -signal.SIGKILL), again
            state = game.state(root)
        except Exception as error:
            problems.append(f"{scenario} killed before event {last}: {error!r}")
            continue
        outcomes[state] = outcomes.get(state, 0) + 1
    return {"events": events, "outcomes": outcomes, "problems": problems}


if __name__ == "__main__":
    place, name, every = sys.argv[1:]
    print(json.dumps(play(Path(place), name, int(every))))
