"""What gates check of packages and their files: each promise, kept and broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.packages import PackageError, Permissions, Registry
from remit.packages.checks import (
    Finding,
    RootDisk,
    allows_named,
    check_acceptance,
    check_ceilings,
    check_completeness,
    check_dependencies,
    check_installed,
    check_modules,
    check_ownership,
    check_resolution,
)
from remit.providers.prices import PriceTable
from tests.packages.checks.building import AGENT, CASES, CONTRACT, FRAMEWORK, SPEC, Small

SPEC_FILE = "HOT/specs/SPEC-GREET-001.json"
FRAMEWORK_FILE = "HOT/frameworks/FMWK-GREET-001.json"
CASES_FILE = "HOT/acceptance/PKG-GREET-001.json"
SCHEMA_FILE = "HOT/schemas/greeting.schema.json"
AGENT_FILE = "HO2/agents/greeter.json"
CONTRACT_FILE = "HO1/contracts/PRC-GREET-001.json"
PACK_FILE = "HO1/prompt_packs/PRM-GREET-001.txt"
MODULES = ("remit", "remit.ledger", "remit.ledger.client")

Change = Callable[[Small], object]

CHECKS: Mapping[str, Callable[[Small], Iterable[Finding]]] = {
    "ownership": lambda small: check_ownership(small.registry, small.disk),
    "modules": lambda small: check_modules(small.registry, MODULES),
    "resolution": lambda small: check_resolution(small.view),
    "completeness": lambda small: check_completeness(small.view),
    "ceilings": lambda small: check_ceilings(small.view),
    "dependencies": lambda small: check_dependencies(small.registry),
    "acceptance": lambda small: check_acceptance(small.view, PriceTable.shipped()),
}


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """One complete package, to be changed."""
    return Small(tmp_path, manifest={"modules": ["remit"]})


def problems(check: str, small: Small) -> str:
    """What a check finds, each with what to do about it."""
    findings = list(CHECKS[check](small))
    assert all(finding.next_step for finding in findings), findings
    return " | ".join(finding.message for finding in findings)


def files(path: str, value: Any) -> Change:
    """Install this file too; ``None`` takes it out."""

    def change(small: Small) -> None:
        small.files[path] = value
        if value is None:
            del small.files[path]

    return change


def altered(path: str, value: Any) -> Change:
    """Another file on disk than what was installed."""
    return lambda small: small.altered.update({path: value})


def changed(path: str, **values: Any) -> Change:
    """Install a JSON file with other values."""
    return lambda small: small.change(path, **values)


def case(number: int, **changes: Any) -> Change:
    cases = [dict(one) for one in CASES["cases"]]
    cases[number].update(changes)
    return lambda small: small.change(CASES_FILE, cases=cases)


def manifest(**changes: Any) -> Change:
    return lambda small: small.manifest.update(changes)


def permitted(**permissions: Any) -> Change:
    return manifest(permissions=permissions)


def another(package_files: dict[str, Any], **changes: Any) -> Change:
    """A second package."""
    return lambda small: small.more.update({"PKG-OTHER-001": (package_files, changes)})


def no_cases(small: Small) -> None:
    del small.files[CASES_FILE], small.files[CONTRACT_FILE]


def link(small: Small) -> None:
    (small.directory / "HO1").mkdir()
    (small.directory / "HO1/link").symlink_to("/etc/passwd")


def test_a_sound_installation_passes_and_an_empty_one_does_not(small: Small) -> None:
    assert {name: problems(name, small) for name in CHECKS} == dict.fromkeys(CHECKS, "")
    assert list(check_installed(small.registry)) == []
    (finding,) = check_installed(Registry())
    assert "No package is installed" in finding.message
    assert list(check_modules(small.registry, ()))


BREACHES: Mapping[str, Sequence[tuple[Change, str]]] = {
    "ownership": [
        (altered(AGENT_FILE, {}), f"{AGENT_FILE} is not the file that PKG-GREET-001"),
        (altered("HO1/x.json", {}), "HO1/x.json belongs to no package"),
        (altered(AGENT_FILE, None), "that PKG-GREET-001 installed, is missing"),
        (another({AGENT_FILE: AGENT}), "is owned by PKG-GREET-001 and by PKG-OTHER"),
        (another({"HOT/keys/packages.pem": "x"}), "but no package may own files there"),
        (link, "HO1/link is a link"),
    ],
    "modules": [
        (manifest(modules=["remit.ledger"]), "No package governs the module remit."),
        (manifest(modules=[]), "No package governs the module remit.ledger."),
        (another({}, modules=["remit.gone"]), "governs remit.gone, which the running"),
    ],
    "resolution": [
        (files(SPEC_FILE, None), "SPEC-GREET-001, whose document is not installed"),
        (altered(SPEC_FILE, None), "SPEC-GREET-001.json, which PKG-GREET-001 brings"),
        (files(SPEC_FILE, "{}"), "is not a valid specification"),
        (changed(SPEC_FILE, framework_id="FMWK-OTHER-001"), "SPEC-GREET-001 to FMWK-OTHER-001"),
        (files("HOT/specs/SPEC-WRONG-001.json", SPEC), "WRONG-001.json contains SPEC-GREET-001"),
        (
            files("HOT/frameworks/more/FMWK-GREET-001.json", FRAMEWORK),
            "by PKG-GREET-001, and again",
        ),
    ],
    "completeness": [
        (
            changed(FRAMEWORK_FILE, expected_specs=["SPEC-GREET-001", "SPEC-GONE-001"]),
            "FMWK-GREET-001 expects SPEC-GONE-001, which is not installed",
        ),
        (
            changed(SPEC_FILE, framework_id="FMWK-OTHER-001"),
            "SPEC-GREET-001, which belongs to FMWK-OTHER-001",
        ),
        (files(CONTRACT_FILE, None), "SPEC-GREET-001 declares the contract PRC-GREET"),
        (files(CONTRACT_FILE, "{}"), "PRC-GREET-001.json, at"),
        (
            files("HO1/contracts/PRC-OTHER-001.json", CONTRACT),
            "OTHER-001.json contains PRC-GREET-001",
        ),
        (
            files("HO1/contracts/PRC-GREET-001@1.0.0.json", {**CONTRACT, "tier": "ho2"}),
            "both bring PRC-GREET-001 1.0.0, with different content",
        ),
        (files(PACK_FILE, None), "binds PRM-GREET-001, which is not installed"),
        (files(PACK_FILE, "{% bad"), "is not a valid prompt pack"),
        (altered(PACK_FILE, None), "PRM-GREET-001.txt, which PKG-GREET-001 brings"),
        (files(SCHEMA_FILE, None), "declares the schema HOT/schemas/greeting.schema"),
        (files(AGENT_FILE, None), "declares the agent greeter"),
        (another({"HO2/agents/x/greeter.json": AGENT}), "by PKG-GREET-001, and again by PKG-OTHER"),
        (lambda small: small.tools.clear(), "declares the tool list_files"),
        (changed(AGENT_FILE, contract_id="PRC-GONE-001"), "answers under PRC-GONE-001, which"),
        (changed(AGENT_FILE, tools=["read_file"]), "the tool read_file, which does not exist"),
        (changed(AGENT_FILE, tools=["read_file"]), "read_file, which its package does not permit"),
        (changed(AGENT_FILE, model="openai/gpt-4o"), "asks the model openai/gpt-4o, which its"),
        (permitted(tools=["list_files"], models=["local/a"]), "asks the model local/tiny"),
        (changed(AGENT_FILE, token_budget=1001), "has a token_budget of 1001; the maximum is 1000"),
        (manifest(plane_id="ho2"), "of the plane ho2, owns HOT/frameworks/"),
        (
            changed(FRAMEWORK_FILE, rules={"paths": ["HOT/", "HO1/"]}),
            "which FMWK-GREET-001 does not allow",
        ),
    ],
    "ceilings": [
        (permitted(tools=["list_*", "read_file"]), "the tool read_file, which FMWK-GREET-001"),
        (permitted(models=["*"]), "has a permission for the model *, which"),
        (permitted(paths=["HO2/"]), "has a permission for the path HO2/, which"),
        (permitted(budgets={"usd_budget": "1.01"}), "1.01; the maximum is 1.00 by FMWK"),
        (permitted(models=["local/*"]), "states no token_budget; the maximum is 1000"),
        (files(FRAMEWORK_FILE, None), "The permissions of PKG-GREET-001 cannot be checked"),
    ],
    "acceptance": [
        (case(0, renders=["never said"]), "does not contain 'never said'"),
        (case(0, output_valid=True), "the output, at"),
        (case(0, output={"greeting": 1}), "satisfies the contract but must not"),
        (case(1, valid=False), f"satisfies {SCHEMA_FILE} but must not"),
        (case(3, usd="0.76"), "costs 0.75 USD, not 0.76"),
        (case(3, model="openai/none"), "does not contain the model openai/none"),
        (files(CASES_FILE, "{}"), "is not a valid acceptance"),
        (altered(CASES_FILE, None), "which PKG-GREET-001 brings, is missing"),
        (
            changed(CONTRACT_FILE, examples=[{"input": {}, "renders": ["hello"]}]),
            "PRC-GREET-001 1.0.0, example 1",
        ),
        (no_cases, "No package declares an acceptance case"),
    ],
}


@pytest.mark.parametrize(
    ("check", "change", "says"),
    [(check, *breach) for check, breaches in BREACHES.items() for breach in breaches],
)
def test_every_breach_is_found(small: Small, check: str, change: Change, says: str) -> None:
    change(small)
    assert says in problems(check, small)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("HO1/contracts/PRC-GREET-001@9.0.0.json", "contract PRC-GREET-001"),
        ("HO1/prompt_packs/PRM-GREET-001.md", "prompt pack PRM-GREET-001"),
        ("HO2/agents/more/greeter.json", "agent greeter"),
    ],
)
def test_what_shapes_agents_has_one_owner(small: Small, path: str, name: str) -> None:
    small.more["PKG-HELPER-001"] = ({path: "{}"}, {})
    says = f"The {name} belongs to PKG-GREET-001, but PKG-HELPER-001 contains it too."
    assert problems("resolution", small) == says
    small.files[path] = small.more.pop("PKG-HELPER-001")[0][path]
    assert problems("resolution", small) == ""


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("anthropic/claude-x", True), ("anthropic:claude-x", True), (" Anthropic: claude-x", True),
        ("anthropic", False), ("anthropic:", False), ("openai:claude-x", False),
        ("openai/claude-x", False), ("other", True), ("other/", True), ("other:any", True),
        ("claude-x", False), ("llama3:8b", False),
    ],
)  # fmt: skip
def test_a_name_is_allowed_by_the_model_that_it_means(name: str, allowed: bool) -> None:
    assert allows_named(Permissions(models=("anthropic/claude-*", "other/*")), name) is allowed


def test_an_agent_stays_below_its_framework_where_its_package_is_silent(small: Small) -> None:
    permitted(tools=["list_files"], models=["local/*"])(small)
    changed(AGENT_FILE, token_budget=1001, usd_budget="1.01")(small)
    found = problems("completeness", small)
    assert "token_budget of 1001; the maximum is 1000 by FMWK-GREET-001" in found
    assert "usd_budget of 1.01; the maximum is 1.00 by FMWK-GREET-001" in found
    changed(AGENT_FILE, token_budget=1000, usd_budget="1.00")(small)
    assert problems("completeness", small) == ""


def test_every_contract_has_a_case(small: Small) -> None:
    changed(CONTRACT_FILE, examples=None)(small)
    assert problems("acceptance", small) == ""  # by the package's file
    small.change(CASES_FILE, cases=CASES["cases"][1:])
    assert "PRC-GREET-001 has no acceptance case" in problems("acceptance", small)
    changed(CONTRACT_FILE, examples=CONTRACT["examples"])(small)
    assert problems("acceptance", small) == ""


def test_dependencies_are_there_in_range_and_no_circle(small: Small) -> None:
    def needs(package_id: str, version: str = ">=1.0.0,<2.0.0") -> dict[str, object]:
        return {"dependencies": [{"package_id": package_id, "version": version}]}

    small.manifest.update(needs("PKG-B-001"))
    assert "needs PKG-B-001" in problems("dependencies", small)
    small.more["PKG-B-001"] = ({}, needs("PKG-C-001", ">=2.0.0"))
    small.more["PKG-C-001"] = ({}, {})
    assert "needs PKG-C-001 >=2.0.0, not 1.0.0" in problems("dependencies", small)
    small.more["PKG-B-001"] = ({}, needs("PKG-C-001"))
    assert problems("dependencies", small) == ""
    small.more["PKG-C-001"] = ({}, needs("PKG-B-001"))
    circle = "in a circle: PKG-B-001 → PKG-C-001 → PKG-B-001"
    assert circle in problems("dependencies", small)
    small.more.clear()
    small.manifest |= {"dependencies": [], "supersedes": ["PKG-OTHER-001"]}
    assert problems("dependencies", small) == ""
    another({})(small)
    assert "supersedes PKG-OTHER-001; only one" in problems("dependencies", small)


# -- Reading governed files: no link is followed, nothing outside is read ------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path in (
        "HOT/specs/a.json",
        "HO1/contracts/b.json",
        "HOT/keys/k.pem",
        "HOT/installed/PKG-X-001/receipt.json",
        "HOT/registries/packages.json",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "remit.toml").write_text("")
    return root


def test_only_governed_files_are_listed(root: Path) -> None:
    disk = RootDisk(root)
    assert list(disk.walk()) == [("HO1/contracts/b.json", ""), ("HOT/specs/a.json", "")]
    assert disk.read("HOT/specs/a.json") == b"HOT/specs/a.json"
    assert disk.read("HOT/registries/packages.json") == b"HOT/registries/packages.json"
    assert disk.names("HOT/installed") == ["PKG-X-001"]
    assert disk.names("HOT/nowhere") == []


def test_a_ledger_below_a_tier_is_not_governed_nor_what_begins_like_it(root: Path) -> None:
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-evil"):
        (root / "HOT" / name).write_text("x")
    for ledger_path in ("HOT/ledger.db", str(root / "HOT/ledger.db")):
        found = RootDisk(root, ledger_path=ledger_path).walk()
        assert [path for path, _ in found if "ledger" in path] == ["HOT/ledger.db-evil"]
    for elsewhere in ("ledger.db", "postgresql://host/db", "../ledger.db", ""):
        found = RootDisk(root, ledger_path=elsewhere).walk()
        assert len([path for path, _ in found if "ledger" in path]) == 4


def test_links_and_pipes_are_found_and_never_read(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "HOT/specs/link.json").symlink_to(outside / "secret")
    (root / "HO1/linked").symlink_to(outside)
    (root / "HO2").symlink_to(outside)
    os.mkfifo(root / "HO1/pipe")
    disk = RootDisk(root)
    assert {path: problem for path, problem in disk.walk() if problem} == {
        "HO1/linked": "is a link",
        "HO1/pipe": "is neither a file nor a folder",
        "HO2": "is a link",
        "HOT/specs/link.json": "is a link",
    }
    for path in ("HOT/specs/link.json", "HO1/linked/secret", "HO2/secret", "HO1/pipe",
                 "HO1/contracts", "/etc/passwd", "HOT/../../outside/secret", ""):  # fmt: skip
        with pytest.raises(PackageError) as caught:
            disk.read(path)
        assert caught.value.code in ("unsafe_file", "unreadable_file")
        assert caught.value.next_step
    with pytest.raises(FileNotFoundError):
        disk.read("HO1/contracts/none.json")
    with pytest.raises(FileNotFoundError):
        disk.read("HO1/contracts/b.json/below")
