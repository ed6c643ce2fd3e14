"""A ledger with one of everything that an auditor's report lists, as docs/events.md has it."""

from __future__ import annotations

from typing import Any

from remit.ledger import LedgerClient, LedgerEntry, content
from tests.views.story import Story

__all__ = ["SAID", "tell_auditor"]

SAID = "a prompt, which is not in the report"


def tell_auditor(ledger: LedgerClient, *, calls: int = 5, said: str = "because") -> dict[str, str]:
    """Write it; ids of note by name.

    Args:
        ledger: where.
        calls: how many good calls.
        said: what people and programs say wherever they may.
    """
    ids: dict[str, str] = {}

    def write(event: str, subject: str, decision: str, reason: Any = said, **metadata: Any) -> str:
        entry = LedgerEntry(event, subject, decision, reason, metadata=metadata)
        ids[event] = ledger.write(entry)
        return ids[event]

    _governance(write, said)
    story = Story(ledger, "SES-AUDIT00001")
    for number in range(calls):
        ids["call"] = story.exchange(
            prompt=[{"role": "user", "content": SAID}], response=f"answer {number}",
            key_id=f"KEY-{number % 2}", contract_version="1.0.0", agent_id=f"agent {said}",
            model_id=f"model-{number % 3}", price_version="p1", cost_usd=0.001_000_001 * number,
        )  # fmt: skip
    ids["failed"] = story.fail("", key_id="KEY-0", cost_usd=None, cost_certainty=None)
    story.exchange(cost_usd=None, cost_certainty="unpriced", user_id=f"user {said}")
    story.exchange(cost_usd=1234.5, cost_certainty="estimated", model_id="model-dear")
    write("EXCHANGE_ORPHANED", "PRC-SYNTHESIZE-001", "ORPHANED", dispatch_entry_id=story.dispatch(),
          session_id=story.session, agent_id="ho1", contract_id="PRC-SYNTHESIZE-001",
          settlement="charge", settled_tokens=100, cost_usd=0.5,
          cost_certainty="upper_bound")  # fmt: skip
    for code in ("BUDGET_EXHAUSTED", "BUDGET_EXHAUSTED", "AUTH_ERROR"):
        write("PROMPT_REJECTED", "PRC-SYNTHESIZE-001", "REJECTED", content(f"{code}: {SAID}"),
              agent_id=said, session_id=story.session, contract_id="PRC-SYNTHESIZE-001",
              error_code=code, error_message=content(SAID))  # fmt: skip
    write("BUDGET_DEBIT", story.session, "DEBITED", scope=f"session:{said}", cost_usd=0.25,
          session_id=story.session, input_tokens=0, output_tokens=0, model_id="")  # fmt: skip
    return ids


def _governance(write: Any, said: str) -> None:
    provenance = {"agent_id": "admin-001", "agent_class": "ADMIN", "session_id": "SES-AUDIT00001"}
    for number in range(2):
        write("KEY_CREATED", f"KEY-{number}", "CREATED", key_id=f"KEY-{number}", name=said,
              prefix="rk-", requested_by="root", role="agent", models=["model-0", said], agents=[],
              tiers=[], expires=None, user_id="u-1", team_id="", organisation_id="")  # fmt: skip
    write("KEY_REVOKED", "KEY-9", "REVOKED", key_id="KEY-9", name=said, prefix="rk-",
          requested_by="root")  # fmt: skip
    write("BUDGET_ALLOCATED", "key:KEY-0", "ALLOCATED", scope="key:KEY-0", session_id="",
          token_limit=None, turn_limit=None, usd_limit=5.5, by=said)  # fmt: skip
    write(
        "CONFIG_CHANGED",
        "settings",
        "CHANGED",
        by="root",
        settings_sha256="0" * 64,
        settings={"gateway.timeout_ms": {"was": 1, "is": 1.5e-7}, said[:40]: {"was": [None]}},
    )
    write("INSTALLED", "PKG-A-001", "INSTALLED", package_id="PKG-A-001", version="1.0.0",
          operation="install", operation_id="OP-1", previous_version="", archive_sha256="0" * 64,
          manifest_sha256="0" * 64, manifest={}, source=said, signature={},
          permissions_widened=[], approved_by="", by="root")  # fmt: skip
    write("REMOVED", "PKG-A-001", "REMOVED", package_id="PKG-A-001", version="1.0.0",
          operation_id="OP-2", by="root")  # fmt: skip
    decided = {"proposal_id": "PRO-1", "kind": "prompt", "package_id": "PKG-L-001", "by": "root",
               "role": "admin", "decision_reason": said}  # fmt: skip
    adopted = {**decided, "version": "1.1.0", "previous_version": "1.0.0", "policy_epoch": 1}
    write("SIGNAL_REJECTED", "PRO-0", "REJECTED", **decided)
    write("SIGNAL_ADOPTED", "PRO-1", "ADOPTED", **adopted)
    write("SIGNAL_ROLLED_BACK", "PRO-1", "ROLLED_BACK", **adopted)
    answer = {"provenance": provenance, "scope": {"tier": "hot"}, "request_id": "LED-00000001",
              "tool_id": said, "decided_by": "anna"}  # fmt: skip
    write("APPROVAL_DENIED", "WO-1", "DENIED", **answer, decision_reason=content(said))
    write("APPROVAL_GRANTED", "WO-1", "GRANTED", **answer, decision_reason=content(said),
          arguments_hash="0" * 64)  # fmt: skip
