"""What the distributions under ``extras/`` promise each other and the core."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import remit

_TREE = Path(__file__).parents[2]
_EXTRAS = sorted(path.parent for path in _TREE.glob("extras/*/pyproject.toml"))


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return found


@pytest.mark.parametrize("folder", _EXTRAS, ids=lambda folder: folder.name)
def test_it_is_of_this_version_of_the_core(folder: Path) -> None:
    stated = project(folder)["project"]
    assert stated["name"] == folder.name
    assert stated["version"] == remit.__version__
    needed = {one.name: one for one in map(Requirement, stated["dependencies"])}
    assert str(needed["remit"].specifier) == f"=={remit.__version__}"


@pytest.mark.parametrize("folder", _EXTRAS, ids=lambda folder: folder.name)
def test_what_it_offers_can_be_imported(folder: Path) -> None:
    offered = distribution(folder.name).entry_points
    assert offered
    for entry in offered:
        assert entry.load(), entry


@pytest.mark.parametrize("folder", _EXTRAS, ids=lambda folder: folder.name)
def test_it_imports_the_core_through_its_doors(folder: Path) -> None:
    doors = project(_TREE)["tool"]["remit"]["doors"]
    past = sorted(
        f"{file.relative_to(folder)}: {module}"
        for file in (folder / "src").rglob("*.py")
        for module in _imported(file)
        if not _is_door(module.split("."), doors)
    )
    assert past == []


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _is_door(parts: list[str], doors: dict[str, list[str]]) -> bool:
    return (
        parts[0] != "remit"
        or len(parts) < 3
        or parts[1] == "kernel"
        or (len(parts) == 3 and parts[2] in doors.get(parts[1], ()))
    )
