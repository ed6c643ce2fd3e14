"""What installing, upgrading, removing and going back do to a root and its record."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import pytest

from remit.cli.main import main
from remit.kernel.canonical import sha256_hex
from remit.kernel.installed_files import InstalledFiles, NotInstalledError
from remit.packages import (
    IncomingArchive,
    InstalledPackage,
    Manifest,
    PackageError,
    PackageManager,
    Registry,
)
from tests.packages.hostile import Stage
from tests.packages.install.killing import packed
from tests.packages.install.world import (
    agreed,
    entries,
    governed,
    managing,
    opened,
    small_root,
    tree,
)
from tests.support.processes import Program

ONE = "PKG-ONE-001"


def put(root: Path, *archives: bytes, **more: Any) -> list[InstalledPackage]:
    with managing(root) as manager:
        return manager.install(
            [IncomingArchive(data) for data in archives], **{"dev": True, **more}
        )


def refused(root: Path, call: Callable[[PackageManager], object], **settings: Any) -> str:
    """The code of the error that a call raises, which changes nothing."""
    before, count = tree(root), entries(root)
    with managing(root, **settings) as manager, pytest.raises(PackageError) as caught:
        call(manager)
    assert (tree(root), entries(root)) == (before, count)
    return caught.value.code


def installing(*archives: bytes) -> Callable[[PackageManager], object]:
    incoming = [IncomingArchive(data) for data in archives]
    return lambda manager: manager.install(incoming, dev=True)


def recorded(root: Path, event: str, package_id: str = ONE) -> list[dict[str, Any]]:
    with opened(root) as ledger:
        found = ledger.query(event_type=event, submission_id=package_id)
        return [dict(entry.metadata) for entry in found]


def check(root: Path) -> Registry:
    with opened(root) as ledger:
        assert ledger.verify().verified
        return agreed(root, ledger)


def one(scratch: Path, version: str = "1.0.0", **changes: Any) -> bytes:
    files = {"HO1/data/x.txt": version.encode(), f"HO1/data/only-{version}.txt": b"x"}
    return packed(scratch, ONE, version, files, **changes)


def test_an_entry_states_all_that_the_root_then_holds(small: Path, scratch: Path) -> None:
    data = one(scratch)
    (package,) = put(small, data)
    registry = check(small)
    (entry,) = recorded(small, "INSTALLED")
    digest = f"sha256:{sha256_hex(data)}"
    assert entry["archive_sha256"] == digest
    assert json.loads(entry["manifest"])["package_id"] == ONE
    assert entry["manifest_sha256"] == Manifest.parse(entry["manifest"].encode()).digest
    assert (entry["operation"], entry["version"], entry["previous_version"]) == (
        "install", "1.0.0", ""
    )  # fmt: skip
    assert (entry["source"], entry["by"], entry["approved_by"]) == ("archive", "tester", "")
    assert entry["signature"] == {
        "waived": True, "keyids": [], "threshold": 0, "envelope_sha256": "",
    }  # fmt: skip
    assert package == registry.packages[ONE]
    receipt = json.loads((small / f"HOT/installed/{ONE}/receipt.json").read_bytes())
    assert receipt["operation_id"] == entry["operation_id"]
    assert receipt["entry_id"] == package.entry_id
    kept = small / f"HOT/installed/{ONE}/archives/1.0.0.tar.gz"
    assert kept.read_bytes() == data
    assert (small / "HO1/data/x.txt").read_bytes() == b"1.0.0"


def test_the_same_again_puts_back_what_is_missing(small: Path, scratch: Path) -> None:
    data = one(scratch)
    put(small, data)
    before, count = tree(small), entries(small)
    kept = small / "HOT/installed" / ONE
    for path in (
        small / "HO1/data/x.txt",
        kept / "receipt.json",
        kept / "archives/1.0.0.tar.gz",
        small / "HOT/registries/specs.json",
    ):
        path.unlink()
    put(small, data)
    assert (tree(small), entries(small)) == (before, count)
    (small / "HO1/data/x.txt").write_bytes(b"changed")
    put(small, data)
    assert (small / "HO1/data/x.txt").read_bytes() == b"changed", "that is for `restore`"
    with managing(small) as manager:
        assert manager.restore([ONE]) == {"HO1/data/x.txt": "other content"}
        assert manager.restore() == {}
    assert (tree(small), entries(small)) == (before, count)
    for path in (small / "HOT/registries/ownership.json", kept / "receipt.json"):
        path.write_bytes(b"{}")
    (small / "HOT/registries/packages.json").unlink()
    with managing(small) as manager:
        manager.rebuild()
    assert (tree(small), entries(small)) == (before, count)


def test_upgrade_rollback_and_removal(small: Path, scratch: Path) -> None:
    empty = governed(small)
    put(small, one(scratch, permissions={"tools": ["list_files"]}))
    first = governed(small)
    put(small, one(scratch, "1.1.0"), only_upgrade=True)
    assert not (small / "HO1/data/only-1.0.0.txt").exists()
    check(small)
    assert refused(small, lambda manager: manager.rollback(ONE)) == "permissions_widened"
    with managing(small) as manager:
        back = manager.rollback(ONE, approve=True)
    assert (back.version, back.operation, back.approved_by) == ("1.0.0", "rollback", "tester")
    assert recorded(small, "INSTALLED")[-1]["permissions_widened"] == ["the tool list_files"]
    kept = f"HOT/installed/{ONE}/archives/1.1.0.tar.gz"
    now = governed(small)
    assert now.pop(kept) == one(scratch, "1.1.0")
    assert now == first
    assert [entry["operation"] for entry in recorded(small, "INSTALLED")] == [
        "install", "upgrade", "rollback",
    ]  # fmt: skip
    assert [entry["previous_version"] for entry in recorded(small, "INSTALLED")] == [
        "", "1.0.0", "1.1.0",
    ]  # fmt: skip
    with managing(small) as manager:
        assert manager.rollback(ONE, "1.1.0").version == "1.1.0"
        assert manager.remove(ONE).version == "1.1.0"
    assert governed(small) == empty
    check(small)
    (gone,) = recorded(small, "REMOVED")
    assert (gone["version"], gone["by"]) == ("1.1.0", "tester")
    assert put(small, one(scratch, "1.1.0"))[0].operation == "install"


def test_packages_of_one_operation_come_together_or_not_at_all(small: Path, scratch: Path) -> None:
    def needing(name: str, *others: str) -> bytes:
        needs = [{"package_id": other, "version": ">=1.0.0"} for other in others]
        return packed(scratch, name, "1.0.0", {f"HO1/data/{name}": b"x"}, dependencies=needs)

    third = needing("PKG-C-001", "PKG-B-001", "PKG-A-001")
    second, first = needing("PKG-B-001", "PKG-A-001"), needing("PKG-A-001")
    bad = packed(scratch, "PKG-BAD-001", "1.0.0", {"HOT/elsewhere/x": b"x"})
    assert refused(small, installing(third, first, second, bad)) == "gate_failed"
    found = put(small, third, first, second)
    assert [one.package_id for one in found] == ["PKG-A-001", "PKG-B-001", "PKG-C-001"]
    assert len({one.operation_id for one in found}) == 1
    check(small)
    assert refused(small, lambda manager: manager.remove("PKG-A-001")) == "needed"


def test_a_file_may_come_from_nobody_and_move_between_packages(small: Path, scratch: Path) -> None:
    (small / "HO1/data").mkdir()
    (small / "HO1/data/a.txt").write_bytes(b"a")
    put(small, packed(scratch, ONE, "1.0.0", {"HO1/data/a.txt": b"a", "HO1/data/b.txt": b"b"}))
    put(
        small,
        packed(scratch, ONE, "2.0.0", {"HO1/data/a.txt": b"a"}),
        packed(scratch, "PKG-TWO-001", "1.0.0", {"HO1/data/b.txt": b"other"}),
    )
    assert check(small).owners["HO1/data/b.txt"].package_id == "PKG-TWO-001"


def test_only_so_many_archives_are_kept(small: Path, scratch: Path) -> None:
    config = small / "remit.toml"
    config.write_text(config.read_text() + "\n[packages]\nkeep_versions = 2\n")
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        put(small, one(scratch, version))
    kept = small / f"HOT/installed/{ONE}/archives"
    assert sorted(one.name for one in kept.iterdir()) == ["1.1.0.tar.gz", "1.2.0.tar.gz"]
    with managing(small) as manager:
        manager.rollback(ONE)
    assert refused(small, lambda manager: manager.rollback(ONE, "1.0.0")) == "archive_lost"


def test_restoring_says_what_it_found_and_what_it_left(
    small: Path, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"HO1/data/{name}" for name in ("changed", "folder", "linked", "lost", "pipe")]
    data = packed(scratch, ONE, "1.0.0", dict.fromkeys(paths, b"right"))
    put(small, data)
    changed, folder, linked, lost, pipe = (small / path for path in paths)
    victim = small.parent / "victim"
    victim.write_bytes(b"precious")
    for path in (changed, folder, linked, lost, pipe):
        path.unlink()
    changed.write_bytes(b"other")
    folder.mkdir()
    linked.symlink_to(victim)
    os.mkfifo(pipe)
    command = ["package", "restore", "--root", str(small)]
    with pytest.raises(SystemExit) as left:
        main(command)
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert "1 files were not restored, 4 were" in said
    assert f"{folder} is a folder" in said
    assert {path.read_bytes() for path in (changed, linked, lost, pipe)} == {b"right"}
    assert victim.read_bytes() == b"precious"
    assert not linked.is_symlink()
    folder.rmdir()
    pipe.unlink()
    os.mkfifo(pipe)
    main(command)
    said = capsys.readouterr().out
    assert "HO1/data/folder restored (nothing was there)" in said
    assert "HO1/data/pipe restored (a device, pipe or socket was there)" in said
    check(small)
    (small / "HO1/data").rename(small.parent / "elsewhere")
    (small.parent / "elsewhere/lost").unlink()
    (small / "HO1/data").symlink_to(small.parent / "elsewhere")
    for call in (lambda manager: manager.restore(), installing(data)):
        assert refused(small, call) == "linked_folder"
    assert not (small.parent / "elsewhere/lost").exists()


# -- several processes -----------------------------------------------------------------------


def test_two_installs_at_once_the_second_waits_and_sees(small: Path, scratch: Path) -> None:
    archives = []
    for number in range(4):
        file = scratch / f"{number}.tar.gz"
        files = {f"HO1/data/{number}": b"x", "HO1/data/same.txt": b"%d" % (number // 2)}
        if number % 2:
            del files["HO1/data/same.txt"]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(packed(scratch, f"PKG-P{number}-001", "1.0.0", files))
        archives.append(file)
    command = ("-m", "remit", "package", "install", "--dev", "--root", str(small))
    errors = [file.with_suffix(".err") for file in archives]
    with ExitStack() as stack:
        running = [
            stack.enter_context(Program(*command, str(file), environment=os.environ, errors=told))
            for file, told in zip(archives, errors, strict=True)
        ]
        codes = [one.wait(300) for one in running]
    said = [told.read_text() for told in errors]
    # 0 and 2 want the same file: whoever came second was told so.
    assert sorted((codes[0], codes[2])) == [0, 1]
    assert (codes[1], codes[3]) == (0, 0)
    assert "owns HO1/data/same.txt" in said[0] + said[2]
    assert len(check(small).packages) == 4


def _upgrade_often(root: Path, archives: list[bytes], reads: Semaphore) -> None:
    """One after the other; each is there while it is read, whole, at least once."""
    for data in archives:
        put(root, data)
        while reads.acquire(block=False):
            pass
        for _ in range(2):
            reads.acquire(timeout=60)


def test_a_reader_sees_the_old_or_the_new_and_no_error(small: Path, scratch: Path) -> None:
    versions = [f"1.{number}.0" for number in range(9)]
    archives = [one(scratch, version) for version in versions]
    put(small, archives[0])
    files = InstalledFiles(small)
    forking = multiprocessing.get_context("fork")
    reads = forking.Semaphore(0)
    writer = forking.Process(target=_upgrade_often, args=(small, archives[1:], reads))
    writer.start()
    seen = []
    while writer.is_alive():
        seen.append(files.read("HO1/data/x.txt").decode())
        reads.release()
    writer.join()
    assert writer.exitcode == 0
    seen.append(files.read("HO1/data/x.txt").decode())
    assert seen[-1] == versions[-1]
    assert list(dict.fromkeys(seen))[-8:] == versions[1:]
    assert set(seen) <= set(versions)
    with pytest.raises(NotInstalledError):
        files.read("HO1/data/only-1.0.0.txt")


# -- PostgreSQL, and roots that share a ledger -------------------------------------------------


@pytest.fixture
def shared(postgres: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Two roots on one ledger; the second has the first one's package key."""
    config = f'[ledger]\npath = "{postgres.database()}"\n'
    first = small_root(tmp_path / "first", tmp_path / "scratch", config)
    return first, tmp_path / "second"


def follow(first: Path, second: Path, scratch: Path) -> Path:
    config = (first / "remit.toml").read_text()
    keys = second / "HOT/keys"
    keys.mkdir(parents=True)
    for file in (first / "HOT/keys").iterdir():
        (keys / file.name).write_bytes(file.read_bytes())
        (keys / file.name).chmod(0o600)
    return small_root(second, scratch, config)


def test_two_roots_on_one_ledger(shared: tuple[Path, Path], scratch: Path) -> None:
    first, second = shared
    put(first, one(scratch))
    follow(first, second, scratch)
    code = refused(second, lambda manager: manager.remove("PKG-WORLD-001"))
    assert code in ("gate_failed", "needed"), "it has not followed yet"
    put(second, one(scratch))
    with managing(second) as manager:
        manager.restore()
        agreed(second, manager._ledger)
    assert (
        governed(second).items()
        >= {
            key: value for key, value in governed(first).items() if not key.startswith("HOT/keys")
        }.items()
    )
    # The first upgrades; the second knows from the ledger, refuses to build on old files, follows.
    new = one(scratch, "2.0.0")
    put(first, new)
    other = packed(scratch, "PKG-TWO-001", "1.0.0", {"HO1/data/two": b"2"})
    assert refused(second, installing(other)) == "gate_failed"
    assert InstalledFiles(second).read("HO1/data/x.txt") == b"1.0.0", "old, but complete"
    put(second, new)
    with managing(second) as manager:
        changed = manager.restore()
        agreed(second, manager._ledger)
    assert sorted(changed) == [
        "HO1/data/only-1.0.0.txt", "HO1/data/x.txt",
    ]  # fmt: skip
    with managing(first) as manager:
        manager.remove(ONE)
    with managing(second) as manager:
        manager.restore()
        agreed(second, manager._ledger)
    assert not (second / "HO1/data").exists()


def test_another_machines_record_stops_operations(shared: tuple[Path, Path], scratch: Path) -> None:
    first, second = shared
    follow(first, second, scratch)
    mine = packed(scratch, "PKG-TWO-001", "1.0.0", {"HO1/data/two": b"2"})
    theirs = one(scratch)

    def meddle(step: str) -> None:
        if step == "record":
            put(second, theirs)

    with managing(second) as manager:
        manager.restore()
    before = tree(first)
    with managing(first, meddle) as manager, pytest.raises(PackageError) as caught:
        manager.install([IncomingArchive(mine)], dev=True)
    assert caught.value.code == "registry_moved"
    assert tree(first) == before
    with opened(first) as ledger:
        assert set(Registry.from_ledger(ledger).packages) == {"PKG-WORLD-001", ONE}


def test_killed_on_postgresql(shared: tuple[Path, Path], scratch: Path) -> None:
    first, _ = shared
    put(first, one(scratch))
    for step, tried, version in (
        ("record", "2.0.0", "1.0.0"),
        ("place", "2.0.0", "2.0.0"),
        ("drop", "3.0.0", "3.0.0"),
    ):
        child = os.fork()
        if child == 0:
            with managing(
                first, lambda now, at=step: now.startswith(at) and os._exit(9)
            ) as manager:
                manager.install([IncomingArchive(one(scratch, tried))], dev=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert list(first.joinpath("HOT/installed/.journal").iterdir())
        with managing(first) as manager:
            manager.recover()
            assert agreed(first, manager._ledger).packages[ONE].version == version


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs tar")
def test_signed_packages(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Digest and signature are of the canonical form, and that is what is kept; a threshold that
    rose since stops neither rollback nor restoring."""
    key = stage.key("trusted")
    first, second = (
        Path(stage.sign(archive, key)) for archive in (stage.policy(), stage.policy("2.0.0"))
    )
    canonical = first.read_bytes()
    folder = first.parent / "PKG-MINE-001-1.0.0"
    subprocess.run(["tar", "czf", str(first), "."], cwd=folder, check=True)
    assert first.read_bytes() != canonical
    for archive in (first, second):
        stage.run(["install", str(archive), "--approve"])
    kept = stage.root / "HOT/installed/PKG-MINE-001/archives/1.0.0.tar.gz"
    assert kept.read_bytes() == canonical
    stage.key("another")
    stage.run(["trust", "threshold", "2"])
    stage.run(["rollback", "PKG-MINE-001"])
    (stage.root / "HOT/policy/mine.md").unlink()
    shipped = stage.root / "HOT/config/defaults.toml"
    shipped.write_bytes(shipped.read_bytes() + b"# more\n")
    stage.run(["restore"])
    check(stage.root)
    capsys.readouterr()
    main(["package", "list", "--root", str(stage.root)])
    _, *names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:2] == ["PKG-MINE-001", "PKG-ADMIN-001"], "one's own are listed first"
    assert names[1:] == sorted(names[1:])
