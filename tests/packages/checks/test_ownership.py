"""G0B: each promise, kept and broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit.packages.checks import (
    check_modules,
    check_ownership,
    check_registries,
    check_running_code,
)
from remit.packages.registry import Registry
from tests.packages.checks.building import Small

AGENT = "HO2/agents/greeter.json"


@dataclass
class Code:
    """A distribution as :class:`RunningCode` describes it."""

    version: str = "1.0.0"
    editable: bool = False
    wrong: tuple[str, ...] = ()
    names: tuple[str, ...] = ("remit", "remit.ledger", "remit.ledger.client")

    def problems(self) -> list[str]:
        return list(self.wrong)

    def modules(self) -> Mapping[str, Path]:
        return {name: Path(name) for name in self.names}


def _alter(small: Small) -> None:
    small.altered[AGENT] = {"agent_id": "greeter"}


def _orphan(small: Small) -> None:
    small.altered["HO1/contracts/PRC-STRAY-001.json"] = {}


def _missing(small: Small) -> None:
    small.missing.append(AGENT)


def _twice(small: Small) -> None:
    small.more["PKG-OTHER-001"] = ({AGENT: small.files[AGENT]}, {})


def _twin(small: Small) -> None:
    small.more["PKG-OTHER-001"] = ({"HO2/agents/GREETER.json": "x"}, {})


def _reserved(small: Small) -> None:
    small.more["PKG-OTHER-001"] = ({"HOT/keys/packages.pem": "x"}, {})


def _link(small: Small) -> None:
    (small.directory / "HO1").mkdir()
    (small.directory / "HO1/link").symlink_to("/etc/passwd")


def test_a_sound_installation_passes(small: Small) -> None:
    checked = check_ownership(small.registry, small.disk)
    assert checked.findings == []
    assert checked.counts == {"packages": 1, "files": 7}


@pytest.mark.parametrize(
    ("breaking", "says", "path"),
    [
        (_alter, "is not what PKG-GREET-001 installed", AGENT),
        (_orphan, "belongs to no package", "HO1/contracts/PRC-STRAY-001.json"),
        (_missing, "is missing", AGENT),
        (_twice, "is owned by PKG-GREET-001 and by PKG-OTHER-001", AGENT),
        (_twin, "is owned by PKG-OTHER-001, and", "HO2/agents/GREETER.json"),
        (_reserved, "where no package may own anything", "HOT/keys/packages.pem"),
        (_link, "is a link", "HO1/link"),
    ],
)
def test_each_way_of_not_being_what_was_installed_is_found(
    small: Small, breaking: Callable[[Small], None], says: str, path: str
) -> None:
    breaking(small)
    findings = check_ownership(small.registry, small.disk).findings
    found = [one for one in findings if says in one.message]
    assert [one.path for one in found] == [path], findings
    assert found[0].next_step


def test_nothing_installed_does_not_pass(small: Small) -> None:
    checked = check_ownership(Registry(), small.disk)
    assert "No package is installed" in checked.findings[0].message
    assert len(checked.findings) == 1 + len(small.files)


def test_registries_on_disk_are_those_of_the_ledger(small: Small) -> None:
    registry = small.registry
    there = {f"HOT/registries/{name}": data for name, data in registry.documents().items()}

    def read(path: str) -> bytes:
        if path not in there:
            raise FileNotFoundError(path)
        return there[path]

    names = list(registry.documents())
    assert check_registries(registry, read, names).passed
    there["HOT/registries/packages.json"] += b" "
    del there["HOT/registries/specs.json"]
    findings = check_registries(registry, read, [*names, "stray.json"]).findings
    assert [one.path.rpartition("/")[2] for one in findings] == [
        "packages.json", "specs.json", "stray.json",
    ]  # fmt: skip
    assert "is not what the ledger says" in findings[0].message
    assert "is missing" in findings[1].message
    assert "none of the registries" in findings[2].message


def test_a_module_is_governed_by_the_longest_name(small: Small) -> None:
    small.told["modules"] = ["remit"]
    small.more["PKG-LEDGER-001"] = ({}, {"modules": ["remit.ledger"]})
    checked = check_modules(small.registry, Code().modules())
    assert checked.passed
    assert checked.counts == {"modules": 3}


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (["remit.ledger"], [], "No package governs the module remit."),
        (["remit"], ["remit"], "both say that they govern remit"),
        (["remit"], ["remit.gone"], "governs remit.gone, which the running code does not have"),
        ([], [], "No package governs the module remit.ledger"),
    ],
)
def test_a_module_has_exactly_one_package(
    small: Small, first: list[str], second: list[str], says: str
) -> None:
    small.told["modules"] = first
    small.more["PKG-OTHER-001"] = ({}, {"modules": second})
    findings = check_modules(small.registry, Code().modules()).findings
    assert says in " ".join(one.message for one in findings)


def test_no_module_at_all_does_not_pass(small: Small) -> None:
    assert not check_modules(small.registry, {}).passed


def test_running_code_is_that_of_its_record_or_waived() -> None:
    assert check_running_code(Code(), "").passed
    (finding,) = check_running_code(Code(wrong=("remit/x.py was changed.",)), "").findings
    assert finding.message == "remit/x.py was changed."
    (finding,) = check_running_code(Code(editable=True), "").findings
    assert "editable install" in finding.message
    assert check_running_code(Code(editable=True), "LED-00000001").passed
    wrong = Code(editable=True, wrong=("METADATA was changed.",))
    (finding,) = check_running_code(wrong, "LED-00000001").findings
    assert finding.message == "METADATA was changed."
    assert len(check_running_code(wrong, "").findings) == 2
