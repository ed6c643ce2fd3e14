"""Gates over packages and their files, and how gates report: each damage is found by its gate."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from remit.kernel.errors import ConfigError, RemitError
from remit.ledger import LedgerEntry
from remit.packages import EDITABLE_INSTALL, Framework, PackageKey, waived
from remit.packages.distribution import Distribution
from remit.packages.gates import GATES, check_gates
from remit.packages.trust import TrustPolicy, change_trust
from tests.packages.gates.conftest import House, fails
from tests.packages.gates.test_orders import Writer, writing
from tests.support.commands import run_remit

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
    assert failed.reason == report.gates[1].message == "1 problem"
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
    assert all("cannot be read" in errors[0] for errors in failed.values())


def test_a_gate_that_breaks_has_failed(house: House) -> None:
    house.changes["model"] = fails(RuntimeError("boom"))
    assert "RuntimeError: boom" in house.errors("G3")


# -- ``remit gate check`` as people and programs use it, and ADMIN's two tools -------------------


def gate_check(house: House, *arguments: str) -> CompletedProcess[str]:
    """``remit gate check`` of a root."""
    return run_remit("gate", "check", "--root", house.path, *arguments)


def failed(run: CompletedProcess[str]) -> list[str]:
    """The gates that failed, by a report in JSON."""
    return [row["gate"] for row in json.loads(run.stdout)["gates"] if not row["passed"]]


def test_all_gates_pass_and_json_is_the_documented_one(house: House) -> None:
    run = gate_check(house, "--all", "--enforce", "--json")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "not on record" not in run.stderr
    report = json.loads(run.stdout)
    assert report.keys() == {"passed", "gates"}
    assert report["passed"] is True
    assert tuple(row["gate"] for row in report["gates"]) == GATES
    assert len(GATES) == 8
    for row in report["gates"]:
        assert row.keys() == {
            "gate", "passed", "message", "errors", "error_count", "next_steps", "entry_id",
        }  # fmt: skip
        assert (row["passed"], row["errors"], row["error_count"]) == (True, [], 0)
        assert row["message"]


def test_a_failure_is_an_exit_only_where_it_is_enforced(house: House) -> None:
    house.write("HO1/stray.txt", "x")
    plain = gate_check(house, "--gate", "G0B", "--gate", "G1")
    assert plain.returncode == 0
    assert "FAIL G0B: 1 problem\n" in plain.stdout
    assert "HO1/stray.txt belongs to no package.\n" in plain.stdout
    assert "next: Move the file out of the root" in plain.stdout
    assert "\nok   G1: " in plain.stdout
    assert plain.stdout.endswith("1 of 2 gates passed\n")
    enforced = gate_check(house, "--gate", "G0B", "--enforce", "--json")
    assert enforced.returncode == 1
    report = json.loads(enforced.stdout)
    assert report["passed"] is False
    assert report["gates"][0]["errors"] == ["HO1/stray.txt belongs to no package."]


def test_it_works_on_a_root_that_is_damaged(house: House) -> None:
    settings = (house.path / "remit.toml").read_text()
    for files, gate in (
        ({"remit.toml": "[nonsense]\n"}, "G3"),
        ({"remit.toml": "not toml"}, "G3"),
        (
            {
                "remit.toml": settings,
                "HOT/config/defaults.toml": "nonsense",
                "HOT/registries/ownership.json": "nonsense",
            },
            "G0B",
        ),
    ):
        for path, text in files.items():
            house.write(path, text)
        run = gate_check(house, "--all", "--json", "--enforce")
        assert run.returncode == 1, run.stderr
        assert failed(run) == [gate]


def test_a_ledger_that_cannot_be_opened_fails_every_gate(house: House) -> None:
    house.empty_ledger()
    house.write("ledger.db", "This is no database, and long enough to be taken for one. " * 20)
    run = gate_check(house, "--all", "--json")
    assert run.returncode == 0
    assert tuple(failed(run)) == GATES
    assert "The ledger cannot be opened" in json.loads(run.stdout)["gates"][0]["errors"][0]
    assert "could not be recorded" in run.stderr
    assert gate_check(house, "--gate", "G1", "--enforce").returncode == 1


# -- G3: settings, permissions and what is in use, each within and beyond what is allowed --------


FRAMEWORK = "HOT/frameworks/FMWK-KERNEL-001.json"


def _ceilings(house: House, **config: Any) -> None:
    """Give a framework these ceilings of settings, by its file alone."""
    value = house.read(FRAMEWORK)
    value["config"] = {name.replace("__", "."): schema for name, schema in config.items()}
    house.write(FRAMEWORK, value)
    Framework.parse((house.path / FRAMEWORK).read_bytes(), FRAMEWORK)


def _tool(write: Writer, event: str, tool_id: str, status: str = "ok") -> str:
    fields: dict[str, Any] = {"tool_id": tool_id, "arguments": {}, "idempotency_key": "k"}
    if event == "TOOL_CALL":
        fields |= {"status": status, "result": None, "arguments_bytes": 2, "result_bytes": 2,
                   "tool_error": ""}  # fmt: skip
    return write.step(event, "WO-SES-1-001", **fields)


def test_settings_that_cannot_be_loaded_fail_it_and_no_other_gate(house: House) -> None:
    assert "0 ceilings" not in house.passes("G3")  # of the settings as they ship
    house.changes["settings_error"] = ConfigError("There is no setting x.", next_step="Remove it.")
    report = house.check()
    assert [gate.gate for gate in report.gates if not gate.passed] == ["G3"]
    assert "There is no setting x." in house.errors("G3")


def test_a_setting_keeps_its_ceiling(house: House) -> None:
    _ceilings(
        house,
        server__metrics_open={"const": False},
        budget__session_tokens={"maximum": 10},
        **{"routing__models__gpt-4.1__provider": {"const": "local"}},
        providers__openai__api_key={"const": ""},
        server__nothing={},
        server__port__more={},
        # what a user may name and did not, and one that is kept
        mcp__files__command={"const": "never"},
        server__port={"minimum": 1},
    )
    house.flags = {"server.metrics_open": True, "providers.openai.api_key": "sk-very-secret"}
    result = house.one("G3")
    found = " | ".join(result.errors)
    for problem in (
        "The setting server.metrics_open exceeds the ceiling of FMWK-KERNEL-001",
        "The setting budget.session_tokens exceeds the",
        "routing.models.gpt-4.1.provider exceeds", "providers.openai.api_key exceeds",
        "a ceiling for the setting server.nothing, which does not",
        "server.port.more, which does not exist",
    ):  # fmt: skip
        assert problem in found
    assert result.error_count == 6
    assert "sk-very-secret" not in found


def test_what_the_configuration_uses_is_permitted(house: House) -> None:
    house.flags = {
        "gateway.fallbacks": {
            "gpt-4o": ["openai/gpt-4o-mini", "claude-sonnet-5", "gpt-4.1", "openai:o3",
                       "us.anthropic.claude-x-v1:0", "anthropic"],
        }
    }  # fmt: skip
    assert house.passes("G3")  # by any of their names
    house.flags = {
        "chat.tools_allowed": ["format_disk"],
        "routing.models.other": {"provider": "elsewhere"},
        "gateway.fallbacks": {"gpt-4o": ["mystery-1", "nobody/gpt-4o"]},
    }
    house.changes["model"] = lambda: ("elsewhere", "big-1")
    found = house.errors("G3")
    assert "chat.tools_allowed uses the tool format_disk, which no package permits" in found
    assert "routing.models.other uses the model elsewhere/other" in found
    assert "model.default uses the model elsewhere/big-1" in found
    assert "gateway.fallbacks.gpt-4o uses the model elsewhere/mystery-1" in found
    assert "gateway.fallbacks.gpt-4o uses the model nobody/gpt-4o" in found
    house.changes["model"] = fails(ConfigError("No provider has it."))
    found = house.errors("G3")
    assert "No provider has it." in found
    assert "chat.tools_allowed uses the tool format_disk" in found


def test_what_was_used_was_permitted(house: House) -> None:
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
        _tool(write, "TOOL_CALL", "format_disk", "refused")
        write.exchange(provider_id="openai", model_id="gpt-4o-2024-08-06",
                       requested_model_id="gpt-4o")  # fmt: skip
        write.exchange(provider_id="elsewhere", model_id="big-1", outcome="error")
    assert house.passes("G3")
    with writing(house) as write:
        first = _tool(write, "TOOL_INTENT", "Format_disk")
        _tool(write, "TOOL_CALL", "Format_disk", "error")
        big = write.exchange(provider_id="elsewhere", model_id="big-1")
        for name in ("big", "big-1"):
            write.exchange(provider_id="elsewhere", model_id="big-1", requested_model_id=name)
    found = house.errors("G3")
    assert f"The tool Format_disk was used (first in {first}; entries: 2)" in found
    assert f"The model elsewhere/big-1 was used (first in {big}; entries: 3)" in found
    assert found.count("elsewhere/big-1 was used") == 1


def test_a_later_run_goes_on_where_the_last_one_ended(house: House) -> None:
    house.flags = {"gates.full_entries": 0, "chat.tools_allowed": ["list_files"]}
    first = house.one("G3")
    assert first.passed
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "list_files")
    message = house.passes("G3")
    assert "--full reads all" in message
    assert "1 tools and models" in message
    with writing(house) as write:
        _tool(write, "TOOL_INTENT", "format_disk")
    assert "format_disk" in house.errors("G3")
    assert "format_disk" in house.errors("G3")  # a failed run leaves no mark behind it


@pytest.mark.parametrize(
    ("setting", "file"), [("routing.rules", "mine.json"), ("budget.prices", "../prices.toml")]
)
def test_rules_and_prices_that_no_package_brought(house: House, setting: str, file: str) -> None:
    house.flags[setting] = file
    assert f"The setting {setting} names {file}, which no package contains" in house.errors("G3")
