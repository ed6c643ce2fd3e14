"""The router's tool that answers a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from remit.agents import cut_to_fit, plain_value
from remit.kernel.settings import Settings
from remit.routing import Router
from remit.server.mcp.callers import current_caller
from remit.server.mcp.tools import McpTool, Name, SessionId, made_tool

_MAX_NAME = 128
_MAX_TOKENS = 10_000_000


def _described(descriptions: Mapping[str, str]) -> dict[str, Any]:
    properties = {name: {"description": text} for name, text in descriptions.items()}
    return {"type": "object", "properties": properties}


_Prompt = Annotated[
    str,
    Field(
        min_length=1,
        description="the full prompt",
        examples=["Summarize RFC 6962 in three sentences."],
    ),
]
_Route = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_MAX_NAME,
        description="Route: auto, or another route of router_status.",
        examples=["auto"],
    ),
]
_Task = Annotated[
    str,
    Field(
        max_length=_MAX_NAME,
        description="Kind of the task; by default the router detects it from the prompt.",
        examples=["code"],
    ),
]
_Preference = Annotated[
    str,
    Field(
        max_length=_MAX_NAME,
        description="Preference of the choice, from router_status.",
        examples=["cost"],
    ),
]
_Tokens = Annotated[
    int | None,
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _MAX_TOKENS, "examples": [500]}),
    Field(description="Maximum number of output tokens."),
]


_RETURNS = _described(
    {
        "model_id": "the model that answered",
        "provider_id": "its provider",
        "response": "its answer",
        "finish_reason": "Reason of the end: stop, length, refusal or content_filter.",
        "scores": "of all candidates",
        "fallback_attempts": "models that were asked before and failed",
        "latency_ms": "Duration in milliseconds.",
        "cost_usd": "Cost in US dollars; null if the model has no price.",
        "decision_id": "Id of the routing decision, for router_explain.",
        "decision_entry_id": "its entry in the ledger",
        "exchange_entry_id": "the entry of the model call",
        "session_id": "the session that the call belongs to",
    }
)


def router_tool(router: Router, settings: Settings) -> McpTool:
    """Return the tool ``router_route``.

    Args:
        router: the router of the root.
        settings: settings of the root, for limits.
    """

    async def router_route(
        prompt: _Prompt,
        route: _Route = "auto",
        task: _Task = "",
        operator_preference: _Preference = "",
        max_tokens: _Tokens = None,
        session_id: Annotated[SessionId, Field(max_length=_MAX_NAME)] = "",
        agent_id: Annotated[Name, Field(max_length=_MAX_NAME, examples=["researcher-1"])] = "",
    ) -> Any:
        """Have a prompt answered by the model that fits it best: Remit's router scores the
        models that are allowed, asks the winner, and falls back to the next when it
        fails. The call is budgeted and on record, and so is the decision. It costs
        money and time: use router_score when only the choice is of interest. Returns
        the answer (response), which model gave it, the scores, the cost and the ids on
        record; give decision_id to router_explain.

        Long parts of the result are cut to half of ``mcp_server.max_output_bytes``.

        Args:
            session_id: the session that the call belongs to; left out: a new one
            agent_id: the agent in whose name it is asked; left out: the key's own

        Raises:
            CallerError: the caller may not use this session or agent.
            RemitError: as :meth:`remit.routing.Router.aroute_text`, such as if no model answered.
        """
        caller = current_caller.get()
        found = await router.aroute_text(
            prompt, route=route, task=task, operator_preference=operator_preference,
            max_tokens=max_tokens, session_id=caller.session_id(session_id),
            agent_id=caller.agent_id(agent_id), identity=caller.identity,
            subject_id=caller.subject_id,
        )  # fmt: skip
        return cut_to_fit(plain_value(dict(found)), settings.mcp_server.max_output_bytes // 2).value

    return made_tool(
        router_route, "Answer with the best model", settings, returns=_RETURNS, needs="call",
        writes=True, calls_model=True,
    )  # fmt: skip
