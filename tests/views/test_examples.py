"""Examples of a prompt are marked as such and folded; events and codes have plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit.contracts import ContractLoader
from remit.kernel.installation import InstalledFiles
from remit.ledger import EVENTS
from remit.runtime import Runtime
from remit.server import refusals
from remit.views import journey_page, wording
from tests.support.roots import new_root

CLASSIFY = "PRC-CLASSIFY-001"


@pytest.fixture
def contracts(tmp_path: Path) -> ContractLoader:
    root = new_root(tmp_path / "root", "")
    with Runtime.open(root) as runtime:
        return ContractLoader(runtime.root.tier("ho1"), installed=InstalledFiles(root))


def _journey(prompt: Any, **more: Any) -> dict[str, Any]:
    call = {"kind": "model_call", "outcome": "success", "model_id": "m", "contract_id": CLASSIFY,
            "prompt": prompt, "response": "{}", "input_tokens": 1, "output_tokens": 1,
            "cost_usd": 0.0, **more}  # fmt: skip
    turn = {"kind": "turn", "turn_number": 1, "work_orders": [], "calls": [call], "gates": [],
            "notes": [], "started_at": "2026-01-01T00:00:00.000000Z"}  # fmt: skip
    return {"session_id": "SES-EXAMPLES", "turns": [turn], "totals": {"turns": 1}}


def _prompt(contracts: ContractLoader) -> list[dict[str, str]]:
    pack = contracts.load_pack(contracts.load(CLASSIFY).prompt_pack_id)
    return [dict(one) for one in pack.render({"user_input": "hello"})]


@pytest.mark.parametrize("more", [{}, {"wire": "chat"}])
def test_the_examples_of_a_pack_are_folded(contracts: ContractLoader, more: Any) -> None:
    prompt = _prompt(contracts)
    page = journey_page(_journey(prompt, **more), contracts)
    folded = page.partition('<details class="more examples"><summary>Examples (8)</summary>')[2]
    folded, _, rest = folded.partition("</details>")
    assert folded.count('class="who">user<') == folded.count('class="who">assistant<') == 8
    assert "good morning" in folded
    assert 'class="who">user<' in rest  # what was asked, though it reads as an example does
    assert "Classify the user" not in folded


def test_what_is_no_example_of_the_pack_is_not_marked(contracts: ContractLoader) -> None:
    prompt = _prompt(contracts)
    assert "Examples (" not in journey_page(_journey(prompt))
    other = _journey(prompt, contract_id="PRC-OTHER-001")
    assert "Examples (" not in journey_page(other, contracts)
    prompt[2]["content"] = "something else"
    assert "Examples (7)" in journey_page(_journey(prompt), contracts)


def test_every_event_has_words() -> None:
    assert set(EVENTS) <= set(wording.WORDS)
    assert {*refusals.REJECTED, *refusals._FAILED} <= set(wording.WORDS)
    assert all(words[0].islower() or words.startswith("MCP") for words in wording.WORDS.values())


def test_a_machines_word_is_there_on_demand() -> None:
    journey = _journey("hi", outcome="rejected", error_code="BUDGET_EXHAUSTED", error_message="x")
    journey["turns"][0]["notes"] = [{"kind": "note", "event_type": "BUDGET_ALLOCATED"}]
    page = journey_page(journey)
    assert '<span title="BUDGET_ALLOCATED">budget set</span>' in page
    assert '<span title="BUDGET_EXHAUSTED">the budget is spent</span>' in page
