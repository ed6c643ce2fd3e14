"""The guard against repeated effects: which calls of an order would repeat an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.permissions import not_run_again
from remit.agents.workorders import Effect, OrderHistory, action_of, decided_by
from remit.kernel.json_text import JsonTextError, load_exact
from remit.ledger import Erased


class Repeats:
    """Matches the calls of one order with earlier calls that must not be made twice unasked.

    Earlier calls are those of work without an answer, which the order is given, and calls of the
    order itself whose outcome is unknown. Each is matched once, and a person's "no" for good.

    Args:
        given: the effects that the order was given.
        history: the order's calls by the record, which are matched as they were when made.
        tool: returns a tool by its id; ``None`` if the program has it no more.
        interrupted: keys of the order's calls before its program began again.
    """

    def __init__(
        self,
        given: Collection[Effect],
        history: OrderHistory,
        tool: Callable[[str], Tool | None],
        interrupted: Collection[str] = (),
    ) -> None:
        self._tool = tool
        self._open: list[Effect] = []
        self._matched: dict[str, Effect] = {}
        self._denied: dict[str, ToolResult] = {}
        for effect in sorted(given, key=lambda one: one.decision != "granted"):
            if effect.status != "error":
                self._add(effect, tool(effect.tool_id))
        ended_unknown = any(map(history.is_unknown, history.tool_calls))
        if self._open or interrupted or ended_unknown or history.asked_about:
            self._replay(history, interrupted)

    def match(self, tool: Tool, given: Any, key: str) -> Effect | None:
        """Return the earlier call that a call would repeat; ``None`` if it repeats none.

        Args:
            tool: the tool.
            given: its arguments.
            key: the call's idempotency key; the same key matches the same call.
        """
        if key in self._matched or not self._open:
            return self._matched.get(key)
        actions = {action_of(tool.tool_id, given), self._canonical(tool, given)}
        for effect in self._open:
            if effect.tool_id == tool.tool_id and (
                effect.action in actions or self._action_of(effect, tool) in actions
            ):
                self._open.remove(effect)
                self._matched[key] = effect
                return effect
        return None

    def release(self, key: str) -> None:
        """Undo a match: the call was refused for another reason."""
        if (effect := self._matched.pop(key, None)) is not None:
            self._open.insert(0, effect)

    def add(self, tool: Tool, effect: Effect) -> None:
        """Add what an ended call of the order left: an unknown outcome, or a sub-agent's effects.

        Args:
            tool: the tool.
            effect: the call; its status is ``unknown`` if nobody knows whether it took effect.
        """
        inner = [effect] if tool.sub_agent is None else tool.sub_agent.effects(effect.key)
        for one in inner:
            failed = tool.sub_agent is not None and effect.status != "ok"
            if one.is_unknown or (failed and one.status == "ok"):
                self._add(one, self._tool(one.tool_id))

    def _add(self, effect: Effect, tool: Tool | None) -> None:
        listed = (*self._open, *self._matched.values())
        known = effect.key and any(one.key == effect.key for one in listed)
        if not (known or effect.repeatable or (tool is not None and tool.is_repeatable)):
            self._open.append(effect)

    def forget(self, key: str) -> None:
        """Leave out an earlier call that is continued under its own key."""
        self._open = [effect for effect in self._open if effect.key != key]

    def deny(self, tool: Tool, given: Any, result: ToolResult) -> None:
        """Note that a person does not want a call made again: equal calls get ``result``."""
        self._denied[self._canonical(tool, given)] = result

    def denied(self, tool: Tool, given: Any) -> ToolResult | None:
        """Return the result of a call that a person does not want made again."""
        return self._denied.get(self._canonical(tool, given)) if self._denied else None

    def _replay(self, history: OrderHistory, interrupted: Collection[str]) -> None:
        """Match the recorded calls in the order in which they were made."""
        effects = history.effects()
        asked: dict[str, tuple[str, Any]] = {}
        begun, ended = history.last_intents().values(), history.tool_calls.values()
        for entry in sorted([*history.requests, *begun, *ended], key=lambda one: one.id):
            data = entry.metadata
            given = None if isinstance(data["arguments"], Erased) else data["arguments"]
            asked.setdefault(data["idempotency_key"], (data["tool_id"], given))
        answers: dict[str, list[str]] = {}
        for key in asked:
            answers.setdefault(key.rpartition("/")[0], []).append(key)
        for keys in answers.values():
            for key in sorted(keys, key=lambda one: int(one.rpartition("/")[2])):
                tool_id, given = asked[key]
                end = history.tool_calls.get(key)
                refused = key not in effects and end and end.metadata["status"] == "refused"
                tool = self._tool(tool_id)
                if tool is None or refused or key in interrupted:
                    continue
                effect = self.match(tool, given, key)
                request = history.asked_about.get(key)
                said = None if request is None else history.decisions.get(request.id)
                if said is not None and said.event_type == "APPROVAL_DENIED":
                    self.deny(tool, given, not_run_again(tool_id, decided_by(said)))
                elif effect is not None and effect.decision == "denied":
                    self.deny(tool, given, not_run_again(tool_id, effect.decided))
            for key in keys:  # calls of one answer are made at once, so none repeats another
                tool = self._tool(asked[key][0])
                if tool is None or key not in effects:
                    continue
                if key in history.tool_calls:
                    self.add(tool, effects[key])
                if key in interrupted and effects[key].status != "error":
                    self._add(effects[key], tool)

    def _canonical(self, tool: Tool, given: Any) -> str:
        return action_of(tool.tool_id, tool.canonical(given))

    def _action_of(self, effect: Effect, tool: Tool) -> str:
        return self._canonical(tool, _arguments(effect))


def _arguments(effect: Effect) -> Any:
    """Return the arguments of an effect as data; text that was cut stays text."""
    try:
        return load_exact(effect.arguments.encode())
    except JsonTextError:
        return effect.arguments
