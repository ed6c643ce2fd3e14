"""Verify receipts: ``python receipts_oracle.py`` answers each line of standard input with a line.

A line is JSON: ``["agentboundary" or "capsule" or "scenarios" or "suite", CASES]``.

The verdicts are those of ``agentboundary`` (schema and conformance checks, and the suite's own
runner of scenarios) and of ``agent-action-capsule`` (``verify`` and ``verify_store``). This
script's own: reading the cases and writing the codes of what fails. A verifier is imported when
it is asked first, because the import takes seconds.

Releases of agentboundary after 0.1.0 check level 4; 0.1.0 ends with level 3.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any


def agentboundary(cases: list[dict[str, Any]]) -> list[list[str]]:
    """The failed checks of each receipt; the other members of a case are the check's context."""
    from agentboundary import conformance

    known = set(inspect.signature(conformance.check_conformance).parameters)
    level = 4 if "prior_receipt_hashes" in known else 3
    found = []
    for case in cases:
        given = {name: case[name] for name in known & case.keys()}
        if given.get("policy_store") is not None:
            given["policy_store"] = {tuple(one) for one in given["policy_store"]}
        if given.get("prior_receipt_ids") is not None:
            given["prior_receipt_ids"] = {*given["prior_receipt_ids"]}
        checks = conformance.check_conformance(given.pop("receipt"), level, **given)
        found.append([one.code for one in checks if one.severity == "fail"])
    return found


def capsule(cases: list[Any]) -> list[list[str]]:
    """The errors of each capsule; of a list of capsules, those of its store, in its order."""
    from agent_action_capsule import verify, verify_store

    found = []
    for case in cases:
        results = verify_store(case) if isinstance(case, list) else [verify(case)]
        found.append([one.code for result in results for one in result.errors])
    return found


def known_scenarios(_: Any) -> list[dict[str, Any]]:
    """The scenarios that come with the package, or lie in the checkout that is imported."""
    from agentboundary import scenarios

    package = Path(inspect.getfile(scenarios)).parent.parent
    places = [package.parents[1] / "scenarios", package / "_data/scenarios"]
    place = next(one for one in places if one.is_dir())
    return [
        {"name": one.name, "setup": one.setup, "action": one.action, "expect": one.expect}
        for one in scenarios.load_scenarios_dir(place)
    ]


def suite(cases: list[dict[str, Any]]) -> list[list[str]]:
    """What the suite's runner says against each receipt, after the scenario's injections."""
    from agentboundary import cli, runtime, scenarios

    class Given(runtime.Implementation):
        def attempt(self, action: dict[str, Any], *, setup: dict[str, Any]) -> Any:
            receipt = case["receipt"]
            for op in action.get("inject", []):
                receipt = runtime._apply_inject(receipt, op)
            return runtime.RuntimeOutcome(case["decision"], receipt, action.get("arguments", {}))

    found = []
    for case in cases:
        one = scenarios.Scenario(**case["scenario"], description="", path=Path())
        found.append(cli._run_one(one, Given())["failures"])
    return found


if __name__ == "__main__":
    known = {"agentboundary": agentboundary, "capsule": capsule, "scenarios": known_scenarios,
             "suite": suite}  # fmt: skip
    for line in sys.stdin:
        what, cases = json.loads(line)
        print(json.dumps(known[what](cases)), flush=True)
