"""Killed anywhere, the next command finishes or undoes it: never anything between.

Every fifth event is tried; all of them with ``REMIT_TEST_KILLS=1``, which takes a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.packages import Offer, PackageError
from tests.packages.hostile import python
from tests.packages.install.killing import SCENARIOS, Game, forked
from tests.packages.install.world import agreed, governed, managing, packed, tree

STRIDE = os.environ.get("REMIT_TEST_KILLS", "5")
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_operation_killed_anywhere_is_done_or_undone(scenario: str) -> None:
    with tempfile.TemporaryDirectory(dir=QUICK) as top:
        done = python("-m", "tests.packages.install.killing", top, scenario, STRIDE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["problems"], found["problems"]
    states = {state.partition(" ")[0] for state in found["outcomes"]}
    assert states == {"before", "after"}, found
    # What the ledger tells and what the files are belong together.
    assert len(found["outcomes"]) == 2, found
    assert found["events"] > 60


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_disk_that_fails_anywhere_leaves_nothing_between(scenario: str) -> None:
    """From its n-th call on the disk takes nothing more, also not what would undo it."""
    seen = set()
    with tempfile.TemporaryDirectory(dir=QUICK) as top:
        game = Game(Path(top), scenario)
        for number in range(0, game.events(), 2 * int(STRIDE)):
            root = game.copy("failing")
            code = game.fail(root, number, "ENOSPC")
            seen.add(code)
            state = game.state(root).partition(" ")[0]
            assert state == {"unwritable": "before", "not_undone": "before"}.get(code, "after")
    assert {"unfinished"} < seen <= {"unwritable", "not_undone", "unfinished", ""}


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
            manager.install([Offer(data)], dev=True)
        journal = next(path for path in at["place"] if path.endswith(".tmp"))
        assert {f"{journal}/{name}" for name in ("plan.json", "new/0", "new/1")} <= {*at["place"]}
        assert {journal, f"{journal}/new", "HOT/installed/.journal"} <= {*at["place"]}
        placed = {Path(path).parent.as_posix() for path in files}
        above = {"HO2", "HO2/deep"} if version == "1.0.0" else {"HO1", "HO1/new"}
        assert placed | above <= {*at["record"]}
        kept = "HOT/installed/PKG-ONE-001/archives"
        assert {kept, "HOT/registries", "HOT/installed/PKG-ONE-001"} <= {*at["close"]}
        if version == "1.0.0":
            assert "HOT/installed" in at["place"], "the journal's own folder was new"
        else:
            assert at["close"].count("HO2") == 1, "a folder went from it"


def test_a_child_that_fails_is_told_from_one_that_is_killed() -> None:
    assert forked(lambda: None) == 0
    assert forked(lambda: os.kill(os.getpid(), 9)) == -9


Change = Callable[[Path, dict[str, Any]], None]


def _set(**changes: Any) -> Change:
    return lambda _, plan: plan.update(changes)


def _place(**changes: Any) -> Change:
    item = {"path": "HO1/data/x.txt", "sha256": "0" * 64, "replaces": True, **changes}
    return _set(place=[item])


def _link(name: str, target: str) -> Change:
    def change(folder: Path, _: dict[str, Any]) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    return change


def _file(name: str) -> Change:
    def change(folder: Path, _: dict[str, Any]) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("planted")

    return change


def _linked_parent(folder: Path, plan: dict[str, Any]) -> None:
    root = folder.parents[3]
    (root / "HO1/data").mkdir(parents=True, exist_ok=True)
    (root / "HO1/data/leads").symlink_to(root.parent)
    plan["drop"] = ["HO1/data/leads/victim.txt"]


PLANTED: dict[str, Change] = {
    "another's id": _set(operation_id="OP-" + "1" * 16),
    "an id that leads out": _set(operation_id="../../../../victim"),
    "more than a plan": _set(more=1),
    "no list": _set(drop="HO1/data/x.txt"),
    "a drop outside": _set(drop=["../victim.txt"]),
    "a drop with .. inside": _set(drop=["HO1/../../victim.txt"]),
    "a drop of no text": _set(drop=[7]),
    "a drop beside the tiers": _set(drop=["trust.json"]),
    "a drop of a key": _set(drop=["HOT/keys/packages.pem"]),
    "a drop of a receipt": _set(drop=["hot/installed/PKG-WORLD-001/receipt.json"]),
    "a drop in a reserved folder": _set(drop=["HOT/Installed/PKG-WORLD-001/receipt.json"]),
    "a drop through a link": _linked_parent,
    "a file outside": _place(path="../victim.txt"),
    "an absolute file": _place(path="/tmp/victim.txt"),
    "a file of trust": _place(path="trust.json"),
    "a registry": _place(path="HOT/registries/ownership.json"),
    "no hash": _place(sha256=""),
    "no truth": _place(replaces=1),
    "an item with more": _place(more=1),
    "no package": _set(packages=["../PKG-WORLD-001"]),
    "an archive outside": _file("archives/trust.json"),
    "an archive in another place": _file("archives/PKG-WORLD-001/receipt.json"),
    "a linked archive": _link("archives/PKG-WORLD-001/archives/1.0.0.tar.gz", "/etc/hostname"),
    "a linked folder of archives": _link("archives/PKG-WORLD-001", "/etc"),
    "a linked new file": _link("new/0", "/etc/hostname"),
    "a linked folder of new files": _link("new", "/etc"),
    "a file of no number": _file("old/7"),
    "something else": _file("more"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_journal_is_not_believed(small: Path, case: str) -> None:
    named = "OP-" + "0" * 16
    victim = small.parent / "victim.txt"
    victim.write_text("precious")
    folder = small / "HOT/installed/.journal" / named
    folder.mkdir(parents=True)
    waste = folder.with_name("left.tmp")
    waste.mkdir()
    plan: dict[str, Any] = {"operation_id": named, "packages": ["PKG-WORLD-001"],
                            "drop": [], "place": []}  # fmt: skip
    PLANTED[case](folder, plan)
    (folder / "plan.json").write_text(json.dumps(plan))
    _refused(small, folder)
    assert victim.read_text() == "precious"
    assert waste.is_dir()
    folder.rename(small.parent / "away")
    with managing(small) as manager:
        manager.recover()
        # The link that one case needs is nobody's, and stays for people to see.
        if "link" not in case or "drop" not in case:
            agreed(small, manager._ledger)


def test_a_journal_that_is_no_operations_is_not_believed(small: Path) -> None:
    journal = small / "HOT/installed/.journal"
    for name, text in (("OP-00", "{}"), ("OP-" + "0" * 16, "{"), ("OP-" + "1" * 16, "[" * 9999)):
        (journal / name).mkdir()
        (journal / name / "plan.json").write_text(text)
        _refused(small, journal / name)
        shutil.rmtree(journal / name)
    (journal / "note").write_text("")
    _refused(small, journal / "note")
    (journal / "note").unlink()
    (journal / ("OP-" + "0" * 16)).symlink_to(small.parent)
    _refused(small, journal / ("OP-" + "0" * 16))
    shutil.rmtree(journal)
    small.parent.joinpath("elsewhere").mkdir()
    journal.symlink_to(small.parent / "elsewhere")
    small.parent.joinpath("elsewhere/x.tmp").mkdir()
    _refused(small, journal)
    assert small.parent.joinpath("elsewhere/x.tmp").is_dir()


def _refused(root: Path, folder: Path) -> None:
    before = tree(root)
    with managing(root) as manager:
        for command in (manager.recover, manager.restore):
            with pytest.raises(PackageError, match="Nothing was done") as refused:
                command()
            assert refused.value.code == "journal_damaged"
            assert str(folder) in refused.value.message
            assert "move it" in refused.value.next_step
    assert tree(root) == before
