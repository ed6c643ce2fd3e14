"""What is installed: every version by its hash, in step with pyproject.toml, licences reviewed."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT, *BESIDE = (
    tomllib.loads(path.read_text("utf-8"))["project"]
    for path in [ROOT / "pyproject.toml", *sorted(ROOT.glob("extras/*/pyproject.toml"))]
)
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# What a licence may say of itself; anything else is looked at by a person first.
ALLOWED = re.compile(
    r"MIT|BSD|Apache|PSF|Python Software Foundation|ISC|Mozilla|MPL|Unlicense|0BSD"
)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)(?:\[[a-z]+\])?==([^ ;\\]+)", text, re.M))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_line_is_a_version_with_hashes(lock: Path) -> None:
    logical = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    assert logical
    for line in logical:
        assert re.fullmatch(
            r"[a-z0-9.-]+(\[[a-z]+\])?==[^ ]+( ; [^-]+?)?( +--hash=sha256:[0-9a-f]{64})+",
            line.strip(),
        ), line


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("run", []),
        ("local", ["local"]),
        ("dev", ["cluster", "mcp", "oidc", "otel", "parquet", "postgres", "dev"]),
    ],
)
def test_the_locks_are_in_step_with_the_project(lock: str, extras: list[str]) -> None:
    asked = [item for extra in extras for item in EXTRAS[extra]]
    asked += [] if lock == "local" else PROJECT["dependencies"]
    locked = pins(lock)
    for requirement in map(Requirement, asked):
        if requirement.name != "remit":
            version = locked[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"run make lock: {requirement}"


def test_what_the_distributions_beside_remit_need_is_locked() -> None:
    locked = pins("dev")
    for project in BESIDE:
        for requirement in map(Requirement, project["dependencies"]):
            if requirement.name != "remit":
                version = locked[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version), f"run make lock: {requirement}"


def test_the_environments_agree() -> None:
    run, dev, build = pins("run"), pins("dev"), pins("build")
    assert run.items() <= dev.items()
    assert {name: dev.get(name, version) for name, version in build.items()} == build


def test_every_licence_is_one_of_those_reviewed() -> None:
    for name in {**pins("run"), **pins("build")}:
        try:
            about = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or Python
        said = [about.get("License-Expression", ""), about.get("License", "")[:200]]
        said += [item for item in about.get_all("Classifier", []) if item.startswith("License")]
        assert ALLOWED.search(" ".join(filter(None, said))), (name, said)


def test_every_direct_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs/adr/0006-dependencies.md").read_text("utf-8")
    direct = [
        *PROJECT["dependencies"],
        *(item for extra in EXTRAS if extra != "dev" for item in EXTRAS[extra]),
    ]
    for project in BESIDE:
        direct += project["dependencies"]
        for items in project.get("optional-dependencies", {}).values():
            direct += items
    for requirement in map(Requirement, direct):
        if requirement.name in {"remit", *(project["name"] for project in BESIDE)}:
            continue
        family = re.sub(r"^(opentelemetry)-.*", r"\1-*", requirement.name)
        assert f"`{family}`" in reasons, f"{requirement.name} stands in no row of ADR 6"
