"""Reading of regular files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit.kernel.durable_files import read_regular


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
