"""The wheel made of an installation."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from remit.packages import PackageError
from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import INFO, copy_project, editable, regular


def test_an_editable_and_a_regular_installation_give_the_same_bytes(
    from_source: Distribution, placed: Distribution
) -> None:
    assert not placed.editable
    assert repack_wheel(from_source) == repack_wheel(placed)


def test_it_is_written_in_one_way(placed: Distribution) -> None:
    name, data = repack_wheel(placed)
    assert name == f"remit-{placed.version}-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        members = archive.infolist()
    names = [member.filename for member in members]
    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    assert {member.external_attr >> 16 for member in members} == {0o100644}
    assert names[-1] == f"{INFO}/RECORD"
    assert [one for one in names if one.startswith("remit-")] == [
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/entry_points.txt",
        f"{INFO}/licenses/LICENSE",
        f"{INFO}/RECORD",
    ]
    assert not [one for one in names if one.endswith(".pyc")]


def test_dirt_beside_the_source_is_left_out(own_source: Distribution) -> None:
    before = repack_wheel(own_source)
    (own_source.location / ".errors.py.swp").write_bytes(b"dirt")
    (own_source.location / "__pycache__").mkdir(exist_ok=True)
    (own_source.location / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"dirt")
    assert repack_wheel(own_source) == before
    (own_source.location / "kernel/errors.py").write_text("changed = True\n")
    assert repack_wheel(own_source) != before


def test_nothing_is_made_of_a_changed_installation(copied: Distribution) -> None:
    (copied.location / "kernel/errors.py").write_bytes(b"")
    with pytest.raises(PackageError, match=r"errors\.py has the hash") as caught:
        repack_wheel(copied)
    assert caught.value.next_step


def test_older_metadata_is_refused(own_source: Distribution) -> None:
    version = own_source.location / "_version.py"
    version.write_text(version.read_text().replace(own_source.version, "99.0.0"))
    with pytest.raises(PackageError, match=r"has version '99\.0\.0'"):
        repack_wheel(own_source)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"aiohttp>=3.11"', '"aiohttp>=3.12"', "dependencies"),
        ("parquet = [", "another = [", "extras"),
    ],
)
def test_older_requirements_are_refused(
    own_source: Distribution, tmp_path: Path, old: str, new: str, what: str
) -> None:
    path = tmp_path / "project" / "pyproject.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(PackageError, match=f"names other {what}") as caught:
        repack_wheel(own_source)
    assert "pip install" in caught.value.next_step


def test_what_is_for_one_system_is_refused(tmp_path: Path, small_project: Path) -> None:
    made = editable(tmp_path, small_project)
    assert made.info is not None
    for name in ("WHEEL", "RECORD"):
        path = made.info / name
        text = path.read_text().replace("py3-none-any", "cp311-cp311-linux_x86_64")
        if name == "RECORD":
            text = "".join(one for one in text.splitlines(True) if "/WHEEL," not in one)
            text += f"{INFO}/WHEEL,sha256={_digest(made.info / 'WHEEL')},\n"
        path.write_text(text)
    with pytest.raises(PackageError, match="py3-none-any"):
        repack_wheel(made)


def _digest(path: Path) -> str:
    raw = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_the_build_backend_makes_a_wheel_of_the_same_files(tmp_path: Path) -> None:
    """Its own wheel differs in how it is packed, never in what is in it."""
    pytest.importorskip("hatchling")
    project = copy_project(tmp_path / "project")
    subprocess.run(
        [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet",
         "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path),
         str(project)],
        check=True,
    )  # fmt: skip
    built = next(tmp_path.glob("*.whl"))
    (tmp_path / "scratch").mkdir()
    placed = regular(tmp_path / "site", (built.name, built.read_bytes()), tmp_path / "scratch")
    assert placed.problems() == []
    with (
        zipfile.ZipFile(built) as theirs,
        zipfile.ZipFile(io.BytesIO(repack_wheel(placed)[1])) as ours,
    ):
        assert set(theirs.namelist()) == set(ours.namelist())
        for name in ours.namelist():
            if not name.endswith("/RECORD"):
                assert ours.read(name) == theirs.read(name)
