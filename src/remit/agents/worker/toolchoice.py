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
from remit.agents.worker.calls import ModelCalls
from remit.agents.worker.candidates import (
    asks_to_act,
    named,
    narrow,
    narrowed_schema,
    only_value,
)
from remit.agents.worker.execution import Execution
from remit.agents.worker.toolbox import Toolbox, result_text
from remit.kernel.exchange import Message, conversation
from remit.kernel.schemas import first_problem
from remit.ledger import Erased

_log = logging.getLogger("remit.worker")

_CHOICE = "PRC-TOOLCHOICE-001"
_ARGUMENTS = "PRC-TOOLARGUMENTS-001"
_NO_TOOL = "none"
_LONGEST = 300


class ToolChooser:
    """Finds out which tool a message calls for, and runs it.

    Attributes:
        near: where it cannot tell which is meant, the likeliest tools.
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

    async def choose(self, tools: Sequence[Tool], message: str) -> list[dict[str, Any]]:
        """At most one tool, run; its result in words for the answer's template."""
        earlier = self._history.last_tool_use()
        if earlier is not None and not isinstance(earlier.metadata["arguments"], Erased):
            # What was chosen then stays chosen, whatever tools say now.
            tool_id, arguments = earlier.metadata["tool_id"], earlier.metadata["arguments"]
            key = earlier.metadata["idempotency_key"]
            chosen = next((tool for tool in tools if tool.tool_id == tool_id), None)
        else:
            chosen = await self._choice(tools, message)
            arguments = {} if chosen is None else await self._arguments(chosen, message)
            key = f"{self._wo_id}/{self._asked_in}/0"
        if chosen is None:
            return []
        result = await self._toolbox.use(chosen.tool_id, arguments, key)
        self._toolbox.note_handoff(chosen.tool_id, result)
        return [
            {
                "tool_id": chosen.tool_id,
                "status": result.status,
                "text": _in_words(chosen, result),
            }
        ]

    async def _choice(self, tools: Sequence[Tool], message: str) -> Tool | None:
        contract = self._contracts.load(_CHOICE)
        given = Counter(tool.label for tool in tools)
        labels = {
            # A label that two tools share does not say which of them is meant.
            tool.tool_id: tool.label if tool.label and given[tool.label] == 1 else tool.tool_id
            for tool in tools
        }
        labels[_NO_TOOL] = str(contract.metadata.get("none_label", _NO_TOOL))
        about = {tool.tool_id: tool.description for tool in tools}
        about[_NO_TOOL] = str(contract.metadata.get("none_description", "no tool"))
        examples = {_NO_TOOL: [str(item["input"]["user_input"]) for item in contract.examples]}
        meant = set(named({tool.tool_id: tool.input_schema for tool in tools}, message))
        of_tools = [tool for tool in tools if tool.tool_id in meant]
        examples |= {tool.tool_id: [phrase for phrase, _ in tool.examples] for tool in of_tools}
        hints = {  # the first sentence says what a tool does; others, what it keeps to itself
            tool.tool_id: [tool.tool_id, re.split(r"(?<=\.)\s", tool.description)[0]]
            for tool in of_tools
        }
        texts = [
            text
            for tool in tools
            for text in (tool.tool_id, tool.description, *(phrase for phrase, _ in tool.examples))
        ]
        if asks_to_act(message, texts):
            return None
        is_named = len(of_tools) < len(tools)
        if is_named:  # then a tool is meant, however the rest is put
            del examples[_NO_TOOL]
            if len(of_tools) == 1:
                return of_tools[0]
        narrowed = narrow(message, examples, hints)
        by_id = {tool.tool_id: tool for tool in tools}
        if not is_named and (not narrowed.alike or narrowed.classes[0] == _NO_TOOL):
            return None
        if narrowed.clear:
            return by_id.get(narrowed.classes[0])
        if not is_named:  # between tools that the message does not name, a small model guesses
            self.near = [by_id[id_] for id_ in narrowed.classes if id_ in by_id]
            return None
        answer = await self._ask(
            _CHOICE,
            {
                "user_input": message,
                "candidates": [
                    {"label": labels[id_], "about": _one_line(about[id_])}
                    for id_ in narrowed.classes
                ],
            },
            conversation(
                (phrase, orjson.dumps(labels[id_]).decode()) for phrase, id_ in narrowed.examples
            ),
            {"enum": [labels[id_] for id_ in narrowed.classes]},
        )
        by_label = {labels[tool.tool_id]: tool for tool in tools}
        return by_label.get(answer) if isinstance(answer, str) else None

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
        """One question; an answer outside the schema counts as none."""
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
        try:
            value = orjson.loads(answer.text)
        except orjson.JSONDecodeError:
            return None
        return value if not first_problem(schema, value) else None


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
