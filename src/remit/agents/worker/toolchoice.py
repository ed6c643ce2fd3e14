"""Tools for models that cannot ask for them: a choice held to a schema, then its arguments.

Two small questions under contracts of their own, so that the record says what was asked and
anyone can replay it. Names that the message holds are taken from it by code.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.arguments import narrowed_schema, only_value
from remit.agents.worker.calls import ModelCalls
from remit.agents.worker.candidates import Offer, choose
from remit.agents.worker.conversation import result_text
from remit.agents.worker.english import with_digits
from remit.agents.worker.execution import Execution
from remit.agents.worker.model_answer import stop_problem
from remit.agents.worker.toolbox import Toolbox
from remit.kernel.exchange import Message, conversation
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.schemas import first_problem
from remit.ledger import Erased

_log = logging.getLogger("remit.worker")

_CHOICE = "PRC-TOOLCHOICE-001"
_ARGUMENTS = "PRC-TOOLARGUMENTS-001"
_LONGEST = 300


class ToolChooser:
    """Finds out which tool a message calls for, and runs it.

    Attributes:
        near: where it cannot tell which is meant, the likeliest tools.
        unknown: words of the message that the first of these does not account for.
    """

    def __init__(self, execution: Execution, calls: ModelCalls, toolbox: Toolbox) -> None:
        self._contracts = execution.services.contracts
        self._history = execution.history
        self._journal = execution.journal
        self._wo_id = execution.order.wo_id
        self._calls = calls
        self._toolbox = toolbox
        self._asked_in = ""
        self.near: list[Tool] = []
        self.unknown: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()

    async def choose(self, tools: Sequence[Tool], message: str) -> list[dict[str, Any]]:
        """At most one tool, run; its result in words for the answer's template."""
        earlier = self._history.last_tool_use()
        if earlier is not None and not isinstance(earlier.metadata["arguments"], Erased):
            # What was chosen then stays chosen, whatever tools say now.
            tool_id, arguments = earlier.metadata["tool_id"], earlier.metadata["arguments"]
            key = earlier.metadata["idempotency_key"]
            chosen = next((tool for tool in tools if tool.tool_id == tool_id), None)
        else:
            chosen, arguments = _understood(tools, message)
            if chosen is None:
                message = with_digits(message)
                chosen = await self._choice(tools, message)
                arguments = {} if chosen is None else await self._arguments(chosen, message)
            key = f"{self._wo_id}/{self._asked_in}/0"
        if chosen is None:
            return []
        result = await self._toolbox.use(chosen.tool_id, arguments, key)
        self._toolbox.note_handoff(chosen.tool_id, result)
        status: str = result.status
        text = _in_words(chosen, result)
        if status == "ok":
            held = f"{text} {result_text(result)}".lower()
            absent = [name for name in self._names if name.lower() not in held]
            if absent:
                status, text = "absent", f"it shows no {' and no '.join(absent)}"
        return [{"tool_id": chosen.tool_id, "status": status, "text": text}]

    async def _choice(self, tools: Sequence[Tool], message: str) -> Tool | None:
        contract = self._contracts.load(_CHOICE)
        offers = {
            tool.tool_id: Offer(
                [phrase for phrase, _ in tool.examples],
                # The first sentence says what a tool does; others, what it keeps to itself.
                [tool.tool_id, re.split(r"(?<=\.)\s", tool.description)[0]],
                tool.input_schema,
            )
            for tool in tools
            if tool.understand is None
        }
        talk = [str(item["input"]["user_input"]) for item in contract.examples]
        choice = choose(message, offers, talk)
        by_id = {tool.tool_id: tool for tool in tools}
        self.near, self.unknown = [by_id[id_] for id_ in choice.near], choice.unknown
        self._names = choice.names
        chosen = by_id.get(choice.chosen)
        if chosen is not None and choice.names and chosen.on_unknown != "retry":
            # Its result may not hold what was asked for, and it may not run to find out.
            self.near, self.unknown = [chosen], choice.names
            return None
        if not choice.between:
            return chosen
        given = Counter(tool.label for tool in tools)
        labels = {
            # A label that two tools share does not say which of them is meant.
            tool.label if tool.label and given[tool.label] == 1 else tool.tool_id: tool
            for tool in map(by_id.__getitem__, choice.between)
        }
        label_of = {tool.tool_id: label for label, tool in labels.items()}
        answer = await self._ask(
            _CHOICE,
            {
                "user_input": message,
                "candidates": [
                    {"label": label, "about": _one_line(tool.description)}
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
        schema = narrowed_schema(tool.input_schema, message)
        if (only := only_value(schema)) is not None:
            return only
        # With the space after the colon: small models copy what they have seen most.
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
        """Ask one question; return ``None`` for an answer outside the schema.

        Raises:
            WorkFailedError: the model refused, or stopped without an answer.
        """
        answer = self._history.last_answer(contract_id)
        if answer is None:
            contract = self._contracts.load(contract_id)
            pack = self._contracts.load_pack(contract.prompt_pack_id)
            before = self._journal.prompts_used
            self._journal.prompts_used = [contract.prompt_pack_id]
            try:
                answer = await self._calls.ask(
                    self._calls.request(contract), pack.render(variables, history), schema=schema
                )
            finally:
                self._journal.prompts_used = before
        self._asked_in = answer.exchange_entry_id
        if (stopped := stop_problem(answer)) is not None:
            raise stopped
        try:
            value = load_answer(answer.text)
        except JsonTextError:
            return None
        return value if not first_problem(schema, value) else None


def _understood(tools: Sequence[Tool], message: str) -> tuple[Tool | None, dict[str, Any]]:
    """Return the tool that surely understands a message, with the arguments that are meant."""
    for tool in tools:
        if tool.understand is not None and (given := tool.understand(message)) is not None:
            return tool, dict(given)
    return None, {}


def _one_line(text: str) -> str:
    """A tool's description, which a stranger may have written, without line breaks."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _in_words(tool: Tool, result: ToolResult) -> str:
    if result.status == "ok" and tool.describe is not None:
        try:
            return str(tool.describe(result.output))
        except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - the tool has run
            _log.exception("the tool %s cannot describe its output", tool.tool_id)
    return result_text(result)
