"""Reading of regular files, and locks between open files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from remit.kernel.durable_files import read_regular, take_lock


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"content")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert read_regular(file) == b"content"
    assert read_regular(link, follow=True) == b"content"
    for place in (link, pipe, tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError):
            read_regular(place)


def test_a_lock_is_taken_once_and_ends_with_its_file(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert take_lock(first, fcntl.LOCK_EX, 0)
        assert not take_lock(second, fcntl.LOCK_SH, 0.01, 0.001)
        os.close(first)
        assert take_lock(second, fcntl.LOCK_EX, 0)
    finally:
        os.close(second)
