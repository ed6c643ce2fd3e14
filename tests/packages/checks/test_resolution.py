"""G1 and G1-COMPLETE, ceilings and dependencies: each promise, kept and broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from remit.packages.checks import (
    Checked,
    check_ceilings,
    check_completeness,
    check_dependencies,
    check_resolution,
    resolve,
)
from remit.packages.registry import Registry
from tests.packages.checks.building import AGENT, CONTRACT, FRAMEWORK, SPEC, Small

SPEC_FILE = "HOT/specs/SPEC-GREET-001.json"
FRAMEWORK_FILE = "HOT/frameworks/FMWK-GREET-001.json"
CONTRACT_FILE = "HO1/contracts/PRC-GREET-001.json"
PACK_FILE = "HO1/prompt_packs/PRM-GREET-001.txt"
AGENT_FILE = "HO2/agents/greeter.json"
SCHEMA_FILE = "HOT/schemas/greeting.schema.json"
TOOLS = {"list_files"}
Breaking = Callable[[Small], object]


def _complete(small: Small, tools: set[str] = TOOLS) -> Checked:
    return check_completeness(small.registry, small.disk, tool_ids=tools, routes=["auto"])


def _messages(checked: Checked) -> str:
    assert all(one.next_step for one in checked.findings), checked.findings
    return " | ".join(one.message for one in checked.findings)


def test_a_sound_installation_passes(small: Small) -> None:
    found = resolve(small.registry, small.disk)
    checked = check_resolution(small.registry, small.disk, found)
    assert checked.findings == []
    assert checked.counts == {"packages": 1, "specifications": 1, "frameworks": 1}
    complete = _complete(small)
    assert complete.findings == []
    assert complete.counts == {
        "frameworks": 1, "specifications": 1, "contracts": 1, "schemas": 1, "agents": 1,
    }  # fmt: skip
    assert check_ceilings(small.registry, found).passed
    assert check_dependencies(small.registry).passed


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (lambda s: s.files.pop(SPEC_FILE), "SPEC-GREET-001, whose document is not installed"),
        (lambda s: s.files.pop(FRAMEWORK_FILE), "FMWK-GREET-001, whose document is not installed"),
        (lambda s: s.missing.append(SPEC_FILE), "SPEC-GREET-001.json is missing"),
        (lambda s: s.files.update({SPEC_FILE: "{}"}), "is not a valid specification"),
        (lambda s: s.files.update({FRAMEWORK_FILE: "nothing"}), "is not JSON"),
        (
            lambda s: s.change(SPEC_FILE, framework_id="FMWK-OTHER-001"),
            "but its specification SPEC-GREET-001 to FMWK-OTHER-001",
        ),
        (
            lambda s: s.files.update({"HOT/specs/SPEC-WRONG-001.json": dict(SPEC)}),
            "SPEC-WRONG-001.json holds SPEC-GREET-001",
        ),
        (
            lambda s: s.files.update({"HOT/specs/more/SPEC-GREET-001.json": dict(SPEC)}),
            "SPEC-GREET-001 is brought by PKG-GREET-001, and again by",
        ),
        (
            lambda s: s.files.update({"HOT/frameworks/more/FMWK-GREET-001.json": dict(FRAMEWORK)}),
            "FMWK-GREET-001 is brought by PKG-GREET-001, and again by",
        ),
    ],
)
def test_packages_lead_to_their_framework(small: Small, breaking: Breaking, says: str) -> None:
    breaking(small)
    assert says in _messages(check_resolution(small.registry, small.disk))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("HO1/contracts/PRC-GREET-001@9.0.0.json", "The contract PRC-GREET-001 is of"),
        ("HO1/contracts/more/PRC-GREET-001.json", "The contract PRC-GREET-001 is of"),
        ("HO1/prompt_packs/PRM-GREET-001.md", "The prompt pack PRM-GREET-001 is of"),
        ("HO2/agents/more/greeter.json", "The agent greeter is of"),
    ],
)
def test_what_shapes_agents_has_one_owner(small: Small, path: str, says: str) -> None:
    small.more["PKG-HELPER-001"] = ({path: "{}"}, {})
    (finding,) = check_resolution(small.registry, small.disk).findings
    assert finding.message == f"{says} PKG-GREET-001; PKG-HELPER-001 brings it too."
    assert (finding.package_id, finding.path) == ("PKG-HELPER-001", path)
    small.files[path] = small.more.pop("PKG-HELPER-001")[0][path]
    assert check_resolution(small.registry, small.disk).passed


def test_an_agent_stays_below_its_framework_where_its_package_is_silent(small: Small) -> None:
    small.told["permissions"] = {"tools": ["list_files"], "models": ["local/*"]}
    small.change(AGENT_FILE, token_budget=1001, usd_budget="1.01")
    messages = _messages(_complete(small))
    assert "token_budget of 1001, where 1000 is the most by FMWK-GREET-001" in messages
    assert "usd_budget of 1.01, where 1.00 is the most by FMWK-GREET-001" in messages
    small.change(AGENT_FILE, token_budget=1000, usd_budget="1.00")
    assert _complete(small).passed


def test_nothing_installed_passes_neither(small: Small) -> None:
    for checked in (
        check_resolution(Registry(), small.disk),
        check_completeness(Registry(), small.disk, tool_ids=TOOLS),
    ):
        assert "No package is installed" in _messages(checked)


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (
            lambda s: s.change(FRAMEWORK_FILE, expected_specs=["SPEC-GREET-001", "SPEC-GONE-001"]),
            "FMWK-GREET-001 expects SPEC-GONE-001, which is not installed",
        ),
        (
            lambda s: s.change(SPEC_FILE, framework_id="FMWK-OTHER-001"),
            "expects SPEC-GREET-001, which says that it belongs to FMWK-OTHER-001",
        ),
        (
            lambda s: s.files.pop(CONTRACT_FILE),
            "SPEC-GREET-001 declares the contract PRC-GREET-001",
        ),
        (lambda s: s.files.update({CONTRACT_FILE: "{}"}), "declares the contract PRC-GREET-001"),
        (lambda s: s.files.update({CONTRACT_FILE: "{}"}), "PRC-GREET-001.json, at"),
        (
            lambda s: s.files.update({"HO1/contracts/PRC-OTHER-001.json": dict(CONTRACT)}),
            "PRC-OTHER-001.json holds PRC-GREET-001",
        ),
        (
            lambda s: s.files.update(
                {"HO1/contracts/PRC-GREET-001@1.0.0.json": {**CONTRACT, "tier": "ho2"}}
            ),
            "both bring PRC-GREET-001 1.0.0, and not the same",
        ),
        (lambda s: s.files.pop(PACK_FILE), "binds PRM-GREET-001, which is not installed"),
        (lambda s: s.files.update({PACK_FILE: "{% bad"}), "is not a pack"),
        (lambda s: s.files.pop(SCHEMA_FILE), "declares the schema HOT/schemas/greeting.schema"),
        (lambda s: s.files.update({SCHEMA_FILE: {"type": 1}}), "not a JSON Schema"),
        (lambda s: s.files.pop(AGENT_FILE), "declares the agent greeter"),
        (lambda s: s.files.update({AGENT_FILE: "{}"}), "is not a valid agent"),
        (
            lambda s: s.more.update({"PKG-OTHER-001": ({"HO2/agents/x/greeter.json": AGENT}, {})}),
            "PKG-GREET-001 and PKG-OTHER-001 both bring the agent greeter",
        ),
        (
            lambda s: s.change(AGENT_FILE, contract_id="PRC-GONE-001"),
            "answers under PRC-GONE-001, which is not installed",
        ),
        (
            lambda s: s.change(AGENT_FILE, tools=["read_file"]),
            "may use the tool read_file, which does not exist",
        ),
        (
            lambda s: s.change(AGENT_FILE, tools=["read_file"]),
            "may use the tool read_file, which the package is not permitted",
        ),
        (
            lambda s: s.change(AGENT_FILE, model="openai/gpt-4o"),
            "asks the model openai/gpt-4o, which the package is not permitted",
        ),
        (
            lambda s: s.told.update(permissions={"tools": ["list_files"], "models": ["local/a"]}),
            "asks the model local/tiny",
        ),
        (
            lambda s: s.change(AGENT_FILE, token_budget=1001),
            "has a token_budget of 1001, where 1000 is the most",
        ),
        (
            lambda s: s.change(AGENT_FILE, usd_budget="0.51"),
            "has a usd_budget of 0.51, where 0.50 is the most",
        ),
        (lambda s: s.told.update(plane_id="ho2"), "of the plane ho2, owns HOT/specs/"),
        (
            lambda s: s.change(FRAMEWORK_FILE, rules={"paths": ["HOT/", "HO1/"]}),
            "owns HO2/agents/greeter.json, where FMWK-GREET-001 lets its packages own nothing",
        ),
        (lambda s: s.missing.append(PACK_FILE), "PRM-GREET-001.txt, a prompt pack of PKG-GREET"),
    ],
)
def test_what_is_declared_is_there(small: Small, breaking: Breaking, says: str) -> None:
    breaking(small)
    assert says in _messages(_complete(small))


def test_a_declared_tool_exists(small: Small) -> None:
    assert "declares the tool list_files" in _messages(_complete(small, set()))


@pytest.mark.parametrize("model", ["", "auto", "local/other", "local"])
def test_an_agent_may_leave_its_model_open(small: Small, model: str) -> None:
    small.change(AGENT_FILE, model=model)
    assert _complete(small).passed


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (
            lambda s: s.told.update(permissions={"tools": ["list_*", "read_file"]}),
            "is permitted the tool read_file, which FMWK-GREET-001 does not let",
        ),
        (
            lambda s: s.told.update(permissions={"tools": ["*"]}),
            "is permitted the tool *, which",
        ),
        (
            lambda s: s.told.update(permissions={"models": ["*"]}),
            "is permitted the model *, which",
        ),
        (
            lambda s: s.told.update(permissions={"paths": ["HO2/"]}),
            "is permitted the path HO2/, which",
        ),
        (
            lambda s: s.told.update(permissions={"budgets": {"usd_budget": "1.01"}}),
            "has a usd_budget of 1.01, where 1.00 is the most by FMWK-GREET-001",
        ),
        (
            lambda s: s.told.update(permissions={"models": ["local/*"]}),
            "states no token_budget, where 1000 is the most",
        ),
        (lambda s: s.files.pop(FRAMEWORK_FILE), "What PKG-GREET-001 may be permitted is not known"),
    ],
)
def test_permissions_stay_below_their_ceilings(small: Small, breaking: Breaking, says: str) -> None:
    breaking(small)
    found = resolve(small.registry, small.disk)
    assert says in _messages(check_ceilings(small.registry, found))


def test_dependencies_are_there_in_range_and_no_circle(small: Small) -> None:
    def needs(package_id: str, version: str = ">=1.0.0,<2.0.0") -> dict[str, object]:
        return {"dependencies": [{"package_id": package_id, "version": version}]}

    small.told.update(needs("PKG-B-001"))
    assert "needs PKG-B-001" in _messages(check_dependencies(small.registry))
    small.more["PKG-B-001"] = ({}, needs("PKG-C-001", ">=2.0.0"))
    small.more["PKG-C-001"] = ({}, {})
    messages = _messages(check_dependencies(small.registry))
    assert "needs PKG-C-001 >=2.0.0, not 1.0.0" in messages
    small.more["PKG-B-001"] = ({}, needs("PKG-C-001"))
    assert check_dependencies(small.registry).passed
    small.more["PKG-C-001"] = ({}, needs("PKG-B-001"))
    messages = _messages(check_dependencies(small.registry))
    assert "in a circle: PKG-B-001 → PKG-C-001 → PKG-B-001" in messages


def test_what_takes_a_place_does_not_stand_beside_it(small: Small) -> None:
    small.told["supersedes"] = ["PKG-OLD-001"]
    assert check_dependencies(small.registry).passed
    small.more["PKG-OLD-001"] = ({}, {})
    messages = _messages(check_dependencies(small.registry))
    assert "takes the place of PKG-OLD-001, which is still installed" in messages
