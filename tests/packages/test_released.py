"""Packages that were shipped before: their content is final, and what replaced them installs."""

from __future__ import annotations

import functools
import itertools
import shutil
import signal
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.packages import (
    Archive,
    IncomingArchive,
    RecordedPrices,
    Registry,
    RootPrices,
    change_own_prices,
    prices_of,
    recorded_prices,
    recorded_prices_of,
)
from remit.packages.gates import check_gates
from remit.providers.prices import Overlay, Usage
from remit.runtime import make_root
from remit.runtime.installation import gate_context, install_bootstrap, recover_packages
from tests.packages.install.killing import Clock, forked
from tests.packages.install.world import opened
from tests.packages.shipped import RECORD, SHIPPED, manifests, read_versions
from tests.support.roots import new_root
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
def test_an_earlier_bootstrap_installs_and_is_upgraded(commit: str, tmp_path: Path) -> None:
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


# A change of prices that is killed at one step after another: on record and made, or neither.


MILLION = Usage(1_000_000, 0)


def _opened(root: Path) -> LedgerClient:
    place = Root(root)
    return open_root_ledger(place, load_settings(place.config).settings.ledger)


def _set_to(root: Path, usd: str, last: int | None = None) -> None:
    """Set the price of gpt-4o, or take it back where ``usd`` is empty; be killed at a step."""

    def change(found: RootPrices) -> Overlay:
        if not usd:
            return Overlay({})
        table = 'version = 2026-12-01\n[models."gpt-4o"]\nprovider = "openai"\ndate = 2026-12-01\n'
        data = f'{table}input = "{usd}"\noutput = "{usd}"\n'
        return Overlay.read(data.encode(), "test", found.base)

    with _opened(root) as ledger, Clock(last).wound():
        change_own_prices(Root(root), ledger, "", change, wait_s=5, by="test")


def _recorded(root: Path) -> RecordedPrices:
    with _opened(root) as ledger:
        return recorded_prices(ledger)


def _charged(found: RootPrices) -> float:
    """What a million tokens cost."""
    price = found.table.find("openai", "gpt-4o")
    assert price is not None
    return price.cost_nano(MILLION) / 1e9


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one price of the operator's own."""
    root = new_root(tmp_path_factory.mktemp("priced") / "root")
    _set_to(root, "2")
    return root


@pytest.mark.parametrize(("usd", "charged"), [("3", 3.0), ("", 2.5)])
def test_killed_anywhere_it_is_finished_or_undone(
    priced: Path, tmp_path: Path, usd: str, charged: float
) -> None:
    before, running = _recorded(priced), prices_of(Root(priced), "")
    seen = []
    for last in itertools.count():
        root = tmp_path / str(last)
        shutil.copytree(priced, root)
        status = forked(functools.partial(_set_to, root, usd, last))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        place = Root(root)
        with _opened(root) as ledger:
            recorded = recorded_prices(ledger)
            # A server that runs takes up exactly what came to be on record.
            assert running.behind(place, ledger) == (recorded != before)
            recover_packages(place, ledger, load_settings(place.config))
            found = recorded_prices_of(place, ledger, "", wait_s=1)
        assert found.file.matches(recorded), last
        assert _charged(found) == (2.0 if recorded == before else charged), last
        assert not (root / ".prices.toml.new").exists()
        seen.append(recorded != before)
    assert seen == sorted(seen)
    assert seen.count(False) >= 3
    assert seen.count(True) >= 2
