"""Installing hands over every package, in order, and reports what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from remit.packages import ArchiveError
from remit.packages.bootstrap import (
    BootstrapError,
    Bundle,
    GateLine,
    InstallReport,
    ReceiptLine,
    install_bundle,
)
from tests.packages.bootstrap.making import ORDER, unpacked
from tests.packages.making import LIMITS

_REPORT = InstallReport(
    (ReceiptLine("PKG-APPLE-001", "1.0.0", "HOT/installed/PKG-APPLE-001/receipt.json"),),
    (GateLine("G1", True, "fine"), GateLine("G4", False, "a case fails", ("case x",))),
)


class _Noting:
    """An installer that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, list[str], bool]] = []

    def __call__(self, root: Path, archives: Sequence[Path], dev: bool) -> InstallReport:
        assert all(one.is_file() for one in archives)
        self.asked.append((root, [one.name for one in archives], dev))
        return _REPORT


def test_packages_are_handed_over_in_order(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path / "unpacked")
    noting = _Noting()
    report = install_bundle(
        tmp_path / "root", top / "packages", dev=True, install=noting, limits=LIMITS
    )
    assert report is _REPORT
    names = [f"PKG-{word}-001-1.0.0.tar.gz" for word in ORDER]
    assert noting.asked == [(tmp_path / "root", names, True)]


def test_a_damaged_package_stops_everything(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    (top / "packages" / "PKG-DATE-001-1.0.0.tar.gz").write_bytes(b"damaged")
    noting = _Noting()
    with pytest.raises(ArchiveError):
        install_bundle(tmp_path, top / "packages", dev=True, install=noting, limits=LIMITS)
    assert not noting.asked


def test_one_that_is_too_large_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    with pytest.raises(ArchiveError) as caught:
        install_bundle(
            tmp_path, top / "packages", dev=True, install=_Noting(),
            limits=replace(LIMITS, compressed_bytes=100),
        )  # fmt: skip
    assert caught.value.code == "archive_too_large"


def test_no_directory_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="No such file") as caught:
        install_bundle(tmp_path, tmp_path / "no", dev=False, install=_Noting(), limits=LIMITS)
    assert "packages/" in caught.value.next_step


def test_a_report_tells_receipts_gates_and_what_failed() -> None:
    assert _REPORT.lines() == [
        "PKG-APPLE-001  1.0.0  HOT/installed/PKG-APPLE-001/receipt.json",
        "ok    G1: fine",
        "FAIL  G4: a case fails",
        "      case x",
        "1 packages installed, gates 1/2",
    ]
    assert _REPORT.to_dict()["passed"] is False
    assert _REPORT.to_dict()["gates"][1]["errors"] == ("case x",)
    whole = replace(_REPORT, gates=_REPORT.gates[:1])
    assert whole.passed
    assert not replace(whole, gates=()).passed
    assert not replace(whole, receipts=()).passed
