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
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.cli.operations import bootstrap
from remit.packages import IncomingArchive, PackageError, read_bundle
from remit.packages.bootstrap import in_install_order
from remit.packages.checks import Finding
from remit.packages.distribution import Distribution
from remit.packages.gates import GateReport, GateResult
from tests.packages.bootstrap.making import ORDER, package, packages, unpacked
from tests.packages.making import LIMITS
from tests.support.commands import run_remit


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


def test_installing_needs_a_root_and_packages(tmp_path: Path) -> None:
    words = ("bootstrap", "install", "--packages", tmp_path)
    ran = run_remit(*words)
    assert (ran.returncode, "--root DIR" in ran.stderr) == (2, True)
    assert run_remit(*words, "--root", tmp_path / "r").returncode == 1
    assert not (tmp_path / "r").exists()


def test_receipts_and_gates_are_shown(
    bundle: tuple[bytes, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = list(in_install_order({"apple": package("APPLE", [])}, LIMITS).values())
    fine = GateResult("G1", True, "fine")
    bad = GateResult("G4", False, "a case fails", (Finding("case x", ""),))
    packages = unpacked(bundle[0], tmp_path) / "packages"
    words = ["install", "--packages", str(packages), "--root", str(tmp_path / "r")]
    for done, gates, code in (
        (installed, (fine, bad), 1), (installed, (fine,), 0), ([], (fine,), 1), (installed, (), 1)
    ):  # fmt: skip
        report = (done, GateReport(gates))
        monkeypatch.setattr(
            "remit.runtime.installation.install_bootstrap", lambda *_, report=report, **__: report
        )
        ran = CliRunner().invoke(bootstrap, words)
        assert ran.exit_code == code, ran.output
        found = json.loads(CliRunner().invoke(bootstrap, [*words, "--json"]).stdout)
        assert found["passed"] is (code == 0)
        if len(gates) == 2:
            assert [line.split() for line in ran.stdout.splitlines()] == [
                ["passed:", "no"],
                ["receipts:"],
                ["package_id", "version", "receipt"],
                ["PKG-APPLE-001", "1.0.0", "HOT/installed/PKG-APPLE-001/receipt.json"],
                ["gates:"],
                ["gate", "passed", "message", "errors"],
                ["G1", "yes", "fine", "-"],
                ["G4", "no", "a", "case", "fails", "case", "x"],
            ]
            assert found["gates"][1] == {
                "gate": "G4", "passed": False, "message": "a case fails", "errors": ["case x"],
            }  # fmt: skip
            assert found["receipts"][0]["package_id"] == "PKG-APPLE-001"


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


@pytest.mark.parametrize(
    ("archives", "said"),
    [
        (packages({"APPLE": ["FIG"], "FIG": ["APPLE"]}), "circle"),
        (packages({"APPLE": ["FIG"]}), "PKG-FIG-001"),
        (
            {"one.tar.gz": package("APPLE", []), "two.tar.gz": package("APPLE", [])},
            r"one\.tar\.gz and two\.tar\.gz",
        ),
        ({}, "No packages"),
    ],
)
def test_what_cannot_be_ordered_is_refused(archives: dict[str, bytes], said: str) -> None:
    with pytest.raises(PackageError, match=said) as caught:
        in_install_order(archives, LIMITS)
    assert caught.value.next_step
