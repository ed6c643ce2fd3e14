"""A journey as a tree for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.views.tree import Node, Part, Tree
from remit.views.wording import (
    contract_of,
    count,
    duration,
    failure,
    json_text,
    messages_of,
    moment,
    money,
    offset,
    one_cost,
    reasons,
    text_of,
    tokens,
    tone,
    turn_title,
)

__all__ = ["journey_text"]


def journey_text(
    journey: Mapping[str, Any], *, colour: bool, width: int, full: bool = False
) -> Iterator[str]:
    """The lines of a tree, without line ends.

    What the ledger holds is shown, never obeyed: control characters stand as ``\\x1b``.

    Args:
        journey: of :func:`prompt_journey` or :func:`open_journey`; its turns are gone through
            once, each when the lines before it were taken.
        colour: mark states by ANSI colours.
        width: columns; longer texts are cut.
        full: cut nothing, and show whole prompts.
    """
    tree = Tree(colour, width, full)
    branches = _Branches(full, str(journey.get("focus") or ""))
    yield from tree.lines(_session(journey))
    turns = iter(journey["turns"])
    turn = next(turns, None)
    while turn is not None:
        following = next(turns, None)
        yield from tree.branch(branches.turn(turn), "", following is None)
        turn = following


def _session(journey: Mapping[str, Any]) -> Node:
    totals = journey.get("totals") or {}
    parts = [
        str(journey.get("agent_id") or ""),
        moment(journey.get("started_at")),
        count(totals.get("turns") or 0, "turn"),
        count(totals.get("llm_calls") or 0, "model call"),
        count(totals.get("tool_calls") or 0, "tool call"),
        tokens(totals),
        money(totals),
    ]
    return Node([(str(journey["session_id"]), "bold"), *_dim(*parts)])


class _Branches:
    """Makes nodes of data."""

    def __init__(self, full: bool, focus: str) -> None:
        self._full = full
        self._focus = focus

    def turn(self, turn: Mapping[str, Any]) -> Node:
        """One turn."""
        outcome = str(turn.get("outcome") or "")
        node = Node(
            [
                (turn_title(turn), "bold"),
                (outcome, tone(outcome)),
                *_dim(duration(turn.get("elapsed_ms")), _used(turn), moment(turn["started_at"])),
                self._id(turn.get("entry_id")),
            ]
        )
        if turn.get("user_message") is not None:
            node.below.append(self._content("user", turn["user_message"]))
        if turn.get("left_out"):
            node.below.append(self._left_out(turn["left_out"]))
        node.below += [self._order(order) for order in turn["work_orders"]]
        node.below += [self._step(step) for step in turn["calls"]]
        node.below += [self._gate(gate) for gate in turn["gates"]]
        for name, style in (("escalation", "bad"), ("degradation", "wait")):
            if event := turn.get(name):
                node.below.append(self._verdict(name, style, event))
        node.below += [self._note(note) for note in turn["notes"]]
        if turn.get("response") is not None:
            node.below.append(self._content("answer", turn["response"], "bold"))
        return node

    def _order(self, order: Mapping[str, Any]) -> Node:
        state = "waiting" if order.get("waiting_for") else str(order.get("state") or "")
        attempt = order.get("attempt") or 1
        ids = [str((order.get(key) or {}).get("entry_id") or "") for key in ("planned", "ended")]
        node = Node(
            [
                self._marked(str(order["wo_id"]), "name"),
                (str(order.get("step") or order.get("wo_type") or ""), "plain"),
                *_dim(contract_of(order), f"attempt {attempt}" if attempt != 1 else ""),
                (state, tone(state)),
                *_dim(offset(order), duration(order.get("elapsed_ms")), _used(order)),
                self._id("…".join(entry for entry in ids if entry)),
            ]
        )
        if order.get("depends_on"):
            node.below.append(Node(_dim("after"), ", ".join(map(str, order["depends_on"]))))
        if self._full and order.get("planned"):
            plan = {k: v for k, v in order["planned"].items() if k not in _WHERE}
            node.below.append(self._content("plan", plan))
        node.below += [self._step(step) for step in order["steps"]]
        if ended := order.get("ended"):
            if ended["event_type"] == "WO_FAILED":
                head = [("failed", "bad"), self._id(ended["entry_id"])]
                node.below.append(Node(head, failure(ended)))
            else:
                node.below.append(self._content("result", ended.get("output_result")))
        return node

    def _step(self, step: Mapping[str, Any]) -> Node:
        kind = step.get("kind")
        when = (offset(step), duration(step.get("elapsed_ms")))
        if kind == "model_call":
            return self._call(step, when)
        if kind == "tool_call":
            status = str(step.get("status"))
            entry = step.get("entry_id") or "".join(step["intent_entry_ids"][-1:])
            node = Node(
                [("tool", "plain"), (str(step.get("tool_id")), "name"), (status, tone(status)),
                 *_dim(*when), self._id(entry)]
            )  # fmt: skip
            node.below.append(self._content("arguments", step.get("arguments")))
            if step.get("tool_error"):
                node.below.append(self._content("error", step["tool_error"], "bad"))
            elif step.get("result") is not None:
                node.below.append(self._content("result", step["result"]))
            return node
        if kind == "approval":
            return self._approval(step, when)
        if kind == "orphaned_call":
            settled = f"settled at {step.get('settled_tokens')} tokens"
            head = [("model call without an answer: its process died", "bad")]
            return Node([*head, *_dim(offset(step), settled), self._id(step["entry_id"])])
        if kind == "resumed":
            head = [("resumed by another process", "wait")]
            return Node([*head, *_dim(offset(step)), self._id(step["entry_id"])])
        return self._note({**(step.get("details") or {}), **step})

    def _call(self, step: Mapping[str, Any], when: tuple[str, str]) -> Node:
        outcome = str(step.get("outcome"))
        node = Node(
            [
                ("model", "plain"),
                (str(step.get("model_id") or ""), "name"),
                (str(step.get("finish_reason") or outcome), tone(outcome)),
                *_dim(*when, tokens(step), one_cost(step)),
                *([("from the record", "wait")] if step.get("replayed") else []),
                self._id(step.get("entry_id")),
            ]
        )
        for attempt in step.get("attempts") or ():
            head = [("attempt before", "bad"), (str(attempt.get("model_id") or ""), "name")]
            when_failed = _dim(offset(attempt), duration(attempt.get("elapsed_ms")))
            node.below.append(
                Node([*head, *when_failed, self._id(attempt["entry_id"])], failure(attempt))
            )
        messages = messages_of(step.get("prompt"))
        if self._full:
            below = [self._content(role, content) for role, content in messages]
            node.below.append(
                Node([("prompt", "dim"), *_dim(count(len(messages), "message"))], "", below)
            )
        elif messages:
            role, content = messages[-1]
            count_ = len(messages)
            label = "prompt" if count_ == 1 else f"prompt of {count_}, last: {role}"
            node.below.append(self._content(label, content))
        uses = step.get("content_blocks")
        if step.get("error_message"):
            node.below.append(Node([("error", "bad")], failure(step)))
        elif _holds_more_than_text(uses):
            node.below.append(self._content("answer", uses))
        elif step.get("response") is not None:
            node.below.append(self._content("answer", step["response"]))
        return node

    def _approval(self, step: Mapping[str, Any], when: tuple[str, str]) -> Node:
        status, decided = str(step["status"]), step.get("decided") or {}
        asked = "approval" if step.get("approval_kind") != "unknown_outcome" else "question"
        by = f"by {decided['decided_by']}" if decided.get("decided_by") else ""
        node = Node(
            [(asked, "plain"), (str(step.get("tool_id") or ""), "name"), (status, tone(status)),
             (by, "plain"), *_dim(*when), self._id(decided.get("entry_id") or step["entry_id"])]
        )  # fmt: skip
        if status == "waiting" or self._full:
            node.below.append(self._content("arguments", step.get("arguments")))
        if decided.get("decision_reason"):
            node.below.append(self._content("because", decided["decision_reason"]))
        return node

    def _gate(self, gate: Mapping[str, Any]) -> Node:
        verdict = str(gate.get("verdict"))
        head = [("gate", "plain"), (verdict, tone(verdict)), *_dim(offset(gate))]
        return Node([*head, self._id(gate["entry_id"])], reasons(gate))

    def _verdict(self, name: str, style: str, event: Mapping[str, Any]) -> Node:
        code = str(event.get("error_code") or "")
        head = [(name, style), *_dim(offset(event), code), self._id(event["entry_id"])]
        return Node(head, reasons(event))

    def _left_out(self, items: list[dict[str, Any]]) -> Node:
        node = Node([("left out", "dim"), *_dim(count(len(items), "item"))])
        for item in items if self._full else ():
            parts = [str(item.get(key) or "") for key in ("kind", "ref")]
            node.below.append(Node(_dim(*parts), text_of(item.get("why", ""))))
        return node

    def _note(self, note: Mapping[str, Any]) -> Node:
        shown = {k: v for k, v in note.items() if k not in (*_WHERE, *_HIDDEN)}
        head = [
            (str(note.get("event_type")), "wait"),
            *_dim(offset(note)),
            self._id(note["entry_id"]),
        ]
        return Node(head, json_text(shown) if shown else "")

    def _content(self, label: str, value: Any, style: str = "dim") -> Node:
        return Node([(label, style)], text_of(value) or "(empty)")

    def _id(self, entry_id: Any) -> Part:
        return self._marked(str(entry_id or ""), "dim")

    def _marked(self, name: str, style: str) -> Part:
        focused = self._focus and self._focus in name.split("…")
        return (f"▶ {name}", "bold") if focused else (name, style)


_WHERE = ("entry_id", "timestamp", "offset_ms")
_HIDDEN = (
    "event_type", "kind", "details", "started_at", "elapsed_ms", "session_id", "scope", "wo_id",
    "work_order_id", "agent_id",
)  # fmt: skip


def _holds_more_than_text(blocks: Any) -> bool:
    """Whether an answer's blocks say what its text does not."""
    return isinstance(blocks, list) and any(
        not isinstance(block, dict) or block.get("type") != "text" for block in blocks
    )


def _used(item: Mapping[str, Any]) -> str:
    """Tokens and cost, where there were calls."""
    if not item.get("llm_calls") and not item.get("orphaned_calls"):
        return ""
    return f"{tokens(item)}  {money(item)}"


def _dim(*parts: str) -> list[Part]:
    return [(part, "dim") for part in parts if part.strip()]
