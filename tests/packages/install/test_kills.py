"""Killed anywhere, the next command finishes or undoes it: never anything between.

Every eleventh event is tried, and in a soak each of them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.packages import IncomingArchive, PackageError
from remit.packages.shipped import ASIDE_FOLDER
from remit.runtime import Runtime, make_root
from tests.packages.hostile import python
from tests.packages.install.killing import SCENARIOS, Game
from tests.packages.install.world import agreed, governed, managing, packed, tree
from tests.support.soak import is_soak

STRIDE = 1 if is_soak() else 11


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_operation_killed_anywhere_is_done_or_undone(scenario: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        done = python("-m", "tests.packages.install.killing", top, scenario, str(STRIDE))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["problems"], found["problems"]
    states = {state.partition(" ")[0] for state in found["outcomes"]}
    assert states == {"before", "after"}, found
    # What the ledger tells and what the files are belong together.
    assert len(found["outcomes"]) == 2, found
    assert found["events"] > 60


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_disk_that_fails_anywhere_leaves_nothing_between(scenario: str) -> None:
    """From its n-th call on the disk takes nothing more, also not what would undo it."""
    seen = set()
    with tempfile.TemporaryDirectory() as top:
        game = Game(Path(top), scenario)
        for number in range(0, game.events(), 2 * STRIDE):
            root = game.copy("failing")
            code = game.fail(root, number, "ENOSPC")
            seen.add(code)
            state = game.state(root).partition(" ")[0]
            assert state == ("before" if code == "unwritable" else "after"), code
    assert seen <= {"unwritable", "unfinished", ""}
    assert {"unwritable", "unfinished"} <= seen


def test_restoring_that_is_killed_leaves_no_file_of_nobody(small: Path) -> None:
    spec = small / "HOT/specs/SPEC-TEST-001.json"
    right = governed(small)
    game = Game.__new__(Game)
    for number in range(12):
        spec.unlink(missing_ok=True)
        game.kill(small, number, lambda manager: manager.restore())
        with managing(small) as manager:
            manager.recover()
            names = {one.name for one in spec.parent.iterdir()}
            assert names <= {spec.name}, "nobody could install anything beside that"
            manager.restore()
            agreed(small, manager._ledger)
        assert governed(small) == right


def test_what_has_to_be_durable_is_before_the_next_step(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a loss of power: every new name is in a folder that was synchronised in time."""
    synced: list[str] = []
    plain = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_relative_to(small):
            synced.append(path.relative_to(small).as_posix())
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    shutil.rmtree(small / "HOT/installed/.journal")
    at: dict[str, list[str]] = {}
    first = {"HO2/deep/folder/goes.txt": b"1", "HO1/data/stays.txt": b"1"}
    second = {"HO1/new/deep/comes.txt": b"2", "HO1/data/stays.txt": b"2"}
    for version, files in (("1.0.0", first), ("2.0.0", second)):
        synced.clear()
        data = packed(tmp_path, "PKG-ONE-001", version, files, package_type="data")

        def step(name: str) -> None:
            at.setdefault(name.partition(" ")[0], list(synced))

        at.clear()
        with managing(small, step) as manager:
            manager.install([IncomingArchive(data)], dev=True)
        journal = next(path for path in at["record"] if "/.journal/OP-" in path)
        journal = "/".join(journal.split("/")[:4])
        staged = {sha256_hex(path.encode()) for path in files}
        assert {journal, *(f"{journal}/{name}" for name in staged)} <= {*at["record"]}
        assert "HOT/installed/.journal" in at["record"]
        placed = {Path(path).parent.as_posix() for path in files}
        above = {"HO2", "HO2/deep"} if version == "1.0.0" else {"HO1", "HO1/new"}
        assert placed | above <= {*at["close"]}
        kept = "HOT/installed/PKG-ONE-001/archives"
        assert {kept, "HOT/registries", "HOT/installed/PKG-ONE-001"} <= {*at["close"]}
        if version == "1.0.0":
            assert "HOT/installed" in at["record"], "the journal's own folder was new"
        else:
            assert at["close"].count("HO2") == 1, "a folder was removed from it"


def _linked(name: str, target: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(target)


def _staged(path: str) -> str:
    return sha256_hex(path.encode())


OWNED = "HOT/specs/SPEC-TEST-001.json"
PLANTED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "a link to a folder": _linked("more", "/etc"),
    "a link in the place of a staged file": _linked(_staged(OWNED), "/etc/hostname"),
    "other content for an owned file": lambda folder: (folder / _staged(OWNED)).write_text("x"),
    "a file of nobody": lambda folder: (folder / _staged("HO1/data/x.txt")).write_text("x"),
    "a file of trust": lambda folder: (folder / _staged("trust.json")).write_text("{}"),
    "a folder": lambda folder: (folder / _staged(OWNED)).mkdir(),
}


def test_a_planted_journal_changes_nothing(small: Path) -> None:
    before = tree(small)
    with managing(small) as manager:
        done = manager.registry().packages["PKG-WORLD-001"].operation_id
        for case, plant in PLANTED.items():
            for operation in ("OP-" + "0" * 16, done):
                folder = small / "HOT/installed/.journal" / operation
                folder.mkdir(parents=True)
                plant(folder)
                folder.with_name("left.tmp").mkdir()
                manager.recover()
                agreed(small, manager._ledger)
                assert tree(small) == before, case


def test_a_journal_of_no_operation_of_this_version_is_not_touched(small: Path) -> None:
    journal = small / "HOT/installed/.journal"
    zeros = journal / ("OP-" + "0" * 16)
    for name in ("OP-00", "note"):
        (journal / name).mkdir()
        _refused(small, journal / name)
        shutil.rmtree(journal / name)
    zeros.mkdir()
    zeros.joinpath("plan.json").write_text("{}")
    assert "earlier version" in _refused(small, zeros)
    shutil.rmtree(zeros)
    (journal / "note").write_text("")
    _refused(small, journal / "note")
    (journal / "note").unlink()
    zeros.symlink_to(small.parent)
    _refused(small, zeros)
    shutil.rmtree(journal)
    small.parent.joinpath("elsewhere/x.tmp").mkdir(parents=True)
    journal.symlink_to(small.parent / "elsewhere")
    _refused(small, journal)
    assert small.parent.joinpath("elsewhere/x.tmp").is_dir()


def _refused(root: Path, folder: Path) -> str:
    before = tree(root)
    with managing(root) as manager:
        for command in (manager.recover, manager.restore):
            with pytest.raises(PackageError, match="Nothing was done") as refused:
                command()
            assert refused.value.code == "journal_damaged"
            assert str(folder) in refused.value.message
            assert "move it" in refused.value.next_step
    assert tree(root) == before
    return refused.value.message


# -- A root that an earlier version made, with files where packages put theirs -------------------


_CONTRACT = "HO1/contracts/PRC-EXECUTE-001.json"


def test_what_is_in_the_way_is_moved_and_never_lost(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.create()
    (root.path / "HO1/contracts").mkdir()
    (root.path / _CONTRACT).write_text("edited by hand")
    make_root(root)
    assert (root.path / ASIDE_FOLDER / _CONTRACT).read_text() == "edited by hand"
    with Runtime.open(root.path) as runtime:
        assert runtime.agent("a").tools == ()
    # Once something is installed, a changed file stays where it is, and is not used.
    (root.path / _CONTRACT).write_text("edited again")
    make_root(root)
    assert (root.path / _CONTRACT).read_text() == "edited again"
