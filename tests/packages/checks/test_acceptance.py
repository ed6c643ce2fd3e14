"""G4: cases pass or are told, and no contract goes without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from remit.packages.checks import check_acceptance
from remit.packages.registry import Registry
from remit.providers.prices import PriceTable
from tests.packages.checks.building import CASES, CONTRACT, Small

CASES_FILE = "HOT/acceptance/PKG-GREET-001.json"
CONTRACT_FILE = "HO1/contracts/PRC-GREET-001.json"


def _with(small: Small, number: int, **changes: Any) -> None:
    cases = [dict(case) for case in CASES["cases"]]
    cases[number].update(changes)
    small.change(CASES_FILE, cases=cases)


def test_a_sound_package_passes(small: Small) -> None:
    checked = check_acceptance(small.registry, small.disk, PriceTable.shipped())
    assert checked.findings == []
    assert checked.counts == {"cases": 5, "contracts": 1}


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (lambda s: _with(s, 0, renders=["never said"]), "does not contain 'never said'"),
        (lambda s: _with(s, 0, contract_id="PRC-GONE-001"), "PRC-GONE-001 is not installed"),
        (lambda s: _with(s, 0, output_valid=True), "the output, at"),
        (lambda s: _with(s, 0, output={"greeting": 1}), "satisfies the contract, and should not"),
        (lambda s: _with(s, 1, valid=False), "satisfies HOT/schemas/greeting.schema.json, and sho"),
        (lambda s: _with(s, 2, valid=True), "does not satisfy HOT/schemas/greeting.schema.json"),
        (lambda s: _with(s, 1, schema="HOT/schemas/x.schema.json"), "x.schema.json is not install"),
        (lambda s: _with(s, 3, usd="0.76"), "costs 0.75 USD, not 0.76"),
        (lambda s: _with(s, 3, model="openai/none"), "has no model openai/none"),
        (lambda s: s.files.update({CASES_FILE: "{}"}), "is not a valid acceptance"),
        (lambda s: s.missing.append(CASES_FILE), "PKG-GREET-001.json is missing"),
        (
            lambda s: s.change(CONTRACT_FILE, examples=[{"input": {}, "renders": ["hello"]}]),
            "PRC-GREET-001 1.0.0, example 1",
        ),
    ],
)
def test_each_kind_of_case_can_fail(
    small: Small, breaking: Callable[[Small], None], says: str
) -> None:
    breaking(small)
    findings = check_acceptance(small.registry, small.disk, PriceTable.shipped()).findings
    assert says in " | ".join(one.message for one in findings)
    assert all(one.package_id == "PKG-GREET-001" and one.next_step for one in findings)


def test_every_contract_has_a_case(small: Small) -> None:
    prices = PriceTable.shipped()
    small.change(CONTRACT_FILE, examples=None)
    assert check_acceptance(small.registry, small.disk, prices).passed  # by the package's file
    small.change(CASES_FILE, cases=CASES["cases"][1:])
    (finding,) = check_acceptance(small.registry, small.disk, prices).findings
    assert "PRC-GREET-001 has no acceptance case" in finding.message
    small.change(CONTRACT_FILE, examples=CONTRACT["examples"])
    assert check_acceptance(small.registry, small.disk, prices).passed


def test_no_case_at_all_does_not_pass(small: Small) -> None:
    (finding,) = check_acceptance(Registry(), small.disk, PriceTable.shipped()).findings
    assert "No package declares an acceptance case" in finding.message
