"""``remit gate check`` as people and programs use it, and ADMIN's two tools."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.agents.admin import GateTools, Redactor
from remit.agents.tools import Tool, ToolDispatcher
from remit.cli.main import main
from remit.packages.gates import GATES, GateView
from tests.packages.gates.conftest import House


def _gate_tools(context: Any, settings: Any) -> list[Tool]:
    gates = GateView(lambda: context, by="admin-001")
    seen: Any = (context.ledger, context.root, None, settings, Redactor(), gates)
    return GateTools(*seen).tools()


@dataclass
class Run:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def remit(*arguments: str) -> Run:
    """The command, whole, in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as leave:
            code = leave.code or 0
    return Run(int(code), out.getvalue(), err.getvalue())


def gate_check(house: House, *arguments: str) -> Run:
    """``remit gate check`` of a root."""
    return remit("gate", "check", "--root", str(house.path), *arguments)


def test_all_gates_pass_and_json_is_the_documented_one(house: House) -> None:
    arguments = ["gate", "check", "--all", "--enforce", "--json", "--root", str(house.path)]
    run = subprocess.run(
        [sys.executable, "-m", "remit", *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(run.stdout)
    assert told.keys() == {"passed", "gates"}
    assert told["passed"] is True
    assert [one["gate"] for one in told["gates"]] == list(GATES)
    for one in told["gates"]:
        assert {"gate", "passed", "message", "errors"} <= one.keys()
        assert one["passed"] is True
        assert one["errors"] == []
        assert one["message"]


def test_a_failure_is_an_exit_only_where_it_is_enforced(house: House) -> None:
    house.write("HO1/stray.txt", "x")
    plain = gate_check(house, "--gate", "G0B", "--gate", "G1")
    assert plain.returncode == 0
    assert "FAIL G0B: 1 thing is wrong\n" in plain.stdout
    assert "HO1/stray.txt belongs to no package.\n" in plain.stdout
    assert "next: Remove it" in plain.stdout
    assert "\nok   G1: " in plain.stdout
    assert plain.stdout.endswith("1 of 2 gates pass\n")
    enforced = gate_check(house, "--gate", "G0B", "--enforce", "--json")
    assert enforced.returncode == 1
    told = json.loads(enforced.stdout)
    assert told["passed"] is False
    assert told["gates"][0]["errors"] == ["HO1/stray.txt belongs to no package."]


@pytest.mark.parametrize("arguments", [(), ("--gate", "G9"), ("--all", "--gate", "G1")])
def test_wrong_use_is_2_and_names_the_gates(house: House, arguments: tuple[str, ...]) -> None:
    run = gate_check(house, *arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert "G1-COMPLETE" in run.stderr


def test_no_root_is_an_error(tmp_path: Path) -> None:
    run = remit("gate", "check", "--all", "--root", str(tmp_path / "none"))
    assert run.returncode == 1
    assert "There is no root" in run.stderr


@pytest.mark.parametrize(
    ("path", "text", "failed"),
    [
        ("HOT/config/defaults.toml", "nonsense", {"G0B"}),
        ("HOT/registries/ownership.json", "nonsense", {"G0B"}),
        ("remit.toml", "[nonsense]\n", {"G3"}),
        ("remit.toml", "not toml", {"G3"}),
    ],
)
def test_it_works_on_a_root_that_is_damaged(
    house: House, path: str, text: str, failed: set[str]
) -> None:
    house.write(path, text)
    run = gate_check(house, "--all", "--json", "--enforce")
    assert run.returncode == 1, run.stderr
    told = json.loads(run.stdout)
    assert {one["gate"] for one in told["gates"] if not one["passed"]} == failed


def test_a_ledger_that_cannot_be_opened_fails_every_gate(house: House) -> None:
    for file in house.path.glob("ledger.db*"):
        file.unlink()
    house.write("ledger.db", "This is no database, and long enough to be taken for one. " * 20)
    run = gate_check(house, "--all", "--json")
    assert run.returncode == 0
    told = json.loads(run.stdout)
    assert [one["gate"] for one in told["gates"] if not one["passed"]] == list(GATES)
    assert "The ledger cannot be opened" in told["gates"][0]["errors"][0]
    assert "not on record" in run.stderr
    assert gate_check(house, "--gate", "G1", "--enforce").returncode == 1


def test_admin_lists_packages_by_their_ids_and_checks_gates(house: House) -> None:
    house.write("HO1/stray.txt", "x")
    settings = house.settings().tools

    def run(tool_id: str, most: int = settings.max_output_bytes, **arguments: Any) -> Any:
        limited = settings.model_copy(update={"max_output_bytes": most})
        with house.context() as context:
            tools = _gate_tools(context, limited)
            result = ToolDispatcher(tools, limited).execute(tool_id, arguments)
            assert result.status == "ok", result.error
            (tool,) = (one for one in tools if one.tool_id == tool_id)
            assert tool.describe is not None
            return result.output, tool.describe(result.output)

    listed, said = run("list_packages")
    assert listed["count"] == len(listed["packages"]) > 20
    row = next(one for one in listed["packages"] if one["package_id"] == "PKG-KERNEL-001")
    assert row.keys() == {
        "package_id", "version", "title", "plane_id", "spec_id", "framework_id", "signed",
    }  # fmt: skip
    assert row["signed"] is True
    assert f"There are {listed['count']} packages installed" in said
    assert listed["packages"][0]["package_id"] in said
    report, said = run("gate_check", gate="G0B")
    assert report["passed"] is False
    assert said == "1 of 1 gates fail: G0B: HO1/stray.txt belongs to no package."
    with house.ledger() as ledger:
        entry = ledger.read(report["gates"][0]["entry_id"])
    assert entry.metadata["by"] == "admin-001"
    passing, said = run("gate_check", gate="G1")
    assert (passing["passed"], said) == (True, "The gate passes.")
    whole, said = run("gate_check", most=3000)
    assert "note" in whole
    assert "1 of 8 gates fail: G0B" in said


def test_examples_fit_their_tools(house: House) -> None:
    from remit.kernel.schemas import first_problem

    with house.context() as context:
        for tool in _gate_tools(context, house.settings().tools):
            assert len(tool.examples) >= 4
            for _, arguments in tool.examples:
                assert first_problem(tool.input_schema, dict(arguments)) == ""
