"""The page for readers of the original design maps all of its words, and the README leads there."""

from __future__ import annotations

import pytest

from tests.docs.test_docs import TOP

PAGE = (TOP / "docs/concepts.md").read_text("utf-8")
ORIGINAL = """
HOT | HO2 | HO1 | plane root | plane | tier | FMWK- | SPEC- | PKG-
G0A | G0B | G1-COMPLETE | G2 | G5 | 8/8 gates
install.sh --root R --dev | gate_check.py --root R --all --enforce | tar czf | CP_BOOTSTRAP.tar.gz
results files | 13 packages | LedgerEntry | layer 0 | metadata | LED- | HO1/ledger/ho1m.jsonl
HO2/ledger/ho2m.jsonl | HOT/ledger/governance.jsonl | HOT/ledger/packages.jsonl | `write` | `append`
prompt_router.py | llm_gateway.py | PromptRouter | LLMGateway | PromptRequest | PromptResponse
RouterConfig | RouteOutcome | context hash | DISPATCH | three metadata keys | circuit breaker
EXCHANGE | 16 metadata keys | PROMPT_REJECTED | PROMPT_SENT | PROMPT_RECEIVED | finish_reason
content_blocks | PRC-CLASSIFY-001 | PRC-SYNTHESIZE-001 | PRC-EXECUTE-001 | PRM- | boundary
HO1Executor.execute(work_order)
ToolDispatcher | ContractLoader | LLM_CALL | TOOL_CALL | work order
attention | quality gate | session host | SessionManager.add_turn | TURN_RECORDED | degradation
agents do not remember, they read | shell
HOT/admin/main.py --root R --dev | read_file | query_ledger
list_packages | echo hello | list all installed packages | PKG-GENESIS-000 | what did I just say?
three learning loops | operational | governance loop | meta loop | was the question right
TokenBudgeter | routeRequest | ensemble | pipeline | FallbackChainExhaustedError | ζ | zeta
RoutingDecisionRecord | zetaEmitter | κ | rv:sha256:unavailable | thought_record
thought_record_list | router_* | read-only verifier | 64 zeros | reflection | dispatch | exchange
sequence number | frozen value | decision_emitter | remit chat | remit gate check
remit bootstrap build | framework | contract | ledger
"""
WORDS = [word.strip() for line in ORIGINAL.split("\n") for word in line.split("|") if word.strip()]


def test_the_page_maps_every_word_of_the_original_design() -> None:
    assert [word for word in WORDS if word not in PAGE] == []


def test_the_first_screen_of_the_readme_leads_to_the_page() -> None:
    screen = "\n".join((TOP / "README.md").read_text("utf-8").splitlines()[:20])
    assert "Control Plane v2" in screen
    assert "(docs/concepts.md)" in screen


@pytest.mark.parametrize("word", ["plane", "quality gate", "attention", "learning loop"])
def test_the_glossary_explains_the_word(word: str) -> None:
    assert f"| {word} |" in (TOP / "docs/glossary.md").read_text("utf-8")
