"""The scenarios of agentboundary's suite, played by an agent, judged by the suite's own runner.

The release has ten scenarios. A checkout that ``REMIT_AGENTBOUNDARY`` names has forty; the table of
``UNSATISFIED`` states their results. The policy of a scenario is that of an agent of its name,
at the version that Remit records. A scenario that needs an identifier in advance gets Remit's.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

from remit import Runtime
from remit.agents.tools import Tool, ToolError
from remit.testing import ScriptedModel, ToolUse
from tests.receipts.runs import ANYTHING, needs_oracles, receipts_of, verdicts

UNSATISFIED = {
    "05-refund-escalate": "an approval request without a decision is not an action",
    "19-actor-human-validates": "a client's tool call names a key; KEY_CREATED names its user",
    "31-allow-with-blocked-execution": "Remit states deny for an action that it blocked",
    "32-fork-chain-shared-prior": "Remit issues one chain for a run, without forks",
    "35-staging-environment-validates": "Remit records no environment",
    "36-dev-environment-validates": "Remit records no environment",
    "37-execution-failure-with-error-code": "the tool's error text is content; its code is error",
}
"""Scenarios that Remit does not satisfy, with the reason."""

OLD_S = 61.0
"""Seconds that an approval waits in the scenario of a stale one, whose policy allows 60."""

IMPOSSIBLE = {"31-allow-with-blocked-execution", "32-fork-chain-shared-prior"}
"""Scenarios about receipts that Remit never issues."""


def played(place: Path, scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """Play a scenario; return all receipts of the session, in order."""
    action, (policy, *_) = scenario["action"], scenario["setup"]["policies"]
    rule, name = policy["rule"], _tool_of(scenario)
    fails = any(one.get("value") == "failure" for one in action.get("inject", ()))

    def act(**arguments: Any) -> str:
        if fails:
            raise ToolError("STRIPE_502_BAD_GATEWAY")
        return f"done with {len(arguments)}"

    model = ScriptedModel(ToolUse(name, action["arguments"]), "Decided: done, or denied.")
    with Runtime.open(place, create=True, providers={"scripted": model}) as runtime:
        other = Tool("look", "Looks.", ANYTHING, act)
        tools = [other] if rule == "deny" else [other, Tool(name, "Acts.", ANYTHING, act)]
        approve = [name] if rule in ("require-approval", "escalate") else []
        agent = runtime.agent(policy["name"], instructions="Act.", tools=tools, approve=approve)
        session = agent.session()
        session.turn("Act.")
        for request in runtime.approvals.pending() if rule == "require-approval" else ():
            by = scenario["setup"]["approvals"][0]["approver"]["id"]
            runtime.approvals.decide(request.request_id, granted=True, by=by)
            if scenario["name"] == "11-stale-approval":
                time.sleep(OLD_S)
            session.resume()
        return receipts_of(runtime.ledger, str(session.session_id), _kind_of(scenario))


def _tool_of(scenario: dict[str, Any]) -> str:
    return str(scenario["action"]["tool"]["capability"]).replace(".", "-")


def _kind_of(scenario: dict[str, Any]) -> Any:
    injected = [one.get("value") for one in scenario["action"].get("inject", ())]
    return "agentboundary-0.2" if "agentboundary/v0.2-alpha" in injected else "agentboundary"


def case_of(scenario: dict[str, Any], receipts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a case for the suite: the receipt, and the scenario in terms of this ledger.

    A receipt that the suite is to accept stays as it is; one that it is to refuse is edited by the
    suite.
    """
    one = copy.deepcopy(scenario)
    setup, expect = one["setup"], one["expect"]
    receipt = receipts[-2] if len(receipts) > 2 else receipts[0]
    if receipt["tool"]["capability"] == "model.call":
        return {"scenario": one, "receipt": None, "decision": setup["policies"][0]["rule"]}
    for policy in setup["policies"]:
        policy["version"] = receipt["policy"]["version"]
    if "seed_receipt_id" in setup:
        setup["prior_receipt_ids"] = [receipt["receipt_id"]]
    if "prior_receipt" in receipt:
        known = {name["receipt_id"]: name["receipt_hash"] for name in receipts}
        setup["prior_receipt_hashes"] = known
    if expect.get("receipt_must_validate", True) and not expect.get("failures_must_include"):
        one["action"].pop("inject", None)
    decision = "deny" if receipt["policy"]["decision"] == "deny" else "allow"
    return {"scenario": one, "receipt": receipt, "decision": decision}


@needs_oracles
def test_the_suite_says_what_the_list_states(tmp_path: Path) -> None:
    scenarios = [one for one in verdicts("scenarios", []) if one["name"] not in IMPOSSIBLE]
    cases = []
    for one in scenarios:
        cases.append(case_of(one, played(tmp_path / one["name"], one)))
    failures = verdicts("suite", cases)
    found = dict(zip((one["name"] for one in scenarios), failures, strict=True))
    print(json.dumps(found, indent=1))
    assert UNSATISFIED.keys() >= IMPOSSIBLE
    assert {name for name, said in found.items() if said} == UNSATISFIED.keys() & found.keys()
