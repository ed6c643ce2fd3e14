"""``remit bootstrap`` as a person runs it, from an installation of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from remit.packages import IncomingArchive, PackageError, read_bundle
from remit.packages.bootstrap import in_install_order
from remit.packages.distribution import Distribution
from tests.packages.bootstrap.making import ORDER, packages, unpacked
from tests.packages.making import LIMITS


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


def test_no_machine_user_or_installation_shows_in_its_bytes(
    from_source: Distribution, placed: Distribution, tmp_path: Path
) -> None:
    """Elsewhere, by another process with another environment, from another installation."""
    here = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LANG": "C"}
    ran = _run(
        from_source, tmp_path, "build", "--out", "one.tar.gz", "--json", variables=here, umask=0
    )
    assert ran.returncode == 0, ran.stderr
    built = json.loads(ran.stdout)
    data = (tmp_path / "one.tar.gz").read_bytes()
    assert built["sha256"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert built["bytes"] == len(data)
    assert "PKG-GENESIS-000" in {one["package_id"] for one in built["packages"]}
    there = {"TZ": "America/Lima", "PYTHONHASHSEED": "2", "LANG": "tr_TR.UTF-8"}
    there |= {"SOURCE_DATE_EPOCH": "1700000000"}
    out = str(tmp_path / "two")
    ran = _run(placed, Path("/"), "build", "--out", out, variables=there, umask=0o077)
    assert ran.stdout.strip() == built["sha256"]
    assert (tmp_path / "two").read_bytes() == data
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.tar.gz", "two"]


# -- What a bootstrap brings is found in the order of its dependencies, on any machine -----------


_WORDS = ["APPLE", "BANANA", "CHERRY", "DATE", "ELDER", "FIG"]


def test_packages_are_found_in_order(bundle: tuple[bytes, dict[str, Any]], tmp_path: Path) -> None:
    top = unpacked(bundle[0], tmp_path / "unpacked") / "packages"
    files = [f"PKG-{word}-001-1.0.0.tar.gz" for word in ORDER]
    assert list(in_install_order(packages(), LIMITS)) == files
    (top / "PKG-DATE-001-1.0.0.intoto.json").write_bytes(b"signed")
    found = read_bundle(top, LIMITS)
    assert found == [
        IncomingArchive((top / name).read_bytes(), b"signed" if "DATE" in name else b"")
        for name in files
    ]
    with pytest.raises(PackageError) as caught:
        read_bundle(top, LIMITS.model_copy(update={"compressed_bytes": 100}))
    assert caught.value.code == "archive_too_large"
    (top / files[1]).write_bytes(b"damaged")
    with pytest.raises(PackageError):
        read_bundle(top, LIMITS)
    with pytest.raises(PackageError, match="No such file") as missing:
        read_bundle(tmp_path / "no", LIMITS)
    assert "packages/" in missing.value.next_step


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_graph_comes_in_one_order(data: st.DataObject) -> None:
    needs: dict[str, list[str]] = {}
    for word in data.draw(st.permutations(_WORDS)):
        needs[word] = data.draw(st.lists(st.sampled_from(sorted(needs) or [""]), unique=True))
        needs[word] = [one for one in needs[word] if one]
    archives = packages(needs)
    ordered = in_install_order(archives, LIMITS)
    shuffled = dict(data.draw(st.permutations(sorted(archives.items()))))
    assert list(in_install_order(shuffled, LIMITS)) == list(ordered)
    seen: set[str] = set()
    for manifest in ordered.values():
        assert {need.package_id for need in manifest.dependencies} <= seen
        seen.add(manifest.package_id)
    assert len(seen) == len(_WORDS)
