"""The permission for each tool call of an order.

A person grants the call, a budget pays for it, and it repeats no earlier call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remit.agents.approvals import Permit, action_fields
from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.failures import WorkFailedError, WorkParkedError
from remit.agents.workorders import (
    ApprovalNeeded,
    Effect,
    OrderHistory,
    WorkOrder,
    WorkOrderType,
    action_of,
    decided_by,
)
from remit.kernel.budget_values import nano_of, usd_of
from remit.kernel.json_text import JsonTextError, dump, load_exact
from remit.ledger import Erased, LedgerEntry, Transaction

if TYPE_CHECKING:
    from remit.agents.worker.order_run import OrderRun


class Permissions:
    """Requests for approval, grants and payments of the tool calls of one order.

    :meth:`ask` finds a person's decision or requests it, :meth:`begin` records and pays an intent.
    Decisions are those that the order's history has loaded.

    Args:
        run: the run of the order.

    Attributes:
        paid: prices of the tool calls that began, in US dollars.
    """

    def __init__(self, run: OrderRun) -> None:
        self._run = run
        self._order = run.order
        self._journal = run.journal
        self._history = run.history
        self.paid = list(run.history.paid)

    async def ask(
        self, tool: Tool, arguments: dict[str, Any], key: str, began: int, instead_of: str = ""
    ) -> tuple[ToolResult | None, Permit | None]:
        """Return a person's decision on a call: a refusal for the model, or a permit.

        One of the two is None. A denial gives the status ``refused``, about an unknown outcome
        ``error``. Arguments with which a new call cannot run also give ``error``; nobody is asked.
        If nobody has decided, a request is recorded (``APPROVAL_REQUESTED``) unless there is one,
        and the listener gets an ``ApprovalNeeded``. A grant under the same key for another tool,
        definition or arguments gives a permit, which refuses the action when it begins.

        Args:
            tool: the tool.
            arguments: its arguments.
            key: the call's idempotency key.
            began: number of times the call began without a known outcome; 0 for a new call. A grant
                applies to this attempt only.
            instead_of: id of an earlier order's request about the same unknown outcome. The new
                request names it and makes it void; its decision is not used. Empty if there is
                none.

        Raises:
            WorkParkedError: nobody has decided yet.
            InvalidInputError: the arguments cannot be expressed as JSON.
            LedgerError: the ledger cannot be read or written.
        """
        kind = _request_kind(began)
        requests = [
            entry for entry in self._history.requests if _attempt(entry) == (key, kind, began)
        ]
        request = next(
            (entry for entry in requests if _is_same_action(entry, tool, arguments)), None
        )
        if request is None:  # A grant of another action leads to a recorded refusal.
            granted = (entry for entry in requests if self._history.is_granted(entry.id))
            request = next(granted, None)
        decision = None if request is None else self._history.decisions.get(request.id)
        if request is None or decision is None:
            request_id = request.id if request is not None else ""
            if not request_id:
                # A call that cannot run is no question for a person.
                check = self._run.services.tools.refusal
                if not began and (refusal := await check(tool, arguments)) is not None:
                    return refusal, None
                request_id = await self.request(tool, arguments, key, began, instead_of)
            self._run.emit(
                ApprovalNeeded(request_id, self._order.wo_id, tool.tool_id, arguments, kind)
            )
            raise WorkParkedError((request_id,))
        if decision.event_type == "APPROVAL_GRANTED":
            return None, Permit(request, decision)
        if began:
            return not_run_again(tool.tool_id, decided_by(decision)), None
        return ToolResult("refused", error=f"approval_denied: {decided_by(decision)}"), None

    async def request(
        self, tool: Tool, arguments: dict[str, Any], key: str, began: int, instead_of: str = ""
    ) -> str:
        """Append an ``APPROVAL_REQUESTED`` durably; announce the request and return its id.

        Whether there is such a request already is not checked.

        Args:
            tool: the tool of the call.
            arguments: the arguments that a person is asked about.
            key: idempotency key of the call.
            began: number of times that the call has begun with an unknown outcome; 0 for an
                ordinary approval.
            instead_of: id of the request that this one replaces; empty for none.

        Raises:
            InvalidInputError: the arguments cannot be expressed as JSON.
            LedgerError: the entry could not be written.
        """
        request_id = await self._journal.write(
            "APPROVAL_REQUESTED",
            tool_id=tool.tool_id,
            arguments=arguments,
            idempotency_key=key,
            kind=_request_kind(began),
            **({"attempt": began} if began else {}),
            **({"instead_of": instead_of} if instead_of else {}),
            **action_fields(tool, arguments),
        )
        self._run.services.on_request(request_id)
        return request_id

    def was_granted(self, tool: Tool, key: str) -> bool:
        """Return True if a person granted this call of the tool as presently defined.

        Args:
            tool: the tool; a grant of another definition does not count.
            key: the call's idempotency key.

        Raises:
            LedgerError: the requests or decisions cannot be read.
        """
        return any(
            _attempt(request) == (key, "approval", 0)
            and request.metadata.get("tool_digest", tool.digest) == tool.digest
            and self._history.is_granted(request.id)
            for request in self._history.requests
        )

    def note_of_edit(self, key: str) -> str:
        """Return the line that precedes a result in the prompt if a person changed the arguments.

        It says who changed them and gives the arguments with which the call ran, so it is only for
        calls that ran. Without a change, or if the changed arguments were erased, it is empty.

        Args:
            key: idempotency key of the call.

        Raises:
            LedgerError: the decisions cannot be read.
        """
        if (edit := self._history.edit(key)) is None:
            return ""
        shown = dump(edit.metadata["arguments"]).decode()
        return f"{edit.metadata['decided_by']} changed the arguments; it ran with {shown}\n"

    async def begin(self, intent: LedgerEntry, permit: Permit | None, tool: Tool) -> str:
        """Write a tool's intent and charge its price, in one transaction; return why not.

        An empty text means that the tool may run. Otherwise nothing is written, and the text is the
        reason of the permit (``approval_invalid: …``) or the budgets. The price is charged once for
        all attempts of a call; without a budgeter it is only recorded. ``price_usd`` is added to
        the intent's metadata, and to :attr:`paid` once the intent is written.

        Args:
            intent: the ``TOOL_INTENT``.
            permit: the person's permit; None if the call needs none.
            tool: the tool.

        Raises:
            LedgerError: the entry could not be written.
            InvalidInputError: the intent cannot be recorded.
        """
        began = self._history.intents[intent.metadata["idempotency_key"]]
        price = nano_of(tool.price_usd) if tool.price_usd and not began else 0
        if permit is None and not price:
            await self._journal.write_all([intent])
            return ""
        if price:
            intent.metadata["price_usd"] = usd_of(price)
        begin = self._permitted(intent, permit, tool)
        budgeter = self._run.services.budgeter
        if price and budgeter is not None:
            reason, enforce = f"The price of {tool.tool_id}", self._run.services.enforce
            begin = budgeter.paid(self._run.scope, price, reason, begin, enforce=enforce)
        problem = await self._journal.write_all([begin])
        if price and not problem:
            self.paid.append(usd_of(price))
        return problem

    def _permitted(
        self, intent: LedgerEntry, permit: Permit | None, tool: Tool
    ) -> Callable[[Transaction], str]:
        """Return a function that writes an intent in a transaction, or returns why not."""
        prepare = self._journal.prepared_entry
        granted = None if permit is None else permit.begin(intent, tool.digest, prepare)
        prepared = prepare(intent) if granted is None else None

        def write(tx: Transaction) -> str:
            if prepared is not None:
                tx.append(prepared)
            problem = granted(tx) if granted is not None else ""
            return f"approval_invalid: {problem}." if problem else ""

        return write


def _attempt(request: LedgerEntry) -> tuple[str, str, int]:
    data = request.metadata
    return data["idempotency_key"], data["kind"], data.get("attempt", 0)


def _is_same_action(request: LedgerEntry, tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return True if a request is for this action. Earlier versions recorded no digest."""
    data = request.metadata
    return (data["tool_id"], data["arguments"], data.get("tool_digest", tool.digest)) == (
        tool.tool_id, arguments, tool.digest
    )  # fmt: skip


def not_run_again(tool_id: str, decided: str) -> ToolResult:
    """Return the error result of a call that a person does not want repeated.

    Args:
        tool_id: the tool.
        decided: a sentence that says who decided and why.
    """
    text = (
        f"{tool_id} had begun before, and it is unknown whether it took effect. It was not run "
        f"again: {decided}"
    )
    return ToolResult("error", error=text)


def _request_kind(began: int) -> str:
    return "unknown_outcome" if began else "approval"


class Repeats:
    """Matches an order's calls with earlier calls that must not be repeated without a decision.

    Earlier calls are those of work without an answer, given to the order as effects, and the
    order's own calls with an unknown outcome. Calls that ended with ``error``, and calls of tools
    that may repeat, are left out. Each is matched once. A person's denial applies to all equal
    calls. Everything is in memory; making the object reads the order's history.

    Args:
        effects: effects of earlier work, given to the order.
        history: the order's recorded calls; their matches are reconstructed.
        tool: returns a tool by id; None if the program no longer has it.
        interrupted: keys of calls that another program made before it was restarted.

    Raises:
        LedgerError: the history cannot be read.
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
            key: the call's idempotency key; a key that has matched matches the same call again.

        Raises:
            JsonTextError: the arguments are nested too deep.
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
        """Add an ended call with an unknown outcome; for a sub-agent's tool, the sub-agent's calls.

        Of these, calls with an unknown outcome are added and, if the sub-agent's call is not
        ``ok``, those that succeeded. A call that its tool may repeat, or that is known already, is
        not added.

        Args:
            tool: the tool.
            effect: the call, with status ``unknown`` if nobody knows whether it took effect.

        Raises:
            LedgerError: the sub-agent's effects cannot be read.
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
        """Remove an earlier call that is continued under its own key, so that no call matches.

        Args:
            key: idempotency key of the earlier call.
        """
        if self._open:
            self._open = [effect for effect in self._open if effect.key != key]

    def deny(self, tool: Tool, arguments: Any, result: ToolResult) -> None:
        """Note that a person denied the repetition of a call, for the rest of the order.

        Args:
            tool: the tool.
            arguments: its arguments.
            result: the result that :meth:`denied` returns for equal calls.

        Raises:
            JsonTextError: the arguments are nested too deep.
        """
        self._denied[self._canonical(tool, arguments)] = result

    def denied(self, tool: Tool, arguments: Any) -> ToolResult | None:
        """Return the result for a call whose repetition was denied; None if it was not.

        Calls are equal if their arguments are equal in the tool's canonical form.

        Args:
            tool: the tool.
            arguments: arguments of the new call.

        Raises:
            JsonTextError: the arguments are nested too deep.
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


def withheld_tools(order: WorkOrder) -> Sequence[str]:
    """Return the ids of the order's tools that a model is not offered, set aside by the session.

    A planned tool call, and a tool without which no answer would pass, are not withheld.

    Args:
        order: the order; nothing is read or changed.
    """
    limits = order.constraints
    if not limits.set_aside or order.wo_type is WorkOrderType.TOOL_CALL:
        return ()
    needed = order.acceptance_criteria.get("tools_used", ())
    return [one for one in limits.tools_allowed if one in limits.set_aside and one not in needed]


def outcome_unknown(tool_id: str) -> WorkFailedError:
    """Return the error of a call that must not be repeated, because its outcome is unknown.

    The error is returned, not raised.

    Args:
        tool_id: the tool.
    """
    return WorkFailedError(
        "tool_outcome_unknown", f"{tool_id} had begun, and it is unknown whether it took effect"
    )
