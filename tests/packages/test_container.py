"""The deterministic container alone, as others than packages use it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.settings import default_settings, load_settings
from remit.packages import ArchiveError, ArchiveLimits, PackError, pack, read_archive
from remit.packages.tarball import canonical_targz
from tests.packages.making import FILES, directory_of

NAMES = st.from_regex(r"[a-z]{1,40}(/[a-zA-Z0-9._-]{1,60}){0,2}", fullmatch=True)


@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=3000), st.sampled_from([0o644, 0o755]))))
def test_what_is_written_is_what_a_library_reads(
    items: dict[str, tuple[bytes, int]],
) -> None:
    def made() -> bytes:
        return canonical_targz((name, data, mode) for name, (data, mode) in items.items())

    data = made()
    assert data == made()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        members = tar.getmembers()
        assert [one.name for one in members] == list(items)
        for one in members:
            content, mode = items[one.name]
            stream = tar.extractfile(one)
            assert stream is not None
            assert stream.read() == content
            assert (one.mode, one.uid, one.gid, one.mtime, one.uname) == (mode, 0, 0, 0, "")


@pytest.mark.parametrize("name", ["a" * 101, "a" * 156 + "/b", "a/" + "b" * 101])
def test_a_path_that_no_header_holds_is_refused(name: str) -> None:
    with pytest.raises(PackError) as caught:
        canonical_targz([("README.md", b"", 0o644), (name, b"", 0o644)])
    assert caught.value.code == "path_too_long"


def test_the_shipped_limits_let_a_package_through(tmp_path: Path) -> None:
    limits = ArchiveLimits.from_settings(default_settings().packages)
    data = pack(directory_of(tmp_path / "p"))
    assert read_archive(io.BytesIO(data), limits).files == FILES
    flags = {"packages.compressed_bytes": len(data) - 1}
    tight = ArchiveLimits.from_settings(load_settings(flags=flags).settings.packages)
    with pytest.raises(ArchiveError) as caught:
        read_archive(io.BytesIO(data), tight)
    assert caught.value.code == "archive_too_large"
