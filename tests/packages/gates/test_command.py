"""``remit gate check`` as people and programs use it, and ADMIN's two tools."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from remit.agents import Redactor
from remit.agents.admin import RootTools
from remit.agents.tools import ToolDispatcher
from remit.kernel.schemas import first_problem
from remit.packages.gates import GATES, GateView
from tests.packages.gates.conftest import House
from tests.support.commands import run_remit


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
    assert "FAIL G0B: 1 thing is wrong\n" in plain.stdout
    assert "HO1/stray.txt belongs to no package.\n" in plain.stdout
    assert "next: Move the file out of the root" in plain.stdout
    assert "\nok   G1: " in plain.stdout
    assert plain.stdout.endswith("1 of 2 gates passed\n")
    enforced = gate_check(house, "--gate", "G0B", "--enforce", "--json")
    assert enforced.returncode == 1
    report = json.loads(enforced.stdout)
    assert report["passed"] is False
    assert report["gates"][0]["errors"] == ["HO1/stray.txt belongs to no package."]


def test_wrong_use_is_2_and_names_the_gates(house: House, tmp_path: Path) -> None:
    for arguments in ((), ("--gate", "G9"), ("--all", "--gate", "G1")):
        run = gate_check(house, *arguments)
        assert (run.returncode, run.stdout) == (2, "")
        assert "G1-COMPLETE" in run.stderr
    run = run_remit("gate", "check", "--all", "--root", tmp_path / "none")
    assert run.returncode == 1
    assert "There is no root" in run.stderr


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


def test_admin_lists_packages_by_their_ids_and_checks_gates(house: House) -> None:
    house.write("HO1/stray.txt", "x")
    with house.context() as context:
        settings = context.settings.tools
        view = GateView(lambda: context, by="admin-001")

        def run(tool_id: str, most: int = settings.max_output_bytes, **arguments: Any) -> Any:
            limited = settings.model_copy(update={"max_output_bytes": most})
            seen: Any = (context.ledger, context.root, None, limited, Redactor(), view)
            tools = RootTools(*seen).tools()
            result = ToolDispatcher(tools, limited).execute(tool_id, arguments)
            assert result.status == "ok", result.error
            (tool,) = (one for one in tools if one.tool_id == tool_id)
            assert tool.describe is not None
            assert len(tool.examples) >= 4
            for _, example in tool.examples:
                assert first_problem(tool.input_schema, dict(example)) == ""
            return result.output, tool.describe(result.output)

        listed, text = run("list_packages")
        assert listed["count"] == len(listed["packages"]) > 20
        row = next(one for one in listed["packages"] if one["package_id"] == "PKG-KERNEL-001")
        assert row.keys() == {
            "package_id", "version", "title", "plane_id", "spec_id", "framework_id", "signed",
        }  # fmt: skip
        assert row["signed"] is True
        assert f"There are {listed['count']} packages installed" in text
        assert listed["packages"][0]["package_id"] in text
        report, text = run("gate_check", gate="G0B")
        assert report["passed"] is False
        assert text == "1 of 1 gates fail: G0B: HO1/stray.txt belongs to no package."
        assert context.ledger.read(report["gates"][0]["entry_id"]).metadata["by"] == "admin-001"
        passing, text = run("gate_check", gate="G1")
        assert (passing["passed"], text) == (True, "The gate passes.")
        cut, text = run("gate_check", most=3000)
        assert "note" in cut
        assert "1 of 8 gates fail: G0B" in text
