"""Sessions written entry by entry, in the shapes of docs/events.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.agents.workorders import trace_hash
from remit.ledger import LedgerClient, LedgerEntry, content

SESSION = "SES-STORY00001"


class Story:
    """Writes one session.

    Args:
        ledger: where.
        session: its id.
        pause: called with seconds wherever time passes; nothing by default.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        session: str = SESSION,
        pause: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.ledger = ledger
        self.session = session
        self.pause = pause
        self.orders = 0
        self.ids: dict[str, str] = {}

    def write(self, event: str, tier: str = "ho2", order: str = "", **metadata: Any) -> str:
        provenance = {"agent_id": "admin-001", "agent_class": "ADMIN", "session_id": self.session}
        if order:
            provenance["work_order_id"] = order
        return self.ledger.write(
            LedgerEntry(
                event,
                order or self.session,
                event,
                f"{event} for {order or self.session}",
                metadata={"provenance": provenance, "scope": {"tier": tier}, **metadata},
            )
        )

    def start(self) -> str:
        return self.write("SESSION_START")

    def end(self) -> str:
        return self.write("SESSION_END", turn_count=0, total_cost={})

    def plan(self, turn: int | None = None, said: Any = "hello", **more: Any) -> str:
        self.orders += 1
        order = f"WO-{self.session}-{self.orders:03d}"
        numbered = {} if turn is None else {"turn_number": turn}
        plan = {
            "wo_type": "synthesize", "tier_target": "ho1", "parent_wo_id": None,
            "input_context": {"user_input": said}, "acceptance_criteria": {"non_empty": True},
            "constraints": {"prompt_contract_id": "PRC-SYNTHESIZE-001", "token_budget": 1000},
        }  # fmt: skip
        self.write("WO_PLANNED", "ho2", order, **{**plan, **numbered, **more})
        self.write("WO_DISPATCHED", "ho2", order)
        return order

    def begin(self, order: str, **more: Any) -> str:
        return self.write("WO_EXECUTING", "ho1", order, contract_version="1.2.0", **more)

    def dispatch(self) -> str:
        return self.ledger.write(
            LedgerEntry(
                "DISPATCH", "PRC-SYNTHESIZE-001", "DISPATCHED", "Dispatching",
                metadata={"contract_id": "PRC-SYNTHESIZE-001", "agent_id": "ho1",
                          "session_id": self.session},
            )
        )  # fmt: skip

    def exchange(
        self,
        order: str = "",
        prompt: Any = "hello",
        response: Any = "hi",
        sent: str | None = None,
        took: float = 0.0,
        **more: Any,
    ) -> str:
        sent = sent or self.dispatch()
        self.pause(took)
        told = {
            "agent_id": "ho1", "session_id": self.session, "work_order_id": order,
            "tier": "ho1" if order else "ho2", "contract_id": "PRC-SYNTHESIZE-001",
            "framework_id": "", "prompt": prompt, "response": response, "outcome": "success",
            "input_tokens": 100, "output_tokens": 20, "context_hash": "00", "model_id": "model-a",
            "dispatch_entry_id": sent, "finish_reason": "stop", "latency_ms": took * 1000,
            "cost_usd": 0.00125, "cost_certainty": "measured", "provider_id": "anthropic",
        }  # fmt: skip
        told = {key: value for key, value in {**told, **more}.items() if value is not None}
        return self.ledger.write(
            LedgerEntry("EXCHANGE", "PRC-SYNTHESIZE-001", "SUCCESS", "Exchange completed",
                        metadata=told)
        )  # fmt: skip

    def fail(self, order: str, **more: Any) -> str:
        told = {
            "outcome": "error", "finish_reason": "error", "response": "", "input_tokens": 0,
            "output_tokens": 0, "cost_usd": 0.0, "error_code": "SERVER_ERROR",
            "error_message": content("529 overloaded"),
        }  # fmt: skip
        return self.exchange(order, **{**told, **more})

    def note(self, order: str, exchange: str, **more: Any) -> str:
        sent = self.ledger.read(exchange).metadata["dispatch_entry_id"] if exchange else ""
        told = {
            "exchange_entry_id": exchange, "dispatch_entry_id": sent,
            "outcome": "success", "model_id": "model-a", "input_tokens": 100,
            "output_tokens": 20, "latency_ms": 1.0,
        }  # fmt: skip
        return self.write("LLM_CALL", "ho1", order, **{**told, **more})

    def ask(self, order: str, **more: Any) -> str:
        exchange = self.exchange(order, **more)
        self.note(order, exchange)
        return exchange

    def intend(self, order: str, key: str, tool: str = "read_file", **arguments: Any) -> str:
        return self.write("TOOL_INTENT", "ho1", order, tool_id=tool, arguments=arguments,
                          idempotency_key=key)  # fmt: skip

    def used(self, order: str, key: str, tool: str = "read_file", **more: Any) -> str:
        told = {
            "status": "ok", "arguments": {}, "result": {"text": "milk"}, "arguments_bytes": 2,
            "result_bytes": 15, "tool_error": "",
        }  # fmt: skip
        return self.write("TOOL_CALL", "ho1", order, tool_id=tool, idempotency_key=key,
                          **{**told, **more})  # fmt: skip

    def done(self, order: str, text: str = "hi") -> str:
        return self.write("WO_COMPLETED", "ho1", order, output_result={"text": text},
                          cost={"total_tokens": 120})  # fmt: skip

    def gate(self, *orders: str, verdict: str = "accept", attempt: int = 1, **more: Any) -> str:
        traced = {
            "work_order_ids": list(orders),
            "trace_hash": trace_hash(self.ledger, orders),
            **more,
        }
        self.write("WO_CHAIN_COMPLETE", "ho2", orders[-1], cost={}, outcome="completed", **traced)
        reasons = [] if verdict == "accept" else ["the answer is empty"]
        return self.write("WO_QUALITY_GATE", "ho2", orders[-1], verdict=verdict, attempt=attempt,
                          **{"reasons": reasons, **traced})  # fmt: skip

    def record(self, number: int, said: Any = "hello", response: Any = "hi", **more: Any) -> str:
        return self.write("TURN_RECORDED", turn_number=number, user_message=said,
                          response=response, **more)  # fmt: skip

    def turn(self, number: int, said: str = "hello", response: str = "hi") -> str:
        """A plain turn: one order, one call, a gate; returns the order's id."""
        order = self.plan(number, said)
        self.begin(order)
        self.ask(order, prompt=[{"role": "user", "content": said}], response=response)
        self.done(order, response)
        self.gate(order)
        self.record(number, said, response)
        return order


def tell(story: Story) -> None:
    """A session in which everything happens once; ids of note stand in ``story.ids``."""
    ids = story.ids
    story.start()
    story.turn(1, "hello", "Hello! What can I do for you?")
    _parallel(story)
    _resumed(story)
    _refused(story)
    ids["open"] = order = story.plan(5, "delete the old reports", step="clean up")
    story.begin(order)
    ids["asked"] = story.write(
        "APPROVAL_REQUESTED", "ho1", order, tool_id="delete_file", kind="approval",
        arguments={"path": "reports/2024.csv"}, idempotency_key=f"{order}/tool-001",
    )  # fmt: skip
    story.pause(0.3)


def _parallel(story: Story) -> None:
    """Two orders at once, a retry, a tool, something left out."""
    ids, said = story.ids, "compare the two reports"
    attention = {
        "shown": [{"kind": "turn", "ref": "turn 1"}],
        "left_out": [
            {"kind": "turn", "ref": "SES-OTHER0001 turn 7", "why": "over the budget",
             "score": 0.31, "tokens": 1840},
            {"kind": "thread", "ref": "LED-00000003", "why": "closed", "score": 0.1, "tokens": 12},
        ],
    }  # fmt: skip
    left = story.plan(2, said, step="read left", wo_type="execute", attention=attention)
    right = story.plan(2, said, step="read right", wo_type="execute")
    ids["left"], ids["right"] = left, right
    story.begin(left)
    story.begin(right)
    ids["lost"] = story.dispatch()
    sent = story.dispatch()
    ids["failed"] = story.fail(right, took=0.12)
    ids["retried"] = again = story.exchange(
        right, prompt=[{"role": "system", "content": "You read reports."},
                       {"role": "user", "content": "read right"}],
        response="Revenue is flat.", attempt=2, retry_of=ids["failed"], took=0.25,
        requested_model_id="model-b", cached_input_tokens=64,
    )  # fmt: skip
    wants = [{"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "left.txt"}}]
    ids["first"] = story.exchange(
        left, sent=sent, prompt=[{"role": "user", "content": "read left"}], response="",
        took=0.1, content_blocks=wants, tools=[{"name": "read_file", "input_schema": {}}],
        finish_reason="tool_use", cost_usd=None, cost_certainty="unpriced",
    )  # fmt: skip
    story.note(right, again)
    ids["done"] = story.done(right, "Revenue is flat.")
    story.note(left, ids["first"])
    ids["intent"] = story.intend(left, f"{left}/tool-001", path="left.txt")
    story.pause(0.15)
    ids["tool"] = story.used(
        left, f"{left}/tool-001", arguments={"path": "left.txt"},
        result={"text": "Revenue grew by 4 %.\nCosts fell.", "bytes": 33},
    )  # fmt: skip
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "Revenue grew by 4 %."}]
    story.ask(left, took=0.2, response="Revenue grew.", prompt=[
        {"role": "user", "content": "read left"}, {"role": "assistant", "content": wants},
        {"role": "user", "content": result}])  # fmt: skip
    story.done(left, "Revenue grew.")
    merge = story.plan(2, said, step="compare", depends_on=[left, right], parent_wo_id=left)
    story.begin(merge)
    story.ask(merge, took=0.3, response="Left grew by 4 %, right is flat.",
              prompt=[{"role": "user", "content": "Compare: grew / flat"}])  # fmt: skip
    story.done(merge, "Left grew by 4 %, right is flat.")
    ids["gate"] = story.gate(left, right, merge)
    story.record(2, said, "Left grew by 4 %, right is flat.")
    # Long after its order ended: another process settles what a dead one had sent.
    ids["late"] = story.ledger.write(
        LedgerEntry(
            "EXCHANGE_ORPHANED", "PRC-SYNTHESIZE-001", "ORPHANED", "The process ended",
            metadata={"dispatch_entry_id": ids["lost"], "session_id": story.session,
                      "agent_id": "ho1", "contract_id": "PRC-SYNTHESIZE-001",
                      "work_order_id": left, "settlement": "charge", "settled_tokens": 500,
                      "cost_usd": 0.002, "cost_certainty": "upper_bound"},
        )
    )  # fmt: skip


def _resumed(story: Story) -> None:
    """A crash between intent and result, a resumption, an approval that a person gave."""
    ids = story.ids
    ids["resumed"] = order = story.plan(3, "send the summary")
    story.begin(order)
    ids["unknown"] = story.intend(order, f"{order}/tool-001", "send_mail", to="ada@example.com")
    story.begin(order, resumed=True)
    ids["question"] = request = story.write(
        "APPROVAL_REQUESTED", "ho1", order, tool_id="send_mail", kind="unknown_outcome",
        arguments={"to": "ada@example.com"}, idempotency_key=f"{order}/tool-001",
    )  # fmt: skip
    story.pause(0.4)
    # The person's answer names no session: it is found by the question.
    ids["granted"] = story.ledger.write(
        LedgerEntry(
            "APPROVAL_GRANTED", request, "GRANTED", "Granted",
            metadata={"request_id": request, "decided_by": "grace",
                      "decision_reason": content("the outbox was empty")},
        )
    )  # fmt: skip
    key = f"{order}/tool-002"
    story.intend(order, key, "send_mail", to="ada@example.com")
    story.used(order, key, "send_mail", result={"sent": True})
    story.done(order, "It is sent.")
    story.gate(order)
    story.record(3, "send the summary", "It is sent.")


def _refused(story: Story) -> None:
    """An answer that is rejected twice, a tool that may not be used, an escalation."""
    ids, said = story.ids, "what did the board decide?"
    orders = []
    for attempt in (1, 2):
        order = story.plan(4, said, attempt=attempt)
        story.begin(order)
        story.used(order, f"{order}/tool-001", "unknown", status="refused", result=None,
                   tool_error="tool_not_allowed: this work order may use read_file")  # fmt: skip
        ids[f"empty{attempt}"] = story.ask(order, prompt=said, response="", took=0.1, cost_usd=0.0)
        story.done(order, "")
        orders.append(order)
        story.gate(*orders, verdict="reject", attempt=attempt)
    story.write("ESCALATION", "ho2", orders[-1], reasons=["the answer is empty"],
                work_order_ids=orders)  # fmt: skip
    ids["escalated"] = orders[-1]
    story.record(4, said, "I have no answer that passes my checks.")


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
