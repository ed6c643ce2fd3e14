"""Gate G4: the acceptance cases of packages pass. No model is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from remit.contracts import check_examples
from remit.gateway import split_name
from remit.kernel.schemas import first_problem
from remit.packages.checks.package_view import SHAPES, PackageView
from remit.packages.checks.root_disk import Check, Finding
from remit.providers.prices import Price, PriceTable, Usage

_FIX = "Correct the contract, schema, price or case, in a new version of its package."
_NANO = 1_000_000_000


def check_acceptance(view: PackageView, prices: PriceTable) -> Check:
    """Run all acceptance cases: the examples of contracts, and the cases of acceptance files.

    Yields a finding for each problem of a case, for each contract without a case or example, and if
    there is no case at all. Files that cannot be used are findings too; they were read when the
    view was made. No model is called, and no error is raised.

    Args:
        view: the packages.
        prices: the price table for cases of the kind ``price``.

    Returns:
        One line that says that so many cases and contracts pass, which holds if nothing was
        yielded.
    """
    yield from view.wrong(*SHAPES, "acceptance")
    covered: set[str] = set()  # Ids of contracts with a case.
    for path, cases in view.acceptance.items():
        for case in cases:
            if case["kind"] == "contract":
                covered.add(case["contract_id"])
            for problem in _KINDS[case["kind"]](view, case, prices):
                yield Finding(f"{path}, case {case['name']!r}: {problem}", _FIX)
    for contract_id, versions in view.contracts.items():
        for contract, _ in versions:
            if contract.examples:
                covered.add(contract_id)
            pack = view.packs.get(contract.prompt_pack_id)
            if pack is not None:  # A missing pack is a finding of PackageView.wrong.
                for problem in check_examples(contract, pack):
                    yield Finding(problem, _FIX)
        if contract_id not in covered:
            problem = f"{contract_id} has no acceptance case and no example."
            yield Finding(
                problem, "Add an example to the contract, in a new version of its package."
            )
    count = sum(len(cases) for cases in view.acceptance.values())
    count += sum(len(contract.examples) for contract, _ in view.every_contract())
    if not count:
        yield Finding("No package declares an acceptance case.", "Run `remit init`.")
    return f"{count} acceptance cases pass, including those of {len(view.contracts)} contracts"


def _contract(view: PackageView, case: Mapping[str, Any], _: PriceTable) -> Iterator[str]:
    """Yield problems of rendering an input and of checking an output by a contract."""
    contract = view.newest(case["contract_id"])
    pack = view.packs.get(contract.prompt_pack_id) if contract else None
    if contract is None or pack is None:
        yield f"the contract {case['contract_id']} is not installed or not valid."
        return
    example = {"input": case["input"], "renders": list(case.get("renders", ()))}
    valid = case.get("output_valid", True)
    if "output" in case and valid:
        example["output"] = case["output"]
    yield from check_examples(replace(contract, examples=(example,)), pack)
    schema = contract.output_schema or {}
    if "output" in case and not valid and not first_problem(schema, case["output"]):
        yield "the output satisfies the contract but must not."


def _schema(view: PackageView, case: Mapping[str, Any], _: PriceTable) -> Iterator[str]:
    """Yield problems of a value that should, or should not, satisfy a schema."""
    path = case["schema"]
    if path not in view.schemas:
        yield f"the schema {path} is not installed or not valid."
        return
    problem = first_problem(view.schemas[path], case["value"])
    if problem and case["valid"]:
        yield f"the value does not satisfy {path}, at {problem}."
    if not problem and not case["valid"]:
        yield f"the value satisfies {path} but must not."


def _price(_: PackageView, case: Mapping[str, Any], prices: PriceTable) -> Iterator[str]:
    """Yield problems of a stated price of one call."""
    found = _prices_of(case["model"], prices)
    if not found:
        yield f"the price table does not contain the model {case['model']}."
    usage = Usage(case["input_tokens"], case["output_tokens"])
    for price in found:
        nano, stated = price.cost_nano(usage), Decimal(case["usd"])
        if nano != stated * _NANO:
            usd = f"{Decimal(nano) / _NANO:f}"
            yield f"a call of {price.provider}/{price.model} costs {usd} USD, not {stated}."


def _prices_of(model: str, prices: PriceTable) -> list[Price]:
    """Return the price of ``provider/model``, or every provider's price of a model's name."""
    providers = sorted({price.provider for price in prices})
    provider, name = split_name(model, providers)
    if provider and (price := prices.find(provider, name)) is not None:
        return [price]
    return [price for one in providers if (price := prices.find(one, model)) is not None]


_KINDS: Mapping[str, Callable[[PackageView, Mapping[str, Any], PriceTable], Iterator[str]]] = {
    "contract": _contract,
    "schema": _schema,
    "price": _price,
}
