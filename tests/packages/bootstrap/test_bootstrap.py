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
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.cli.bootstrap import bootstrap
from remit.packages import IncomingArchive, PackageError, build_bundle, read_bundle
from remit.packages.bootstrap import in_install_order
from remit.packages.checks import Finding
from remit.packages.distribution import Distribution
from remit.packages.gates import GateReport, GateResult
from tests.packages.bootstrap.making import ORDER, package, packages, unpacked
from tests.packages.distribution.placing import INFO
from tests.packages.making import LIMITS


def test_it_holds_what_a_root_needs_in_one_form(
    bundle: tuple[bytes, dict[str, Any]], tmp_path: Path
) -> None:
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


def test_what_is_no_wheel_is_refused() -> None:
    for data in (b"", b"no wheel", bytes(100)):
        with pytest.raises(PackageError, match="does not state its version"):
            build_bundle(("remit.whl", data), packages(), LIMITS)


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
        ({}, "no packages"),
    ],
)
def test_what_cannot_be_ordered_is_refused(archives: dict[str, bytes], said: str) -> None:
    with pytest.raises(PackageError, match=said) as caught:
        in_install_order(archives, LIMITS)
    assert caught.value.next_step


# -- ``remit bootstrap`` as a person runs it, from an installation of its own --------------------


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


def test_installing_needs_a_root_and_packages(placed: Distribution, tmp_path: Path) -> None:
    ran = _run(placed, tmp_path, "install", "--packages", ".")
    assert ran.returncode == 2
    assert "--root DIR" in ran.stderr
    ran = _run(placed, tmp_path, "install", "--packages", ".", "--root", "r")
    assert ran.returncode == 1
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
            assert ran.stdout.splitlines() == [
                "PKG-APPLE-001  1.0.0  HOT/installed/PKG-APPLE-001/receipt.json",
                "ok    G1: fine",
                "FAIL  G4: a case fails",
                "      case x",
                "1 packages installed, gates 1/2",
            ]
            assert found["gates"][1] == {
                "gate": "G4", "passed": False, "message": "a case fails", "errors": ["case x"],
            }  # fmt: skip
            assert found["receipts"][0]["package_id"] == "PKG-APPLE-001"


# -- ``install.sh``: what it says when it cannot go on. A full run needs every library -----------


_SHELLS = [one for one in ("dash", "bash", "busybox") if shutil.which(one)] or ["sh"]


@pytest.fixture(params=_SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


@pytest.fixture
def top(bundle: tuple[bytes, dict[str, Any]], tmp_path: Path) -> Path:
    return unpacked(bundle[0], tmp_path / "un packed")


def _run_install_script(
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


def test_wrong_use_and_help(shell: list[str], top: Path) -> None:
    for options, said in (
        (["--bogus"], "There is no option --bogus"),
        (["extra"], "There is no option extra"),
        (["--dev=1", "--root", "r"], "There is no option --dev=1"),
        (["--root"], "--root needs a value"),
        (["--root="], "--root needs a value"),
        (["--dev"], "--root DIR is missing"),
    ):
        ran = _run_install_script(shell, top, *options)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert "--help" in ran.stderr
        assert [one.name for one in top.parent.iterdir()] == [top.name]
    ran = _run_install_script(shell, top, "--help")
    assert ran.returncode == 0
    assert "--wheelhouse DIR" in ran.stdout


def test_an_old_python_is_not_used(shell: list[str], top: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python3", "python3.11", "python"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")  # what an older one answers
        (tools / name).chmod(0o755)
    for name in ("dash", "bash", "busybox", "sh", "cat", "dirname"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    ran = _run_install_script(shell, top, "--root", "r", variables={"PATH": str(tools)})
    assert ran.returncode == 1
    assert "needs Python 3.11 or newer" in ran.stderr
    assert "--python" in ran.stderr
    ran = _run_install_script(shell, top, "--root", "r", "--python", str(tools / "python3"))
    assert "is not a Python 3.11 or newer" in ran.stderr
    assert not (tmp_path / "r").exists()


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
        ran = _run_install_script(["sh"], top, "--root", "r")
        assert ran.returncode == 1
        assert said in ran.stderr
        assert "Unpack CP_BOOTSTRAP.tar.gz again" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert not (top.parent / "r").exists()
        file.unlink() if before is None else file.write_bytes(before)
    ran = _run_install_script(["sh"], top, "--root", "r", "--wheelhouse", "no such")
    assert ran.returncode == 1
    assert "There is no directory no such" in ran.stderr


def test_another_directory_is_not_made_an_environment(shell: list[str], top: Path) -> None:
    other = top.parent / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    ran = _run_install_script(shell, top, "--root", "r", "--venv", "other")
    assert ran.returncode == 1
    assert "other is not empty, and not a virtual environment" in ran.stderr
    assert [one.name for one in other.iterdir()] == ["mine.txt"]


def test_an_editable_installation_is_not_replaced(top: Path) -> None:
    venv = top.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    info = next(venv.glob("lib/python*/site-packages")) / INFO
    info.mkdir()
    (info / "METADATA").write_text("Name: remit\nVersion: 0.1.0\n")
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///x"}')
    ran = _run_install_script(["sh"], top, "--root", "r", variables={"VIRTUAL_ENV": str(venv)})
    assert ran.returncode == 1
    assert "has an editable installation of Remit" in ran.stderr
    shutil.rmtree(info)
    ran = _run_install_script(["sh"], top, "--root", "r", variables={"VIRTUAL_ENV": str(venv)})
    assert ran.returncode == 1
    assert f"{venv} has no pip" in ran.stderr
    assert "ensurepip" in ran.stderr


def test_without_a_network_it_says_what_to_bring(top: Path) -> None:
    """The environment that it made is left, and the next run goes on with it."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    nowhere |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    ran = _run_install_script(["sh"], top, "--root", "new root", variables=nowhere)
    assert ran.returncode == 1
    assert "pip download --dest wheelhouse" in ran.stderr
    venv = top.parent / "new root" / "venv"
    assert not (venv / ".remit-install").exists()
    (top / "wheelhouse").mkdir()
    ran = _run_install_script(["sh"], top, "--root", "new root", variables=nowhere)
    assert ran.returncode == 1
    assert "wheelhouse does not have all that Remit needs" in ran.stderr
    assert "Making a virtual environment" not in ran.stderr
