"""Reading governed files: no link is followed, nothing outside is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit.packages import PackageError
from remit.packages.checks import RootDisk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path in (
        "HOT/specs/a.json",
        "HO1/contracts/b.json",
        "HOT/keys/k.pem",
        "HOT/installed/PKG-X-001/receipt.json",
        "HOT/registries/packages.json",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "remit.toml").write_text("")
    return root


def test_only_governed_files_are_listed(root: Path) -> None:
    disk = RootDisk(root)
    assert list(disk.walk()) == [("HO1/contracts/b.json", ""), ("HOT/specs/a.json", "")]
    assert disk.read("HOT/specs/a.json") == b"HOT/specs/a.json"
    assert disk.read("HOT/registries/packages.json") == b"HOT/registries/packages.json"
    assert disk.names("HOT/installed") == ["PKG-X-001"]
    assert disk.names("HOT/nowhere") == []


def test_a_ledger_below_a_tier_is_not_governed_and_nothing_that_only_begins_like_it(
    root: Path,
) -> None:
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-evil"):
        (root / "HOT" / name).write_text("x")
    for ledger_path in ("HOT/ledger.db", str(root / "HOT/ledger.db")):
        found = RootDisk(root, ledger_path=ledger_path).walk()
        assert [path for path, _ in found if "ledger" in path] == ["HOT/ledger.db-evil"]
    for elsewhere in ("ledger.db", "postgresql://host/db", "../ledger.db", ""):
        found = RootDisk(root, ledger_path=elsewhere).walk()
        assert len([path for path, _ in found if "ledger" in path]) == 4


def test_links_and_pipes_are_found_and_never_read(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "HOT/specs/link.json").symlink_to(outside / "secret")
    (root / "HO1/linked").symlink_to(outside)
    (root / "HO2").symlink_to(outside)
    os.mkfifo(root / "HO1/pipe")
    disk = RootDisk(root)
    assert {path: problem for path, problem in disk.walk() if problem} == {
        "HO1/linked": "is a link",
        "HO1/pipe": "is neither a file nor a folder",
        "HO2": "is a link",
        "HOT/specs/link.json": "is a link",
    }
    for path in ("HOT/specs/link.json", "HO1/linked/secret", "HO2/secret", "HO1/pipe",
                 "HO1/contracts", "/etc/passwd", "HOT/../../outside/secret", ""):  # fmt: skip
        with pytest.raises(PackageError) as caught:
            disk.read(path)
        assert caught.value.code in ("unsafe_file", "unreadable_file")
        assert caught.value.next_step
    with pytest.raises(FileNotFoundError):
        disk.read("HO1/contracts/none.json")
    with pytest.raises(FileNotFoundError):
        disk.read("HO1/contracts/b.json/below")


def test_files_are_read_as_they_would_be(root: Path) -> None:
    overlay = RootDisk(
        root,
        added={"HOT/specs/a.json": b"new", "HO2/agents/c.json": b"added"},
        removed=["HO1/contracts/b.json", "HOT/specs/a.json"],
    )
    assert overlay.read("HOT/specs/a.json") == b"new"
    assert overlay.read("HO2/agents/c.json") == b"added"
    assert overlay.read("HOT/keys/k.pem") == b"HOT/keys/k.pem"
    with pytest.raises(FileNotFoundError):
        overlay.read("HO1/contracts/b.json")
