"""A journey as a tree for the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.kernel.message_text import count, dollars
from remit.views import wire_text, wording
from remit.views.phrases import contract_of, failure, reasons, turn_state, turn_title

_STYLES = {"plain": "", "bold": "1", "dim": "2", "good": "32", "bad": "31", "wait": "33",
           "name": "36"}  # fmt: skip
_MIN_COLUMNS = 20  # Texts stay readable at any depth.
_WHERE = ("entry_id", "timestamp", "offset_ms")
_HIDDEN = (
    "event_type", "kind", "details", "started_at", "elapsed_ms", "session_id", "scope", "wo_id",
    "work_order_id", "agent_id",
)  # fmt: skip

_Part = tuple[str, str]
"""A text and the name of its style."""


def journey_text(
    journey: Mapping[str, Any], *, colour: bool, width: int, full: bool = False
) -> Iterator[str]:
    r"""Yield the lines of a journey as a tree for the terminal, without line ends.

    Control characters from the ledger are written out as ``\x1b``, so they have no effect. The
    requested order or entry is marked.

    Args:
        journey: a result of :func:`prompt_journey` or :func:`open_journey`. Its turns are read
            once, as the lines are taken.
        colour: True to mark states by ANSI colours.
        width: columns of the terminal; longer heads are continued on a line below, and longer
            texts are cut, but never below 20 columns.
        full: True to cut and continue nothing, and to show whole prompts, the plans of orders and
            the items left out of the context; False shows only the last message of a prompt.

    Raises:
        LedgerError: the journey is from :func:`open_journey`, and the ledger cannot be read.
    """
    tree = _Tree(colour, width, full)
    branches = _Branches(full, str(journey.get("focus") or ""))
    yield from tree.lines(_session(journey))
    turns = iter(journey["turns"])
    turn = next(turns, None)
    while turn is not None:
        following = next(turns, None)
        yield from tree.branch(branches.turn(turn), "", following is None)
        turn = following


def _session(journey: Mapping[str, Any]) -> _Node:
    totals = journey.get("totals") or {}
    nouns = {"turns": "turn", "llm_calls": "model call", "tool_calls": "tool call"}
    parts = [
        str(journey.get("agent_id") or ""),
        wording.moment(journey.get("started_at")),
        *(count(totals[name], noun) for name, noun in nouns.items() if totals.get(name)),
        *_used(totals),
    ]
    return _Node([(str(journey["session_id"]), "bold"), *_dim(*parts)])


class _Branches:
    """Makes nodes of data."""

    def __init__(self, full: bool, focus: str) -> None:
        self._full = full
        self._focus = focus

    def turn(self, turn: Mapping[str, Any]) -> _Node:
        """Return the node of a turn."""
        lasted = wording.duration(turn.get("elapsed_ms"))
        node = _Node(
            [
                (turn_title(turn), "bold"),
                _state(turn_state(turn)),
                *_dim(lasted, *_used(turn), wording.moment(turn["started_at"])),
                self._id(turn.get("entry_id")),
            ]
        )
        if turn.get("user_message") is not None:
            node.below.append(_content("user", turn["user_message"]))
        if turn.get("left_out"):
            node.below.append(self._left_out(turn["left_out"]))
        node.below += [self._order(order) for order in turn["work_orders"]]
        node.below += [self._step(step) for step in turn["calls"]]
        for gate in turn["gates"]:
            head = [("gate", "plain"), _state(gate.get("verdict"))]
            node.below.append(self._event(head, gate, body=reasons(gate)))
        for name, style in (("escalation", "bad"), ("degradation", "wait")):
            if event := turn.get(name):
                code = str(event.get("error_code") or "")
                node.below.append(self._event([(name, style)], event, code, body=reasons(event)))
        node.below += [self._note(note) for note in turn["notes"]]
        if turn.get("response") is not None:
            node.below.append(_content("answer", turn["response"], "bold"))
        return node

    def _order(self, order: Mapping[str, Any]) -> _Node:
        state = "waiting" if order.get("waiting_for") else order.get("state")
        attempt = order.get("attempt") or 1
        ids = [str((order.get(key) or {}).get("entry_id") or "") for key in ("planned", "ended")]
        node = _Node(
            [
                self._marked(str(order["wo_id"]), "name"),
                (str(order.get("step") or order.get("wo_type") or ""), "plain"),
                *_dim(contract_of(order), f"attempt {attempt}" if attempt != 1 else ""),
                _state(state),
                *_when(order, *_used(order)),
                self._id("…".join(entry for entry in ids if entry)),
            ]
        )
        if order.get("depends_on"):
            node.below.append(_Node(_dim("depends on"), ", ".join(map(str, order["depends_on"]))))
        if self._full and order.get("planned"):
            plan = {k: v for k, v in order["planned"].items() if k not in _WHERE}
            node.below.append(_content("plan", plan))
        node.below += [self._step(step) for step in order["steps"]]
        if ended := order.get("ended"):
            if ended["event_type"] == "WO_FAILED":
                head = [("failed", "bad"), self._id(ended["entry_id"])]
                node.below.append(_Node(head, failure(ended)))
            else:
                node.below.append(_content("result", ended.get("output_result")))
        return node

    def _step(self, step: Mapping[str, Any]) -> _Node:
        match step.get("kind"):
            case "model_call":
                return self._call(step)
            case "tool_call":
                return self._tool(step)
            case "approval":
                return self._approval(step)
            case "orphaned_call":
                settled = f"settled at {count(step.get('settled_tokens') or 0, 'token')}"
                head = [("model call without an answer: the process died", "bad")]
                return self._event(head, step, settled)
            case "resumed":
                return self._event([("resumed", "wait")], step)
        details = step.get("details") or {}
        if aside := wording.set_aside(details):
            head = [("set aside", "bad")]
            failed = f"failed: {', '.join(wording.failures(details))}"
            return self._event(head, step, aside, body=failed)
        return self._note({**details, **step})

    def _tool(self, step: Mapping[str, Any]) -> _Node:
        entry = step.get("entry_id") or "".join(step["intent_entry_ids"][-1:])
        head = [("tool", "plain"), (str(step.get("tool_id")), "name"), _state(step.get("status"))]
        node = _Node([*head, *_when(step), self._id(entry)])
        node.below.append(_content("arguments", step.get("arguments")))
        if step.get("tool_error"):
            node.below.append(_content("error", step["tool_error"], "bad"))
        elif step.get("result") is not None:
            node.below.append(_content("result", step["result"]))
        if session := step.get("session"):
            below = _session(session)
            below.below += [self.turn(turn) for turn in session["turns"]]
            node.below.insert(1, below)
        return node

    def _call(self, step: Mapping[str, Any]) -> _Node:
        outcome = str(step.get("outcome"))
        lost = isinstance(step.get("answer"), str) and not step.get("response")
        node = _Node(
            [
                ("model", "plain"),
                (str(step.get("model_id") or ""), "name"),
                (str(step.get("finish_reason") or outcome), wording.tone(outcome)),
                *([("answer not readable", "wait")] if lost and outcome == "success" else []),
                *_when(step, wording.tokens(step), wording.one_cost(step)),
                *([("replayed", "wait")] if step.get("replayed") else []),
                self._id(step.get("entry_id")),
            ]
        )
        for attempt in step.get("attempts") or ():
            head = [("earlier attempt", "bad"), (str(attempt.get("model_id") or ""), "name")]
            head += [*_when(attempt), self._id(attempt["entry_id"])]
            node.below.append(_Node(head, failure(attempt)))
        if "wire" in step:
            messages = [(_speaker(line), line.content) for line in wire_text.said(step)]
        else:
            messages = wording.messages_of(step.get("prompt"))
        if self._full:
            head = [("prompt", "dim"), *_dim(count(len(messages), "message"))]
            node.below.append(_Node(head, "", [_content(*message) for message in messages]))
        elif messages:
            role, content = messages[-1]
            many = len(messages) > 1
            label = f"last of {len(messages)} prompt messages, {role}" if many else "prompt"
            node.below.append(_content(label, content))
        blocks = step.get("content_blocks")
        lines = wire_text.answered(step)
        if step.get("error_message"):
            node.below.append(_Node([("error", "bad")], failure(step)))
        elif lines and (len(lines) > 1 or lines[0].label):
            below = [_content(line.label or "text", line.content) for line in lines]
            node.below.append(_Node([("answer", "dim")], "", below))
        elif lines:
            node.below.append(_content("answer", lines[0].content))
        elif _holds_more_than_text(blocks):
            node.below.append(_content("answer", blocks))
        elif step.get("response") is not None:
            node.below.append(_content("answer", step["response"]))
        return node

    def _approval(self, step: Mapping[str, Any]) -> _Node:
        decided = step.get("decided") or {}
        label = "approval" if step.get("approval_kind") != "unknown_outcome" else "question"
        by = f"by {decided['decided_by']}" if decided.get("decided_by") else ""
        head = [(label, "plain"), (str(step.get("tool_id") or ""), "name"), _state(step["status"])]
        entry = decided.get("entry_id") or step["entry_id"]
        node = _Node([*head, (by, "plain"), *_when(step), self._id(entry)])
        if step["status"] == "waiting" or self._full:
            node.below.append(_content("arguments", step.get("arguments")))
        if decided.get("decision_reason"):
            node.below.append(_content("reason", decided["decision_reason"]))
        return node

    def _left_out(self, items: list[dict[str, Any]]) -> _Node:
        node = _Node(_dim("left out", count(len(items), "item")))
        for item in items if self._full else ():
            parts = [str(item.get(key) or "") for key in ("kind", "ref")]
            node.below.append(_Node(_dim(*parts), wording.text_of(item.get("why", ""))))
        return node

    def _note(self, note: Mapping[str, Any]) -> _Node:
        event = str(note.get("event_type"))
        head = [(wording.words_of(event), "wait")]
        match event:
            case "PROMPT_REJECTED":
                node = self._event(head, note)
                node.below.append(_Node([("reason", "bad")], failure(note)))
                return node
            case "BUDGET_ALLOCATED":
                return self._event(head, note, body=_limits(note))
            case "THOUGHT_RECORD" if note.get("decision_id"):
                return self._event([("routing decision", "wait")], note, str(note["decision_id"]))
        shown = {k: v for k, v in note.items() if k not in (*_WHERE, *_HIDDEN)}
        body = wording.json_text(shown) if shown else ""
        return self._event([*head, *_dim(event)], note, body=body)

    def _event(
        self, head: list[_Part], event: Mapping[str, Any], more: str = "", *, body: str = ""
    ) -> _Node:
        return _Node([*head, *_dim(wording.offset(event), more), self._id(event["entry_id"])], body)

    def _id(self, entry_id: Any) -> _Part:
        return self._marked(str(entry_id or ""), "dim")

    def _marked(self, name: str, style: str) -> _Part:
        focused = self._focus and self._focus in name.split("…")
        return (f"▶ {name}", "bold") if focused else (name, style)


def _content(label: str, value: Any, style: str = "dim") -> _Node:
    return _Node([(label, style)], wording.text_of(value) or "(empty)")


def _limits(note: Mapping[str, Any]) -> str:
    """Return the limits of a budget that was set, such as ``$5.00, 100 calls``."""
    usd, tokens, turns = (note.get(f"{name}_limit") for name in ("usd", "token", "turn"))
    limits = [dollars(usd)] if wording.is_number(usd) else []
    limits += [count(tokens, "token")] if isinstance(tokens, int) else []
    limits += [count(turns, "call")] if isinstance(turns, int) else []
    return ", ".join(limits) or "no limit"


def _speaker(line: wire_text.Line) -> str:
    return f"{line.role} {line.label}" if line.label else line.role


def _holds_more_than_text(blocks: Any) -> bool:
    """Whether an answer's blocks say what its text does not."""
    return isinstance(blocks, list) and any(
        not isinstance(block, dict) or block.get("type") != "text" for block in blocks
    )


def _used(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return tokens and cost as texts; without calls only the cost, or an empty text."""
    if not item.get("llm_calls") and not item.get("orphaned_calls"):
        return (wording.money(item),)
    return wording.tokens(item), wording.money(item)


def _state(state: Any) -> _Part:
    return str(state or ""), wording.tone(str(state or ""))


def _when(item: Mapping[str, Any], *more: str) -> list[_Part]:
    return _dim(wording.offset(item), wording.duration(item.get("elapsed_ms")), *more)


def _dim(*parts: str) -> list[_Part]:
    return [(part, "dim") for part in parts if part.strip()]


@dataclass(slots=True)
class _Node:
    """A line and its children. ``body`` is content, which may be cut to the width."""

    head: list[_Part]
    body: str = ""
    below: list[_Node] = field(default_factory=list)


class _Tree:
    """Makes lines of nodes. What a node says is shown, never obeyed."""

    def __init__(self, colour: bool, width: int, full: bool) -> None:
        self._colour = colour
        self._width = width
        self._full = full

    def lines(self, node: _Node, prefix: str = "", indent: str = "") -> Iterator[str]:
        """Yield the lines of a node without its children."""
        line, columns = prefix, _columns(prefix)
        is_first = True
        for text, style in node.head:
            if shown := _visible(text):
                over = columns + 2 + _columns(shown) - self._width
                if not is_first and over > 0 and not self._full:
                    yield line.rstrip()
                    line, columns = f"{indent}    ", _columns(indent) + 4
                elif not is_first:
                    line, columns = f"{line}  ", columns + 2
                line, columns = line + self._paint(shown, style), columns + _columns(shown)
                is_first = False
        if not node.body:
            yield line.rstrip()
        elif self._full:
            first, *rest = _lines_of(node.body)
            yield f"{line}  {first}".rstrip()
            for more in rest:
                yield f"{indent}    {more}".rstrip()
        elif (room := self._width - columns - 2) >= _MIN_COLUMNS:
            yield f"{line}  {_cut(_visible(node.body), room)}"
        else:
            yield line.rstrip()
            room = max(_MIN_COLUMNS, self._width - _columns(indent) - 4)
            yield f"{indent}    {_cut(_visible(node.body), room)}"

    def branch(self, node: _Node, indent: str, last: bool) -> Iterator[str]:
        """Yield the lines of a node and of all its descendants."""
        beneath = indent + ("   " if last else "│  ")
        stem = "│" if node.below else " "
        yield from self.lines(node, indent + ("└─ " if last else "├─ "), beneath + stem)
        for position, item in enumerate(node.below):
            yield from self.branch(item, beneath, position == len(node.below) - 1)

    def _paint(self, text: str, style: str) -> str:
        code = _STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


def _visible(text: str) -> str:
    """Return ``text`` as a single line without invisible characters."""
    return wording.visible(" ".join(text.split()))


def _lines_of(text: str) -> list[str]:
    return [wording.visible(line.expandtabs(4)) for line in text.splitlines()] or [""]


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _cut(text: str, room: int) -> str:
    if _columns(text) <= room:
        return text
    kept, columns = [], 1
    for char in text:
        columns += _columns(char)
        if columns > room:
            break
        kept.append(char)
    return "".join(kept) + "…"
