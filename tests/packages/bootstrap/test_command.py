"""``remit bootstrap`` as a person runs it, from an installation of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import regular


def _run(
    source: Distribution,
    directory: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    umask: int = 0o022,
) -> subprocess.CompletedProcess[str]:
    assert source.info is not None
    paths = [source.location.parent, source.info.parent]
    environment = {**os.environ, **(variables or {})}
    return subprocess.run(
        [sys.executable, "-m", "remit", "bootstrap", *arguments],
        env={**environment, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=directory,
        umask=umask,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory, installed: Distribution) -> Distribution:
    scratch = tmp_path_factory.mktemp("placed")
    return regular(scratch / "site", repack_wheel(installed), scratch)


def test_no_machine_user_or_installation_shows_in_its_bytes(
    installed: Distribution, placed: Distribution, tmp_path: Path
) -> None:
    """Elsewhere, by another process with another environment, from another installation."""
    here = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LANG": "C"}
    ran = _run(
        installed, tmp_path, "build", "--out", "one.tar.gz", "--json", variables=here, umask=0
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    data = (tmp_path / "one.tar.gz").read_bytes()
    assert told["sha256"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert told["bytes"] == len(data)
    assert "PKG-GENESIS-000" in {one["package_id"] for one in told["packages"]}
    there = {"TZ": "America/Lima", "PYTHONHASHSEED": "2", "LANG": "tr_TR.UTF-8"}
    there |= {"SOURCE_DATE_EPOCH": "1700000000"}
    out = str(tmp_path / "two")
    ran = _run(placed, Path("/"), "build", "--out", out, variables=there, umask=0o077)
    assert ran.stdout.strip() == told["sha256"]
    assert (tmp_path / "two").read_bytes() == data
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.tar.gz", "two"]


def test_what_cannot_be_built_leaves_nothing(placed: Distribution, tmp_path: Path) -> None:
    ran = _run(placed, tmp_path, "build", "--out", "/dev/null/file")
    assert ran.returncode == 1
    assert "/dev/null/file cannot be written" in ran.stderr
    source = placed.location / "kernel/errors.py"
    before = source.read_bytes()
    source.write_bytes(before + b"\n")
    try:
        ran = _run(placed, tmp_path, "build", "--out", "file")
    finally:
        source.write_bytes(before)
    assert ran.returncode == 1
    assert "remit/kernel/errors.py has" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_installing_needs_a_root_and_packages(placed: Distribution, tmp_path: Path) -> None:
    ran = _run(placed, tmp_path, "install", "--packages", ".")
    assert ran.returncode == 2
    assert "--root DIR" in ran.stderr
    ran = _run(placed, tmp_path, "install", "--packages", ".", "--root", "r")
    assert ran.returncode == 1
    assert not (tmp_path / "r").exists()
