"""``CP_BOOTSTRAP.tar.gz``: what is in it, and that it is made in one way."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.packages.bootstrap.making import ORDER, packages, unpacked


def test_it_holds_a_root_in_one_form(bundle: tuple[bytes, dict[str, Any]], tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(bundle[0])) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == [
        "BOOTSTRAP_MANIFEST.json",
        "INSTALL.md",
        "README.md",
        "install.sh",
        *(f"packages/{name}" for name in sorted(packages())),
        next(path for path in (one["path"] for one in bundle[1]["files"]) if path.endswith(".whl")),
    ]
    for member in members:
        assert member.isreg()
        assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
        assert (member.uname, member.gname) == ("", "")
        assert member.mode == (0o755 if member.name == "install.sh" else 0o644)
    assert bundle[0][3:9] == bytes(6)  # gzip: no name, no time
    top = unpacked(bundle[0], tmp_path)
    manifest = json.loads((top / "BOOTSTRAP_MANIFEST.json").read_text())
    assert manifest["remit_version"] == bundle[1]["remit_version"]
    files = {one["path"]: one for one in manifest["files"]}
    assert set(files) == {member.name for member in members[1:]}
    for path, stated in files.items():
        data = (top / path).read_bytes()
        assert stated["sha256"] == hashlib.sha256(data).hexdigest()
        assert stated["bytes"] == len(data)
    ids = [one["package_id"] for one in manifest["packages"]]
    assert ids == [f"PKG-{word}-001" for word in ORDER]
    assert {one["archive"] for one in manifest["packages"]} <= set(files)
    for name in ("README.md", "INSTALL.md", "install.sh"):
        text = (top / name).read_text()
        assert bundle[1]["remit_version"] in text
        assert not re.search(r"@[A-Z]+@", text)
    for option in re.findall(r"(?m)^  (--[a-z-]+)", (top / "install.sh").read_text()):
        assert option == "--help" or f"`{option}" in (top / "INSTALL.md").read_text()


# -- ``install.sh``: what it says when it cannot go on. A full run needs every library -----------


_SHELLS = [one for one in ("dash", "bash", "busybox") if shutil.which(one)] or ["sh"]


@pytest.fixture(params=_SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


@pytest.fixture
def top(bundle: tuple[bytes, dict[str, Any]], tmp_path: Path) -> Path:
    return unpacked(bundle[0], tmp_path / "un packed")


def _run(
    shell: list[str], top: Path, *options: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    # Whatever python3 is on PATH, the one that runs the tests is new enough.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [*shell, str(top / "install.sh"), *options],
        env={**environment, **(variables or {})},
        cwd=top.parent,
        capture_output=True,
        text=True,
    )


def test_files_that_are_not_as_packed_stop_it(top: Path) -> None:
    date, manifest = top / "packages/PKG-DATE-001-1.0.0.tar.gz", top / "BOOTSTRAP_MANIFEST.json"
    extra, wheel = top / "packages/PKG-EXTRA-001-1.0.0.tar.gz", next(top.glob("*.whl"))
    for file, data, said in (
        (date, date.read_bytes() + b"x", f"packages/{date.name} is not the file that was packed"),
        (wheel, None, ".whl cannot be read: No such file"),
        (manifest, None, "BOOTSTRAP_MANIFEST.json cannot be read"),
        (manifest, b"{}", "BOOTSTRAP_MANIFEST.json is damaged"),
        (manifest, b'{"files": []}', "does not name install.sh"),
        (extra, b"", "PKG-EXTRA-001-1.0.0.tar.gz is not in the manifest"),
    ):
        before = file.read_bytes() if file.exists() else None
        file.unlink() if data is None else file.write_bytes(data)
        ran = _run(["sh"], top, "--root", "r")
        assert ran.returncode == 1
        assert said in ran.stderr
        assert "Unpack CP_BOOTSTRAP.tar.gz again" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert not (top.parent / "r").exists()
        file.unlink() if before is None else file.write_bytes(before)
    ran = _run(["sh"], top, "--root", "r", "--wheelhouse", "no such")
    assert ran.returncode == 1
    assert "There is no directory no such" in ran.stderr


def test_another_directory_is_not_made_an_environment(shell: list[str], top: Path) -> None:
    other = top.parent / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    ran = _run(shell, top, "--root", "r", "--venv", "other")
    assert ran.returncode == 1
    assert "other is not empty, and not a virtual environment" in ran.stderr
    assert [one.name for one in other.iterdir()] == ["mine.txt"]
