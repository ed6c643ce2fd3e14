"""What a bootstrap brings is found in order, and what came of it is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remit.packages import ArchiveError
from remit.packages.bootstrap import BootstrapError, Bundle, InstallReport, Receipt, read_bundle
from remit.packages.checks import Finding
from remit.packages.gates.report import GateResult
from tests.packages.bootstrap.making import ORDER, unpacked
from tests.packages.making import LIMITS

_REPORT = InstallReport(
    (Receipt("PKG-APPLE-001", "1.0.0", "HOT/installed/PKG-APPLE-001/receipt.json"),),
    (
        GateResult("G1", True, "fine"),
        GateResult("G4", False, "a case fails", (Finding("case x", ""),)),
    ),
)


def test_packages_are_found_in_order(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path / "unpacked")
    assert read_bundle(top / "packages", LIMITS) == [
        top / "packages" / f"PKG-{word}-001-1.0.0.tar.gz" for word in ORDER
    ]


def test_a_damaged_package_stops_everything(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    (top / "packages" / "PKG-DATE-001-1.0.0.tar.gz").write_bytes(b"damaged")
    with pytest.raises(ArchiveError):
        read_bundle(top / "packages", LIMITS)


def test_one_that_is_too_large_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    top = unpacked(bundle.data, tmp_path)
    with pytest.raises(ArchiveError) as caught:
        read_bundle(top / "packages", replace(LIMITS, compressed_bytes=100))
    assert caught.value.code == "archive_too_large"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="No such file") as caught:
        read_bundle(tmp_path / "no", LIMITS)
    assert "packages/" in caught.value.next_step


def test_a_report_shows_receipts_gates_and_what_failed() -> None:
    assert _REPORT.lines() == [
        "PKG-APPLE-001  1.0.0  HOT/installed/PKG-APPLE-001/receipt.json",
        "ok    G1: fine",
        "FAIL  G4: a case fails",
        "      case x",
        "1 packages installed, gates 1/2",
    ]
    assert _REPORT.to_dict()["passed"] is False
    assert _REPORT.to_dict()["gates"][1]["errors"] == ["case x"]
    whole = replace(_REPORT, gates=_REPORT.gates[:1])
    assert whole.passed
    assert not replace(whole, gates=()).passed
    assert not replace(whole, receipts=()).passed
