"""Gates over packages and their files, and how gates report: each damage is found by its gate."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.ledger import LedgerEntry
from remit.packages import EDITABLE_INSTALL, PackageKey, Registry, receipt_path, waived
from remit.packages.distribution import Distribution
from remit.packages.gates import check_gates
from remit.packages.registry import receipt_bytes
from remit.packages.trust import TrustPolicy, change_trust
from tests.packages.gates.conftest import House, fails

CONTRACT = "HO1/contracts/PRC-EXECUTE-001.json"
PRICES = "HOT/prices/prices.toml"
KERNEL = "HOT/installed/PKG-KERNEL-001"


def test_what_gates_report_is_on_record(house: House) -> None:
    house.write("HO1/contracts/stray.json", "{}")
    report = house.check("G1", "G0B")
    with house.ledger() as ledger:
        passed, failed = (ledger.read(gate.entry_id) for gate in report.gates)
        count = ledger.count()
    assert (passed.event_type, passed.decision) == ("GATE_PASSED", "PASSED")
    assert (failed.event_type, failed.decision) == ("GATE_FAILED", "FAILED")
    assert (passed.submission_id, passed.metadata["errors"]) == ("G1", 0)
    assert failed.metadata["problems"] == report.gates[1].errors
    assert failed.metadata["by"] == "test"
    assert failed.metadata["registry_sha256"].startswith("sha256:")
    assert failed.reason == report.gates[1].message == "1 thing is wrong"
    with house.context() as context:
        report = check_gates(context, ["G1"], record=False, by="test")
        assert (report.passed, report.gates[0].entry_id) == (True, "")
        assert context.ledger.count() == count
        with pytest.raises(RemitError, match="no gate 'G9'"):
            check_gates(context, ["G9"], by="test")
        with house.database() as connection:
            connection.execute(
                "CREATE TRIGGER stop BEFORE INSERT ON entries BEGIN "
                "SELECT RAISE(ABORT, 'no more'); END"
            )
        report = check_gates(context, ["G1"], by="test")
        assert report.passed
        assert report.unrecorded


def test_no_more_is_reported_than_is_asked_for(house: House) -> None:
    for number in range(30):
        house.write(f"HO1/stray-{number}.txt", "x")
    result = house.one("G0B")
    assert (result.error_count, len(result.errors)) == (30, 20)
    assert result.message == "30 things are wrong"
    assert result.to_dict()["error_count"] == 30


def test_g0b_finds_files_that_are_not_as_installed(house: House, tmp_path: Path) -> None:
    house.write(CONTRACT, "{}")
    house.write("HO2/stray.txt", "x")
    house.write("HOT/registries/ownership.json", "{}")
    house.write("HOT/registries/more.json", "{}")
    (house.path / PRICES).unlink()
    (house.path / "HO1/link").symlink_to(tmp_path)
    (house.path / "HOT/registries/specs.json").unlink()
    found = house.errors("G0B")
    for problem in (
        f"{CONTRACT} is not the file that", "HO2/stray.txt belongs to no package",
        "ownership.json is not the registry that the ledger gives", "not a registry derived",
        f"{PRICES}, the file that", "HO1/link is a link", "specs.json, the registry that",
    ):  # fmt: skip
        assert problem in found


class Code:
    """A distribution that runs."""

    version, editable = "1.0.0", True

    def __init__(self, *problems: str, **modules: Path) -> None:
        self.problems = lambda: list(problems)
        self.modules = lambda: modules or Distribution.current().modules()


def test_g0b_looks_at_the_running_code(house: House) -> None:
    def running(*problems: str, **modules: Path) -> Callable[[], Code]:
        return lambda: Code(*problems, **modules)

    def waiver(decision: str) -> None:
        entry = LedgerEntry(
            "CONFIG_CHANGED", f"waiver:{EDITABLE_INSTALL}", decision, "A test.",
            metadata={"waiver": EDITABLE_INSTALL, "by": "test"},
        )  # fmt: skip
        with house.ledger() as ledger:
            if not (decision == "WAIVED" and waived(ledger, EDITABLE_INSTALL)):
                ledger.write(entry)

    waiver("WAIVED")
    house.changes["distribution"] = running()
    assert "waived by LED-" in house.passes("G0B")
    house.changes["distribution"] = running("METADATA was changed.")
    assert house.errors("G0B") == "METADATA was changed."
    house.changes["distribution"] = running()
    waiver("WITHDRAWN")
    assert "editable install" in house.errors("G0B")
    modules = {"remit": Path("remit"), "other": Path("other")}
    house.changes |= {
        "distribution": running("remit/x.py was changed.", **modules), "most_errors": 1000,
    }  # fmt: skip
    found = house.errors("G0B")
    assert "remit/x.py was changed." in found
    assert "No package governs the module other." in found
    assert "which the running code does not have" in found
    house.changes["distribution"] = fails(RemitError("no RECORD", next_step="Install again."))
    assert "The running code cannot be read: no RECORD" in house.errors("G0B")


def test_g1_complete_and_g4_read_what_is_on_disk(house: House) -> None:
    contract = house.read(CONTRACT)
    contract["examples"] = [{"input": {"user_input": "x"}, "renders": ["never said"]}]
    house.write(CONTRACT, contract)
    assert "does not contain 'never said'" in house.errors("G4")
    house.write(PRICES, "nothing")
    assert PRICES in house.errors("G4")
    (house.path / PRICES).unlink()
    assert f"{PRICES} is missing" in house.errors("G4")
    spec = next((house.path / "HOT/specs").iterdir())
    spec.write_text("{}")
    assert f"{spec.name} is not a valid specification" in house.errors("G1")
    house.write(CONTRACT, "{}")
    assert "PRC-EXECUTE-001" in house.errors("G1-COMPLETE")
    house.changes["tool_ids"] = ()
    assert "declares the tool" in house.errors("G1-COMPLETE")


def test_g5_holds_receipts_archives_and_signatures_against_the_record(house: House) -> None:
    folder = house.path / KERNEL
    kept = next((folder / "archives").glob("*.tar.gz"))
    kept.write_bytes(kept.read_bytes() + b"x")
    envelope = next((folder / "archives").glob("*.intoto.json"))
    envelope.write_bytes(envelope.read_bytes() + b" ")
    receipt = folder / "receipt.json"
    receipt.write_text(receipt.read_text().replace("PKG-KERNEL-001", "PKG-KERNEL-002"))
    house.write("HOT/installed/PKG-GHOST-001/receipt.json", "{}")
    found = house.errors("G5")
    assert f"{kept.name} is not the archive of PKG-KERNEL-001" in found
    assert f"{envelope.name} is not the signature of PKG-KERNEL-001 that LED-" in found
    assert "PKG-KERNEL-001/receipt.json is not the receipt of PKG-KERNEL-001" in found
    assert "the ledger records no installed package PKG-GHOST-001" in found
    shutil.rmtree(folder)
    found = house.errors("G5")
    for what in ("receipt", "archive", "signature"):
        assert re.search(f"the {what} of PKG-KERNEL-001 that LED-[^|]*, is missing", found)


def test_g5_finds_trust_that_is_not_on_record_and_never_counts_a_revoked_key(house: House) -> None:
    file = house.path / "trust.json"
    recorded = file.read_bytes()
    policy = json.loads(recorded)
    policy["keys"][0]["name"] = "somebody"
    house.write("trust.json", policy)
    assert "trust.json" in house.errors("G5")
    file.unlink()
    assert "trust.json" in house.errors("G5")
    file.write_bytes(recorded)
    policy = json.loads(TrustPolicy.load(file).encoded())
    policy["keys"][0]["status"] = "revoked"
    data = json.dumps(policy, indent=2).encode() + b"\n"
    with house.ledger() as ledger:
        change_trust(file, ledger, lambda _: TrustPolicy.parse(data), "test")
    assert "The signature of PKG-KERNEL-001" in house.errors("G5")


def test_g5_finds_another_key_in_the_place_of_the_roots_own(house: House) -> None:
    place = house.path / "HOT/keys/packages.pem"
    place.chmod(0o644)
    assert "can be read by others" in house.errors("G5")
    place.unlink()
    assert house.passes("G5")
    PackageKey.create(place, "root")
    assert "HOT/keys/packages.pem is not a trusted key" in house.errors("G5")
    place.unlink()
    place.symlink_to("nowhere")
    assert "packages.pem cannot be read" in house.errors("G5")


def test_a_waived_signature_passes_and_is_counted(house: House) -> None:
    package_id = "PKG-POLICY-001"
    with house.ledger() as ledger:
        (entry,) = ledger.query(event_type="INSTALLED", submission_id=package_id)
        signature = {**entry.metadata["signature"], "waived": True, "keyids": []}
        metadata = {**entry.metadata, "signature": signature, "operation": "upgrade"}
        ledger.write(
            LedgerEntry(entry.event_type, package_id, entry.decision, entry.reason, [], metadata)
        )
    found = house.errors("G5")  # the receipt is that of the entry before
    assert f"{package_id}/receipt.json is not the receipt" in found
    assert "signature" not in found
    with house.ledger() as ledger:
        package = Registry.from_ledger(ledger).packages[package_id]
    (house.path / receipt_path(package_id)).write_bytes(receipt_bytes(package))
    assert "1 waived on record" in house.passes("G5")


def test_an_empty_root_passes_no_gate(house: House) -> None:
    for folder in ("HOT/specs", "HOT/registries", "HOT/installed", "HO1", "HO2"):
        shutil.rmtree(house.path / folder, ignore_errors=True)
    house.empty_ledger()
    report = house.check()
    assert {gate.gate for gate in report.gates if gate.passed} == set()
    errors: dict[str, Any] = {gate.gate: gate.errors for gate in report.gates}
    assert "The ledger is empty." in errors["G2"]
    assert "The ledger is empty." in errors["G6"]
    assert "No package is installed." in errors["G1"]


def test_a_registry_that_cannot_be_read_fails_its_gates_and_no_report(house: House) -> None:
    with house.ledger() as ledger:
        ledger.write(LedgerEntry("INSTALLED", "PKG-X-001", "INSTALLED", "x", metadata={}))
    report = house.check()
    failed = {gate.gate: gate.errors for gate in report.gates if not gate.passed}
    assert failed.keys() == {"G0B", "G1", "G1-COMPLETE", "G3", "G4", "G5"}
    assert all("cannot be understood" in errors[0] for errors in failed.values())


def test_a_gate_that_breaks_has_failed(house: House) -> None:
    house.changes["model"] = fails(RuntimeError("boom"))
    assert "RuntimeError: boom" in house.errors("G3")
