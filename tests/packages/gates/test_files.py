"""Gates over files and packages: the honest root passes, each damage is found by its gate."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry
from remit.packages import PackageKey
from remit.packages.gates import GATES
from remit.packages.waivers import EDITABLE_INSTALL, waived
from tests.packages.gates.conftest import House, fails

CONTRACT = "HO1/contracts/PRC-EXECUTE-001.json"
PRICES = "HOT/prices/prices.toml"
KERNEL = "HOT/installed/PKG-KERNEL-001"


def test_the_honest_root_passes_all_gates(house: House) -> None:
    report = house.check()
    assert [one.errors for one in report.gates if not one.passed] == []
    assert report.passed
    assert tuple(one.gate for one in report.gates) == GATES
    assert len(GATES) == 8
    assert report.unrecorded == ""


def test_what_gates_say_is_on_record(house: House) -> None:
    house.write("HO1/contracts/stray.json", "{}")
    report = house.check("G1", "G0B")
    with house.ledger() as ledger:
        told = {one.gate: ledger.read(one.entry_id) for one in report.gates}
        again = house.check("G0B")
    passed, failed = told["G1"], told["G0B"]
    assert (passed.event_type, passed.decision) == ("GATE_PASSED", "PASSED")
    assert (failed.event_type, failed.decision) == ("GATE_FAILED", "FAILED")
    assert passed.submission_id == "G1"
    assert passed.metadata["errors"] == 0
    assert failed.metadata["problems"] == report.gates[1].errors
    assert failed.metadata["by"] == "test"
    assert failed.metadata["registry_sha256"].startswith("sha256:")
    assert failed.reason == report.gates[1].message == "1 thing is wrong"
    assert again.gates[0].entry_id != failed.id


def test_what_is_not_asked_for_is_not_looked_through_nor_recorded(house: House) -> None:
    with house.context() as context:
        from remit.packages.gates import check_gates

        before = context.ledger.count()
        report = check_gates(context, ["G1"], record=False, by="test")
        assert context.ledger.count() == before
        with pytest.raises(RemitError, match="no gate 'G9'"):
            check_gates(context, ["G9"], by="test")
    assert report.passed
    assert report.gates[0].entry_id == ""


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        (CONTRACT, "{}", f"{CONTRACT} is not the file that"),
        ("HO2/stray.txt", "x", "HO2/stray.txt belongs to no package"),
        (
            "HOT/registries/ownership.json",
            "{}",
            "ownership.json is not the registry that the ledger gives",
        ),
        ("HOT/registries/more.json", "{}", "none of the registries"),
    ],
)
def test_g0b_finds_files_that_are_not_as_installed(
    house: House, path: str, text: str, says: str
) -> None:
    house.write(path, text)
    assert says in house.errors("G0B")


def test_g0b_finds_what_is_missing_and_what_is_no_file(house: House, tmp_path: Path) -> None:
    (house.path / CONTRACT).unlink()
    (house.path / "HO1/link").symlink_to(tmp_path)
    (house.path / "HOT/registries/specs.json").unlink()
    told = house.errors("G0B")
    assert f"{CONTRACT}, the file that" in told
    assert "HO1/link is a link" in told
    assert "HOT/registries/specs.json, the registry" in told


def test_g0b_looks_at_the_running_code(house: House) -> None:
    class Code:
        version, editable = "1.0.0", False

        def problems(self) -> list[str]:
            return ["remit/x.py was changed."]

        def modules(self) -> dict[str, Path]:
            return {"remit": Path("remit"), "other": Path("other")}

    house.changes |= {"distribution": Code, "most_errors": 1000}
    told = house.errors("G0B")
    assert "remit/x.py was changed." in told
    assert "No package governs the module other." in told
    assert "which the running code does not have" in told
    house.changes["distribution"] = fails(RemitError("no RECORD", next_step="Install anew."))
    assert "The running code cannot be looked at: no RECORD" in house.errors("G0B")


def test_g0b_takes_an_editable_install_only_while_it_is_waived(house: House) -> None:
    class Code:
        version, editable = "1.0.0", True

        def problems(self) -> list[str]:
            return []

        def modules(self) -> dict[str, Path]:
            from remit.packages.distribution import Distribution

            return dict(Distribution.current().modules())

    house.changes["distribution"] = Code
    with house.ledger() as ledger:
        if not waived(ledger, EDITABLE_INSTALL):
            ledger.write(_waiver("WAIVED"))
    assert "waived by LED-" in house.one("G0B").message
    with house.ledger() as ledger:
        ledger.write(_waiver("WITHDRAWN"))
    assert "editable install" in house.errors("G0B")


def _waiver(decision: str) -> LedgerEntry:
    metadata = {"waiver": EDITABLE_INSTALL, "by": "test"}
    return LedgerEntry(
        "CONFIG_CHANGED", f"waiver:{EDITABLE_INSTALL}", decision, "A test.", metadata=metadata
    )


def test_g1_and_complete_read_what_is_on_disk(house: House) -> None:
    spec = next((house.path / "HOT/specs").iterdir())
    spec.write_text("{}")
    assert f"{spec.name} is not a valid specification" in house.errors("G1")
    (house.path / CONTRACT).write_text("{}")
    assert "PRC-EXECUTE-001" in house.errors("G1-COMPLETE")
    house.changes["tool_ids"] = ()
    assert "declares the tool" in house.errors("G1-COMPLETE")


def test_g4_runs_the_cases(house: House) -> None:
    file = house.path / CONTRACT
    contract = json.loads(file.read_text())
    contract["examples"] = [{"input": {"user_input": "x"}, "renders": ["never said"]}]
    file.write_text(json.dumps(contract))
    assert "does not contain 'never said'" in house.errors("G4")
    (house.path / PRICES).write_text("nothing")
    assert "HOT/prices/prices.toml" in house.errors("G4")
    (house.path / PRICES).unlink()
    assert f"{PRICES} is missing" in house.errors("G4")


def test_g5_holds_receipts_archives_and_signatures_against_the_record(house: House) -> None:
    folder = house.path / KERNEL
    kept = next((folder / "archives").glob("*.tar.gz"))
    kept.write_bytes(kept.read_bytes() + b"x")
    envelope = next((folder / "archives").glob("*.intoto.json"))
    envelope.write_bytes(envelope.read_bytes() + b" ")
    receipt = folder / "receipt.json"
    receipt.write_text(receipt.read_text().replace("PKG-KERNEL-001", "PKG-KERNEL-002"))
    house.write("HOT/installed/PKG-GHOST-001/receipt.json", "{}")
    told = house.errors("G5")
    assert f"{kept.name} is not the archive of PKG-KERNEL-001" in told
    assert f"{envelope.name} is not the signature of PKG-KERNEL-001 that LED-" in told
    assert "PKG-KERNEL-001/receipt.json is not the receipt of PKG-KERNEL-001" in told
    assert "the ledger knows no installed package PKG-GHOST-001" in told
    shutil.rmtree(folder)
    told = house.errors("G5")
    for what in ("receipt", "archive", "signature"):
        assert re.search(f"the {what} of PKG-KERNEL-001 that LED-[^|]*, is missing", told)


def test_g5_finds_trust_that_is_not_on_record(house: House) -> None:
    file = house.path / "trust.json"
    policy = json.loads(file.read_text())
    policy["keys"][0]["name"] = "somebody"
    file.write_text(json.dumps(policy))
    assert "trust.json" in house.errors("G5")
    file.unlink()
    assert "trust.json" in house.errors("G5")


def test_g5_never_counts_a_revoked_key(house: House) -> None:
    from remit.packages.trust import TrustPolicy, change_trust

    file = house.path / "trust.json"
    policy = TrustPolicy.load(file)
    value = json.loads(policy.encoded())
    value["keys"][0]["status"] = "revoked"
    data = json.dumps(value, indent=2).encode() + b"\n"
    with house.ledger() as ledger:
        change_trust(file, ledger, lambda _: TrustPolicy.parse(data), "test")
    assert "The signature of PKG-KERNEL-001" in house.errors("G5")


def test_g5_finds_a_key_of_somebody_in_the_place_of_the_roots_own(house: House) -> None:
    place = house.path / "HOT/keys/packages.pem"
    place.chmod(0o644)
    assert "can be read by others" in house.errors("G5")
    place.unlink()
    assert house.one("G5").passed
    PackageKey.create(place, "root")
    assert "HOT/keys/packages.pem is not a key that is trusted on record" in house.errors("G5")
    place.unlink()
    place.symlink_to("nowhere")
    assert "packages.pem cannot be read" in house.errors("G5")


def test_a_waived_signature_passes_and_is_counted(house: House) -> None:
    with house.ledger() as ledger:
        (entry,) = ledger.query(event_type="INSTALLED", submission_id="PKG-POLICY-001")
        signature = {**entry.metadata["signature"], "waived": True, "keyids": []}
        entry.metadata = {**entry.metadata, "signature": signature, "operation": "upgrade"}
        ledger.write(LedgerEntry(entry.event_type, entry.submission_id, entry.decision,
                                 entry.reason, [], entry.metadata))  # fmt: skip
    told = house.errors("G5")  # the receipt tells of the entry before
    assert "PKG-POLICY-001/receipt.json is not the receipt" in told
    assert "signature" not in told
    from remit.packages.receipts import receipt_bytes, receipt_path
    from remit.packages.registry import Registry

    with house.ledger() as ledger:
        package = Registry.from_ledger(ledger).packages["PKG-POLICY-001"]
    (house.path / receipt_path("PKG-POLICY-001")).write_bytes(receipt_bytes(package))
    result = house.one("G5")
    assert result.passed
    assert "1 waived on record" in result.message


def test_an_empty_root_passes_no_gate_over_packages(house: House, tmp_path: Path) -> None:
    for tier in ("HOT/specs", "HOT/registries", "HOT/installed", "HO1", "HO2"):
        shutil.rmtree(house.path / tier, ignore_errors=True)
    for file in house.path.glob("ledger.db*"):
        file.unlink()
    LedgerClient(house.path / "ledger.db").close()
    report = house.check()
    assert {one.gate for one in report.gates if one.passed} == set()


def test_a_registry_that_cannot_be_read_fails_its_gates_and_no_report(house: House) -> None:
    with house.ledger() as ledger:
        ledger.write(LedgerEntry("INSTALLED", "PKG-X-001", "INSTALLED", "x", metadata={}))
    report = house.check()
    failed = {one.gate: one.errors for one in report.gates if not one.passed}
    assert failed.keys() == {"G0B", "G1", "G1-COMPLETE", "G3", "G4", "G5"}
    assert all("cannot be understood" in errors[0] for errors in failed.values())


def test_a_gate_that_breaks_has_failed(house: House) -> None:
    def broken() -> Any:
        raise RuntimeError("boom")

    house.changes["model"] = broken
    result = house.one("G3")
    assert not result.passed
    assert "RuntimeError: boom" in result.errors[0]


def test_no_more_is_told_than_is_asked_for(house: House) -> None:
    for number in range(30):
        house.write(f"HO1/stray-{number}.txt", "x")
    result = house.one("G0B")
    assert (result.error_count, len(result.errors)) == (30, 20)
    assert result.message == "30 things are wrong"
    assert result.to_dict()["error_count"] == 30


def test_results_that_cannot_be_recorded_are_told_all_the_same(house: House) -> None:
    with house.context() as context:
        from remit.packages.gates import check_gates

        locked = sqlite3.connect(house.path / "ledger.db")
        locked.execute("CREATE TRIGGER stop BEFORE INSERT ON entries BEGIN "
                       "SELECT RAISE(ABORT, 'no more'); END")  # fmt: skip
        locked.commit()
        locked.close()
        report = check_gates(context, ["G1"], by="test")
    assert report.passed
    assert report.unrecorded
