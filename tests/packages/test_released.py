"""Packages that were shipped before: their content is final, and what replaced them installs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient
from remit.packages import Archive, IncomingArchive, Registry
from remit.packages.gates import check_gates
from remit.runtime import make_root
from remit.runtime.installation import gate_context, install_bootstrap
from tests.packages.install.world import opened
from tests.packages.refresh import record_versions
from tests.packages.shipped import RECORD, SHIPPED, manifests, read_versions
from tests.upgrade.conftest import unpack


def test_the_content_of_a_version_never_changes() -> None:
    recorded = read_versions(RECORD.read_bytes())
    changed = [
        f"{name} {manifest.version}"
        for name, manifest in manifests().items()
        if recorded.get(name, {}).get(manifest.version)
        != [Archive.from_directory(SHIPPED / name).digest]
    ]
    assert changed == [], f"Run `make packages`, which raises the versions of {changed}."


def test_make_packages_raises_the_version_of_what_changed_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    packages, file = tmp_path / "packages", tmp_path / "record.json"
    for name in ("PKG-ADMIN-001", "PKG-POLICY-001"):
        shutil.copytree(SHIPPED / name, packages / name)
    recorded = read_versions(RECORD.read_bytes())
    committed = {name: recorded[name] for name in ("PKG-ADMIN-001", "PKG-POLICY-001")}
    before = {name: manifests()[name].version for name in committed}
    asset = packages / "PKG-ADMIN-001" / manifests()["PKG-ADMIN-001"].assets[0].path
    for more in ("\n", "\n\n"):  # one unreleased step raises the version once
        asset.write_text(asset.read_text() + more)
        record_versions(packages, committed, file)
        versions = {
            name: json.loads((packages / name / "manifest.json").read_text())["version"]
            for name in committed
        }
        major, minor, patch = before["PKG-ADMIN-001"].split(".")
        raised = f"{major}.{minor}.{int(patch) + 1}"
        assert versions == {**before, "PKG-ADMIN-001": raised}
        record = read_versions(file.read_bytes())
        digest = Archive.from_directory(packages / "PKG-ADMIN-001").digest
        assert record["PKG-ADMIN-001"] == {**committed["PKG-ADMIN-001"], raised: [digest]}
        assert record["PKG-POLICY-001"] == committed["PKG-POLICY-001"]


def test_every_package_that_no_longer_ships_is_superseded() -> None:
    gone = read_versions(RECORD.read_bytes()).keys() - set(manifests())
    superseded = {name for manifest in manifests().values() for name in manifest.supersedes}
    assert gone <= superseded


def _check_current(root: Path) -> LedgerClient:
    with opened(root) as ledger:
        registry = Registry.from_ledger(ledger)
        ledger.checkpoint()
        report = check_gates(
            gate_context(Root(root), ledger, load_settings(root / "remit.toml")), by="tester"
        )
    installed = {name: package.version for name, package in registry.packages.items()}
    assert installed == {name: manifest.version for name, manifest in manifests().items()}
    assert [gate.gate for gate in report.gates if not gate.passed] == []
    return ledger


@pytest.mark.parametrize("commit", ["51d42c2", "659dd33"])
def test_a_bootstrap_of_an_earlier_version_installs_and_is_upgraded(
    commit: str, tmp_path: Path
) -> None:
    kept = unpack(tmp_path / "old", commit).path / "HOT" / "installed"
    archives = [file.read_bytes() for file in sorted(kept.glob("*/archives/*.tar.gz"))]
    root = tmp_path / "root"
    incoming = [IncomingArchive(data) for data in archives]
    installed, report = install_bootstrap(Root(root), incoming, dev=True, by="tester")
    assert len(installed) == len(archives)
    # Its packages name modules of its own code; what ships now names those of this code.
    failed = [gate for gate in report.gates if not gate.passed]
    assert [gate.gate for gate in failed] == ["G0B"]
    old = {package.package_id for package in installed}
    make_root(Root(root), by="tester")
    _check_current(root)
    with opened(root) as ledger:
        removed = {entry.metadata["package_id"] for entry in ledger.query(event_type="REMOVED")}
        assert removed == old - set(manifests())
        count = ledger.count()
    make_root(Root(root), by="tester")
    with opened(root) as ledger:
        assert ledger.count() == count
    for name in removed:
        assert not (root / "HOT/specs" / f"{name.replace('PKG', 'SPEC', 1)}.json").exists()
