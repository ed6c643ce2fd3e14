"""A file is replaced whole and durably, or stays as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from remit.kernel.files import replacing


def test_the_file_is_on_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("old")
    seen: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        seen.append((f"sync {kind}", place.read_text()))
        sync(handle)

    def renamed(one: Path, other: Path) -> None:
        seen.append(("rename", place.read_text()))
        replace(one, other)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(place, 0o640) as file:
        file.write(b"new")
    assert seen == [("sync file", "old"), ("rename", "old"), ("sync folder", "new")]
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_after_an_error_the_old_file_stays_alone(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("old")
    (tmp_path / ".file.new").write_text("of a process that was killed")
    with pytest.raises(ValueError, match="wrong"), replacing(place) as file:
        file.write(b"new")
        raise ValueError("wrong")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
