"""What was released before: its packages, and roots and bootstraps made of them.

``released-0.1.0.tar.xz`` holds the archives that version 0.1.0 shipped.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient
from remit.packages import IncomingArchive, read_archive, shipped
from remit.packages.gates import check_gates
from remit.packages.registry import Registry
from remit.runtime import make_root
from remit.runtime.installation import gate_context, install_bootstrap
from tests.packages.install.world import opened
from tests.packages.making import LIMITS
from tests.packages.shipped import manifests

_RELEASED = Path(__file__).with_name("released-0.1.0.tar.xz")


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    """The archives of the version before, by ``ID-VERSION``."""
    found = {}
    with tarfile.open(_RELEASED) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.removesuffix(".tar.gz")] = file.read()
    return found


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


def test_what_changed_has_a_new_version(archives: dict[str, bytes]) -> None:
    for name, data in shipped.shipped_archives().items():
        released = archives.get(name.removesuffix(".tar.gz"))
        assert released in (None, data), f"{name} was released with other content."


def test_every_package_that_no_longer_ships_is_superseded(archives: dict[str, bytes]) -> None:
    gone = {name.rpartition("-")[0] for name in archives} - set(manifests())
    superseded = {name for manifest in manifests().values() for name in manifest.supersedes}
    assert gone <= superseded


def test_init_brings_a_root_of_the_version_before_along(
    archives: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    read = {name: read_archive(io.BytesIO(data), LIMITS) for name, data in archives.items()}
    with monkeypatch.context() as before:
        before.setattr(shipped, "_shipped", lambda: read)
        make_root(Root(root), by="tester")
    assert len(list((root / "HOT/installed").glob("PKG-*/receipt.json"))) == len(archives)
    assert (root / "HOT/specs/SPEC-TRAIL-001.json").exists()
    make_root(Root(root), by="tester")
    _check_current(root)
    assert not (root / "HOT/specs/SPEC-TRAIL-001.json").exists()
    with opened(root) as ledger:
        removed = {entry.metadata["package_id"] for entry in ledger.query(event_type="REMOVED")}
        assert "PKG-TRAIL-001" in removed
        assert removed == {name.rpartition("-")[0] for name in archives} - set(manifests())
        count = ledger.count()
    make_root(Root(root), by="tester")
    with opened(root) as ledger:
        assert ledger.count() == count


def test_a_bootstrap_of_the_version_before_installs(
    archives: dict[str, bytes], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    incoming = [IncomingArchive(data) for data in archives.values()]
    installed, report = install_bootstrap(Root(root), incoming, dev=True, by="tester")
    assert len(installed) == len(archives)
    # Its packages name modules of its own code; what ships now names those of this code.
    failed = [gate for gate in report.gates if not gate.passed]
    assert [gate.gate for gate in failed] == ["G0B"]
    make_root(Root(root), by="tester")
    _check_current(root)
