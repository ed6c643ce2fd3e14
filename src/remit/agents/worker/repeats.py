"""Protection against repeated effects: calls of an order that would repeat an earlier call."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.permissions import not_run_again
from remit.agents.workorders import Effect, OrderHistory, action_of, decided_by
from remit.kernel.json_text import JsonTextError, load_exact
from remit.ledger import Erased


class Repeats:
    """Matches an order's calls with earlier calls that must not be repeated without a decision.

    Earlier calls are those of work without an answer, given to the order as effects, and the
    order's own calls with an unknown outcome. Each is matched once. A person's denial applies to
    all equal calls.

    Args:
        effects: effects of earlier work, given to the order.
        history: the order's recorded calls; their matches are reconstructed.
        tool: returns a tool by id; None if the program no longer has it.
        interrupted: keys of calls that another program made before it was restarted.
    """

    def __init__(
        self,
        effects: Collection[Effect],
        history: OrderHistory,
        tool: Callable[[str], Tool | None],
        interrupted: Collection[str] = (),
    ) -> None:
        self._tool = tool
        self._open: list[Effect] = []
        self._matched: dict[str, Effect] = {}
        self._denied: dict[str, ToolResult] = {}
        for effect in sorted(effects, key=lambda one: one.decision != "granted"):
            if effect.status != "error":
                self._add(effect, tool(effect.tool_id))
        ended_unknown = any(map(history.is_unknown, history.tool_calls))
        if self._open or interrupted or ended_unknown or history.asked_about:
            self._replay(history, interrupted)

    def match(self, tool: Tool, arguments: Any, key: str) -> Effect | None:
        """Return the earlier call that a call would repeat; None if there is none.

        A call repeats an earlier one of the same tool with equal arguments, also if they are equal
        only in the tool's canonical form. The match is kept: no other key matches that earlier
        call, until :meth:`release`.

        Args:
            tool: the tool.
            arguments: its arguments.
            key: the call's idempotency key; a key that has matched always matches the same call.
        """
        if key in self._matched or not self._open:
            return self._matched.get(key)
        actions = {action_of(tool.tool_id, arguments), self._canonical(tool, arguments)}
        for effect in self._open:
            if effect.tool_id == tool.tool_id and (
                effect.action in actions or self._action_of(effect, tool) in actions
            ):
                self._open.remove(effect)
                self._matched[key] = effect
                return effect
        return None

    def release(self, key: str) -> None:
        """Undo the match of a call that was refused for another reason.

        The earlier call can be matched again. Does nothing without a match.
        """
        if (effect := self._matched.pop(key, None)) is not None:
            self._open.insert(0, effect)

    def add(self, tool: Tool, effect: Effect) -> None:
        """Add an ended call with an unknown outcome, or the effects of a failed sub-agent.

        Args:
            tool: the tool.
            effect: the call, with status ``unknown`` if nobody knows whether it took effect.
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
        """Remove an earlier call that is continued under its own key; nothing matches it then.

        Args:
            key: idempotency key of the earlier call.
        """
        self._open = [effect for effect in self._open if effect.key != key]

    def deny(self, tool: Tool, arguments: Any, result: ToolResult) -> None:
        """Note that a person denied the repetition of a call, for the rest of the order.

        Args:
            tool: the tool.
            arguments: its arguments.
            result: the result that :meth:`denied` returns for equal calls.
        """
        self._denied[self._canonical(tool, arguments)] = result

    def denied(self, tool: Tool, arguments: Any) -> ToolResult | None:
        """Return the result for a call whose repetition was denied; None if it was not.

        Calls are equal if their arguments are equal in the tool's canonical form.

        Args:
            tool: the tool.
            arguments: arguments of the new call.
        """
        return self._denied.get(self._canonical(tool, arguments)) if self._denied else None

    def _replay(self, history: OrderHistory, interrupted: Collection[str]) -> None:
        """Match the recorded calls in the order in which they were made."""
        effects = history.effects()
        asked: dict[str, tuple[str, Any]] = {}
        begun, ended = history.last_intents().values(), history.tool_calls.values()
        for entry in sorted([*history.requests, *begun, *ended], key=lambda one: one.id):
            data = entry.metadata
            arguments = None if isinstance(data["arguments"], Erased) else data["arguments"]
            asked.setdefault(data["idempotency_key"], (data["tool_id"], arguments))
        answers: dict[str, list[str]] = {}
        for key in asked:
            answers.setdefault(key.rpartition("/")[0], []).append(key)
        for keys in answers.values():
            for key in sorted(keys, key=lambda one: int(one.rpartition("/")[2])):
                tool_id, arguments = asked[key]
                end = history.tool_calls.get(key)
                refused = key not in effects and end and end.metadata["status"] == "refused"
                tool = self._tool(tool_id)
                if tool is None or refused or key in interrupted:
                    continue
                effect = self.match(tool, arguments, key)
                request = history.asked_about.get(key)
                decision = None if request is None else history.decisions.get(request.id)
                if decision is not None and decision.event_type == "APPROVAL_DENIED":
                    self.deny(tool, arguments, not_run_again(tool_id, decided_by(decision)))
                elif effect is not None and effect.decision == "denied":
                    self.deny(tool, arguments, not_run_again(tool_id, effect.decided))
            for key in keys:  # Calls of one answer are concurrent, so none repeats another.
                tool = self._tool(asked[key][0])
                if tool is None or key not in effects:
                    continue
                if key in history.tool_calls:
                    self.add(tool, effects[key])
                if key in interrupted and effects[key].status != "error":
                    self._add(effects[key], tool)

    def _canonical(self, tool: Tool, arguments: Any) -> str:
        return action_of(tool.tool_id, tool.canonical(arguments))

    def _action_of(self, effect: Effect, tool: Tool) -> str:
        return self._canonical(tool, _arguments(effect))


def _arguments(effect: Effect) -> Any:
    """Return the arguments of an effect as data, or as text if they were cut."""
    try:
        return load_exact(effect.arguments.encode())
    except JsonTextError:
        return effect.arguments
