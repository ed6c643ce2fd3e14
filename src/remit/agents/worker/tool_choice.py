"""Tools for models without tool calls: a choice constrained by a schema, then the arguments.

Each is a small question under a contract of its own, so that it is recorded and can be replayed.
Names in the message are taken from it by code.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.english_words import narrow_schema, only_value, with_digits
from remit.agents.worker.model_calls import stop_problem
from remit.agents.worker.tool_candidates import Choice, choose
from remit.agents.worker.tool_results import result_text
from remit.kernel.errors import excerpt
from remit.kernel.exchange import Message, conversation
from remit.kernel.json_text import JsonTextError, load_answer, sound_text
from remit.kernel.schemas import first_problem
from remit.ledger import Erased

if TYPE_CHECKING:
    from remit.agents.worker.order_run import OrderRun

_log = logging.getLogger("remit.worker")

_CHOICE = "PRC-TOOLCHOICE-001"
_ARGUMENTS = "PRC-TOOLARGUMENTS-001"


class ToolChooser:
    """The choice and the run of the tool that a message calls for.

    :meth:`choose` is called once for an order.

    Args:
        run: the run of the order.

    Attributes:
        choice: the result of the rules; empty before :meth:`choose`, and if the order was resumed.
    """

    def __init__(self, run: OrderRun) -> None:
        self._run = run
        self._contracts = run.services.contracts
        self._exchange_id = ""
        self.choice = Choice()

    async def choose(self, tools: Sequence[Tool], message: str) -> list[dict[str, Any]]:
        """Run at most one tool; return a list with its id, status and result in words.

        A recorded choice of the order is repeated, unless its arguments were erased. Otherwise the
        first tool that understands the message runs, without a model; else up to two model calls
        give the tool and its arguments. The call is recorded as by :meth:`Toolbox.use`, and a
        handoff is noted in the toolbox. The list is empty if no tool fits, the recorded one is
        gone, or a tool that must not be repeated may not know a name of the message. The status is
        ``absent`` if the result does not contain such a name, otherwise that of the
        :class:`ToolResult`. The object has ``tool_id``, ``status`` and ``text``.

        Args:
            tools: the tools of the order.
            message: the user's message.

        Raises:
            WorkParkedError: the call waits for a person.
            WorkFailedError: the model refused or gave no answer, or a call must not be repeated.
            OrderRecordError: a recorded answer or result was erased.
            ContractError: the contract of a question cannot be used.
            RemitError: the guard's error, if the order is no longer this worker's.
            LedgerError: the ledger cannot be read or written.
        """
        earlier = self._run.history.last_tool_use()
        if earlier is not None and not isinstance(earlier.metadata["arguments"], Erased):
            # A recorded choice is kept, even if the tools have changed.
            tool_id, arguments = earlier.metadata["tool_id"], earlier.metadata["arguments"]
            key = earlier.metadata["idempotency_key"]
            chosen = next((tool for tool in tools if tool.tool_id == tool_id), None)
        else:
            chosen, arguments = _understood(tools, message)
            if chosen is None:
                message = with_digits(message)
                chosen = await self._choice(tools, message)
                arguments = {} if chosen is None else await self._arguments(chosen, message)
            key = f"{self._run.order.wo_id}/{self._exchange_id}/0"
        if chosen is None:
            return []
        result = await self._run.toolbox.use(chosen.tool_id, arguments, key)
        self._run.toolbox.note_handoff(chosen.tool_id, result)
        status: str = result.status
        text = _in_words(chosen, result)
        if status == "ok":
            shown = f"{text} {result_text(result)}".lower()
            absent = [name for name in self.choice.names if name.lower() not in shown]
            if absent:
                status, text = "absent", f"the result does not mention {' or '.join(absent)}"
        return [{"tool_id": chosen.tool_id, "status": status, "text": text}]

    async def _choice(self, tools: Sequence[Tool], message: str) -> Tool | None:
        contract = self._contracts.load(_CHOICE)
        by_id = {tool.tool_id: tool for tool in tools}
        askable = {id_: tool for id_, tool in by_id.items() if tool.understand is None}
        talk = [str(item["input"]["user_input"]) for item in contract.examples]
        choice = self.choice = choose(message, askable, talk)
        chosen = by_id.get(choice.chosen)
        if chosen is not None and choice.names and chosen.on_unknown != "retry":
            # Only a run would show whether the result contains the names.
            self.choice = Choice(near=(choice.chosen,), unknown=choice.names)
            return None
        if not choice.between:
            return chosen
        uses = Counter(tool.label for tool in tools)
        labels = {
            # A label that two tools share is ambiguous.
            tool.label if tool.label and uses[tool.label] == 1 else tool.tool_id: tool
            for tool in map(by_id.__getitem__, choice.between)
        }
        label_of = {tool.tool_id: label for label, tool in labels.items()}
        answer = await self._ask(
            _CHOICE,
            {
                "user_input": message,
                "candidates": [
                    {"label": label, "about": excerpt(" ".join(tool.description.split()), 300)}
                    for label, tool in labels.items()
                ],
            },
            conversation(
                (phrase, orjson.dumps(label_of[id_]).decode()) for phrase, id_ in choice.examples
            ),
            {"enum": [*labels]},
        )
        return labels.get(answer) if isinstance(answer, str) else None

    async def _arguments(self, tool: Tool, message: str) -> dict[str, Any]:
        schema = narrow_schema(tool.input_schema, message)
        if (only := only_value(schema)) is not None:
            return only
        # json.dumps puts a space after colons, as in most texts that small models have learned.
        examples = ((phrase, json.dumps(dict(given))) for phrase, given in tool.examples)
        answer = await self._ask(
            _ARGUMENTS,
            {"user_input": message, "tool": tool.definition()},
            conversation(examples),
            schema,
        )
        return answer if isinstance(answer, dict) else {}

    async def _ask(
        self,
        contract_id: str,
        variables: Mapping[str, Any],
        history: Sequence[Message],
        schema: Mapping[str, Any],
    ) -> Any:
        """Ask a question under a contract; return None for an answer outside the schema.

        A recorded answer is reused.

        Raises:
            WorkFailedError: the model refused, or stopped without an answer.
        """
        answer = self._run.history.last_answer(contract_id)
        if answer is None:
            contract = self._contracts.load(contract_id)
            pack = self._contracts.load_pack(contract.prompt_pack_id)
            journal = self._run.journal
            previous, journal.prompts_used = journal.prompts_used, [contract.prompt_pack_id]
            try:
                calls, messages = self._run.calls, pack.render(variables, history)
                call = calls.prepare(calls.request(contract), messages, schema=schema)
                response = await self._run.services.gateway.aroute(call)
                answer = calls.answer(response, messages)
            finally:
                journal.prompts_used = previous
        self._exchange_id = answer.exchange_entry_id
        if (stopped := stop_problem(answer)) is not None:
            raise stopped
        try:
            value = load_answer(answer.text)
        except JsonTextError:
            return None
        return value if not first_problem(schema, value) else None


def _understood(tools: Sequence[Tool], message: str) -> tuple[Tool | None, dict[str, Any]]:
    """Return the tool that certainly understands a message, and its arguments.

    A tool whose ``understand`` raises an error does not understand; the error is logged.
    """
    for tool in tools:
        try:
            given = None if tool.understand is None else tool.understand(message)
            if given is not None:
                return tool, dict(given)
        except BaseException:  # noqa: BLE001 - the tool's own code; the function awaits nothing
            _log.exception("the tool %s cannot read a message", tool.tool_id)
    return None, {}


def _in_words(tool: Tool, result: ToolResult) -> str:
    if result.status == "ok" and tool.describe is not None:
        try:
            return sound_text(str(tool.describe(result.output)))
        except BaseException:  # noqa: BLE001 - the tool has run; the function awaits nothing
            _log.exception("the tool %s cannot describe its output", tool.tool_id)
    return result_text(result)
