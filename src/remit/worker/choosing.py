"""Tools for models that cannot ask for them: a choice held to a schema, then its arguments.

Two small questions under contracts of their own, so that the record says what was asked and
anyone can replay it. The answer to the user stays the model's, in a later call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.contracts import PromptContract
from remit.exchange import PromptResponse
from remit.tools import Tool
from remit.worker.calls import ModelCalls
from remit.worker.journal import Journal
from remit.worker.ports import ContractPort
from remit.worker.toolbox import Toolbox

__all__ = ["ToolChooser"]

_CHOICE = "PRC-TOOLCHOICE-001"
_ARGUMENTS = "PRC-TOOLARGUMENTS-001"
_NO_TOOL = "none"


class ToolChooser:
    """Finds out which tool a message calls for, and runs it.

    Args:
        calls: asks the model.
        contracts: where the two contracts are.
        toolbox: runs what was chosen.
        journal: told which pack is in use.
    """

    def __init__(
        self, calls: ModelCalls, contracts: ContractPort, toolbox: Toolbox, journal: Journal
    ) -> None:
        self._calls = calls
        self._contracts = contracts
        self._toolbox = toolbox
        self._journal = journal

    async def choose(
        self, tools: Sequence[Tool], variables: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """At most one tool, run; its result as data for the answer's template."""
        ids = [tool.tool_id for tool in tools]
        schema = {
            "type": "object",
            "properties": {"tool": {"enum": [_NO_TOOL, *ids]}},
            "required": ["tool"],
            "additionalProperties": False,
        }
        shown = [
            {
                "tool_id": tool.tool_id,
                "description": tool.description,
                "examples": [phrase for phrase, _ in tool.examples],
            }
            for tool in tools
        ]
        answer = await self._ask(_CHOICE, {**variables, "tools": shown}, schema)
        chosen = next((tool for tool in tools if tool.tool_id == answer.get("tool")), None)
        if chosen is None:
            return []
        arguments: dict[str, Any] = {}
        if chosen.input_schema.get("properties"):
            examples = [
                {"text": phrase, "arguments": orjson.dumps(dict(given)).decode()}
                for phrase, given in chosen.examples
            ]
            fill = {**variables, "tool": chosen.definition(), "examples": examples}
            arguments = await self._ask(_ARGUMENTS, fill, chosen.input_schema)
        result = await self._toolbox.use(chosen.tool_id, arguments)
        text = result.error if result.status != "ok" else orjson.dumps(result.output).decode()
        return [{"tool_id": chosen.tool_id, "status": result.status, "text": text}]

    async def _ask(
        self, contract_id: str, variables: Mapping[str, Any], schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One question; an answer that is no object of the schema counts as none."""
        contract: PromptContract = self._contracts.load(contract_id)
        pack = self._contracts.load_pack(contract.prompt_pack_id)
        before = self._journal.prompts_used
        self._journal.prompts_used = [contract.prompt_pack_id]
        try:
            response: PromptResponse = await self._calls.ask(
                self._calls.request(contract), pack.render(variables), schema=schema
            )
        finally:
            self._journal.prompts_used = before
        if not response.output_valid:
            return {}
        value = orjson.loads(response.content)
        return value if isinstance(value, dict) else {}
