"""Nothing that was acknowledged is lost with the power: ledgers, heads, archives and packages.

``REMIT_SOAK=1`` cuts the power 200 times under each store.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from tests.ledger.segments import test_interrupted as archives
from tests.packages.install.killing import prepare
from tests.packages.install.world import agreed, governed, managing, opened, packed
from tests.power.cut import PowerCut, compiled
from tests.support.postgres import PostgresServer
from tests.support.soak import SEED, is_soak
from tests.support.stores import SIGNER

pytestmark = pytest.mark.soak


def times(sampled: int, soaked: int = 200) -> int:
    return soaked if is_soak() else sampled


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = compiled(tmp_path_factory.mktemp("power"))
    if made is None:
        pytest.skip("There is no C compiler, which the library that notes writes needs.")
    return made


def acknowledged(power: PowerCut | None, kill_at: int, *victim: object) -> tuple[list[str], bool]:
    """Return what a victim acknowledged, and whether it was killed, at its n-th change of files."""
    noted = {} if power is None else {**power.environment, "POWER_KILL_AT": str(kill_at)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.power.victims", *map(str, victim)],
        env={**os.environ, **noted}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.split("\n")[:-1], done.returncode != 0


def require(client: LedgerClient, there: set[str]) -> None:
    """Raise AssertionError unless the ledger verifies and holds all that was acknowledged."""
    report = client.verify()
    assert report.verified, report.problems
    assert there <= {entry.id for entry in client.query(event_type="LOAD", with_content=False,
                                                        limit=None)}  # fmt: skip


def test_entries_on_sqlite(tmp_path: Path, library: Path) -> None:
    chance, there = random.Random(SEED), set[str]()
    power = PowerCut(tmp_path / "disk", library)
    target = power.directory / "ledger.db"
    for _ in range(times(2)):
        there.update(acknowledged(power, chance.randint(0, 300), "write", target)[0])
        power.cut(chance)
        with LedgerClient(target) as client:
            client.write(LedgerEntry("AFTER", "S", "D", "the next write works"))
    with LedgerClient(target) as client:
        require(client, there)
    assert len(there) > times(2)
    assert power.undone > times(2)
    print(f"{times(2)} cuts, {len(there)} entries acknowledged, {power.undone} undone: lost 0")


def test_entries_on_postgresql(tmp_path: Path, library: Path) -> None:
    chance, there = random.Random(SEED), set[str]()
    power = PowerCut(tmp_path / "disk", library)
    server = PostgresServer(power.directory / "server")
    target = server.database()
    for _ in range(times(2)):
        server.kill()
        wait_for_end(power.directory)
        with power.noting():
            server.start()
        command = [sys.executable, "-m", "tests.power.victims", "write", target]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            there.update(next(victim.stdout).strip() for _ in range(chance.randint(1, 60)))
            kill_all(power.directory)
            victim.kill()  # It would wait for its database to come back.
            there.update(line.strip() for line in victim.stdout if line.endswith("\n"))
        power.cut(chance)
        server.start()
        with LedgerClient(target) as client:
            require(client, there)
    server.stop()
    assert power.undone > times(2)
    print(f"{times(2)} cuts, {len(there)} entries acknowledged, {power.undone} undone: lost 0")


def processes(directory: Path) -> list[int]:
    """Return the ids of the processes that work in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def kill_all(directory: Path) -> None:
    """Kill all processes that work in a directory, none of which sees another die first."""
    for kind in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes(directory):
            os.kill(pid, kind)
    wait_for_end(directory)


def wait_for_end(directory: Path) -> None:
    while processes(directory):
        time.sleep(0.01)


def test_the_head_of_a_root(tmp_path: Path, library: Path) -> None:
    """A head that was kept is one that the ledger leads to, whatever the power took."""
    chance, there = random.Random(SEED), set[str]()
    power = PowerCut(tmp_path / "disk", library)
    root, _ = prepare(power.directory, "install")
    for _ in range(times(2, 100)):
        there.update(acknowledged(power, chance.randint(0, 300), "write_signed", root)[0])
        power.cut(chance)
        with opened(root) as client:
            client.write(LedgerEntry("AFTER", "S", "D", "the next write works"))
            client.checkpoints.sign()
    with opened(root) as client:
        require(client, there)
    assert power.undone > times(2, 100)


def test_an_archive(tmp_path: Path, library: Path) -> None:
    chance = random.Random(SEED)
    made = tmp_path / "ledger.db"
    (key := tmp_path / "key").write_bytes(SIGNER.to_pem())
    archives._fill(str(made))
    whole, changes = archives._whole(str(made)), 1_000
    for number in range(times(2, 100)):
        power = PowerCut(tmp_path / str(number), library)
        target, directory = power.directory / "ledger.db", power.directory / "out" / "archive"
        shutil.copy(made, target)
        ids, killed = acknowledged(
            power, chance.randint(0, changes), "archive", target, key, directory
        )
        changes = changes if killed else max(1, changes // 2)
        power.cut(chance)
        archives._require_whole(str(target), directory, whole, done=bool(ids))
        acknowledged(None, 0, "archive", target, key, directory)
        archives._require_whole(str(target), directory, whole, done=True)
        shutil.rmtree(power.directory)


def test_an_upgrade_of_a_package(tmp_path: Path, library: Path) -> None:
    chance = random.Random(SEED)
    root, operation = prepare(tmp_path / "made", "upgrade")
    files = {"HO1/data/one/stays.txt": b"1", "HO1/data/one/changes.txt": b"2",
             "HO2/new/folder/comes.txt": b"2"}  # fmt: skip
    package = tmp_path / "package"
    package.write_bytes(packed(tmp_path / "scratch", "PKG-ONE-001", "2.0.0", files))
    states = {"before": governed(root)}
    changed = shutil.copytree(root, tmp_path / "changed")
    with managing(changed) as manager:
        operation(manager)
    states["after"] = governed(changed)
    ends = set()
    for number in range(times(2, 100)):
        power = PowerCut(tmp_path / str(number), library)
        copy = shutil.copytree(root, power.directory / "root")
        said, _ = acknowledged(power, chance.randint(0, 400), "upgrade", copy, package)
        power.cut(chance)
        with managing(copy) as manager:
            manager.recover()
            agreed(copy, manager._ledger)
        (state,) = [name for name, found in states.items() if found == governed(copy)]
        assert state == "after" or not said
        ends.add(state)
        shutil.rmtree(power.directory)
    print(f"{times(2, 100)} cuts: {sorted(ends)}")
