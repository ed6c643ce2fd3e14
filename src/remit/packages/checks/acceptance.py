"""G4: the acceptance cases that packages declare pass; no model is called (SPEC 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from remit.contracts import check_examples
from remit.kernel.schemas import first_problem
from remit.packages.checks.files import Files
from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.shapes import Shapes, read_shapes
from remit.packages.documents import Acceptance, AcceptanceCase, read_schema
from remit.packages.errors import PackageError
from remit.packages.registry import Registry
from remit.providers.prices import Price, PriceTable, Usage

__all__ = ["check_acceptance"]

_FIX = "Correct the contract, schema, price or case, in a new version of its package."
_NANO = 1_000_000_000


def check_acceptance(registry: Registry, files: Files, prices: PriceTable) -> Checked:
    """Run every case: those of contracts' examples, and those of acceptance files.

    Every installed contract has at least one.

    Args:
        registry: what is installed.
        files: the governed files.
        prices: the table in force.
    """
    return _Run(registry, files, prices).run()


class _Run:
    def __init__(self, registry: Registry, files: Files, prices: PriceTable) -> None:
        self._registry = registry
        self._files = files
        self._prices = prices
        self._shapes: Shapes = read_shapes(registry, files)
        self._findings = list(self._shapes.checked.findings)
        self._shown: set[str] = set()  # contracts with a case
        self._cases = 0
        self._package_id = self._path = ""

    def run(self) -> Checked:
        for path, owner in self._registry.by_classification("acceptance"):
            self._path, self._package_id = path, owner.package_id
            try:
                cases = Acceptance.parse(self._files.read(path), path).cases
            except FileNotFoundError:
                self._fail(f"{path} is missing.", "Run `remit init`, or install the package anew.")
                continue
            except PackageError as error:
                self._fail(error.message, error.next_step or _FIX)
                continue
            for case in cases:
                self._cases += 1
                for problem in _KINDS[case.kind](self, case):
                    self._fail(f"{path}, case {case.name!r}: {problem}", _FIX)
        self._examples()
        if not self._cases:
            self._package_id = self._path = ""
            self._fail("No package declares an acceptance case.", "Run `remit init`.")
        return Checked(
            self._findings, {"cases": self._cases, "contracts": len(self._shapes.contracts)}
        )

    def _examples(self) -> None:
        self._path = ""
        for contract_id, versions in self._shapes.contracts.items():
            for contract, package_id in versions:
                self._package_id = package_id
                self._cases += len(contract.examples)
                if contract.examples:
                    self._shown.add(contract_id)
                pack = self._shapes.packs.get(contract.prompt_pack_id)
                if pack is not None:  # else it is a finding already
                    for problem in check_examples(contract, pack):
                        self._fail(problem, _FIX)
            if contract_id not in self._shown:
                problem = f"{contract_id} has no acceptance case: neither an example nor another."
                self._fail(problem, "Give it an example, in a new version of its package.")

    def _contract(self, case: AcceptanceCase) -> Iterator[str]:
        given = case.fields
        contract = self._shapes.newest(given["contract_id"])
        pack = self._shapes.packs.get(contract.prompt_pack_id) if contract else None
        if contract is None or pack is None:
            yield f"the contract {given['contract_id']} is not installed, or cannot be used."
            return
        self._shown.add(contract.contract_id)
        example: dict[str, Any] = {
            "input": given["input"],
            "renders": list(given.get("renders", ())),
        }
        expected = given.get("output_valid", True)
        if "output" in given and expected:
            example["output"] = given["output"]
        yield from check_examples(replace(contract, examples=(example,)), pack)
        schema = contract.output_schema or {}
        if "output" in given and not expected and not first_problem(schema, given["output"]):
            yield "the output satisfies the contract, and should not."

    def _schema(self, case: AcceptanceCase) -> Iterator[str]:
        path = case.fields["schema"]
        if path not in self._shapes.schemas:
            yield f"the schema {path} is not installed, or cannot be used."
            return
        problem = first_problem(read_schema(self._files.read(path), path), case.fields["value"])
        if problem and case.fields["valid"]:
            yield f"the value does not satisfy {path}, at {problem}."
        if not problem and not case.fields["valid"]:
            yield f"the value satisfies {path}, and should not."

    def _price(self, case: AcceptanceCase) -> Iterator[str]:
        given = case.fields
        found = self._prices_of(given["model"])
        if not found:
            yield f"the table of prices has no model {given['model']}."
        usage = Usage(given["input_tokens"], given["output_tokens"])
        for price in found:
            nano, stated = price.cost_nano(usage), Decimal(given["usd"])
            if nano != stated * _NANO:
                usd = f"{Decimal(nano) / _NANO:f}"
                yield f"a call of {price.provider}/{price.model} costs {usd} USD, not {stated}."

    def _prices_of(self, model: str) -> list[Price]:
        """The price of ``provider/model``; of a model's name, at every provider that has it."""
        provider, slash, name = model.partition("/")
        if slash and (price := self._prices.find(provider, name)) is not None:
            return [price]
        every = {one.provider for one in self._prices}
        found = [self._prices.find(one, model) for one in sorted(every)]
        return [price for price in found if price is not None]

    def _fail(self, message: str, next_step: str) -> None:
        self._findings.append(Finding(message, next_step, self._package_id, self._path))


_KINDS: Mapping[str, Callable[[_Run, AcceptanceCase], Iterator[str]]] = {
    "contract": _Run._contract,
    "schema": _Run._schema,
    "price": _Run._price,
}
