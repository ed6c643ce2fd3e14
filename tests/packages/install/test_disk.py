"""Disks that are really full or read-only, and a second process that holds the lock."""

from __future__ import annotations

import os

import pytest

from tests.packages.hostile import Stage, busy, can_mount, full_disk, read_only
from tests.packages.install.world import agreed, entries, governed, managing, tree

mounting = pytest.mark.skipif(not can_mount(), reason="may not mount")


def test_a_process_that_waits_too_long_changes_nothing(stage: Stage) -> None:
    before = tree(stage.root)
    done = busy(stage)
    assert done.returncode == 1
    assert f"Another process ({os.getpid()})" in done.stderr
    assert "next: Wait for that process" in done.stderr
    assert tree(stage.root) == before


@mounting
def test_a_read_only_disk(stage: Stage) -> None:
    before, count = tree(stage.root), entries(stage.root)
    done = read_only(stage)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr
    assert (tree(stage.root), entries(stage.root)) == (before, count)


@mounting
@pytest.mark.parametrize("free_kb", [8, 500, 836, 854, 1500])
def test_a_full_disk(stage: Stage, free_kb: int) -> None:
    """Full for the ledger's log, at staging, at the entry, after the entry, and not full.

    The numbers are for a file of 400 KiB, which is there twice, itself and in its archive. Where
    the disk counts otherwise another step fails; what has to hold then is the same.
    """
    before = governed(stage.root)
    done, root = full_disk(stage, free_kb)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Remit itself failed" not in done.stderr, done.stderr
    recorded = done.returncode == 0 or "is recorded, but its files" in done.stderr
    assert recorded or "error: " in done.stderr
    assert done.returncode == 0 or "next: " in done.stderr
    with managing(root) as manager:
        manager.recover()
        registry = agreed(root, manager._ledger)
    assert ("PKG-MINE-001" in registry.packages) == recorded
    assert (root / "HOT/policy/mine.md").exists() == recorded
    if not recorded:
        assert governed(root) == before
