"""The router's tools: ask it, see how it would choose, see why it chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from remit.agents.admin import Redactor, fit, plain
from remit.agents.tools import Tool
from remit.gateway.auth import Identity
from remit.kernel.settings import Settings
from remit.server.mcp.caller import current_caller
from remit.server.mcp.offer import NAME_PATTERN, Offer

__all__ = ["RouterPort", "router_offers"]

_MAX_NAME = 128
_MAX_TOKENS = 10_000_000


class RouterPort(Protocol):
    """What the tools need of the runtime's router (SPEC 7)."""

    async def aroute_text(
        self,
        prompt: str,
        *,
        route: str = "auto",
        task: str = "",
        operator_preference: str = "",
        session_id: str = "",
        agent_id: str = "",
        max_tokens: int | None = None,
        identity: Identity | None = None,
    ) -> Mapping[str, Any]:
        """Choose a model, ask it, and tell what it answered and what was recorded."""
        ...

    def score_text(
        self,
        prompt: str,
        *,
        route: str = "auto",
        task: str = "",
        operator_preference: str = "",
        identity: Identity | None = None,
    ) -> Mapping[str, Any]:
        """Choose a model, and ask nobody."""
        ...

    def status(self) -> Mapping[str, Any]:
        """How the router is."""
        ...

    def explain(self, decision: str) -> Mapping[str, Any]:
        """A decision on record."""
        ...


def router_offers(router: RouterPort, settings: Settings, redactor: Redactor) -> list[Offer]:
    """``router_route``, ``router_score``, ``router_status`` and ``router_explain``.

    Args:
        router: of the open root.
        settings: limits.
        redactor: takes keys out of what is on record.
    """
    own = settings.mcp_server

    def shown(output: Mapping[str, Any]) -> Any:
        return fit(plain(dict(output)), own.max_output_bytes // 2).value

    async def router_route(
        prompt: str, session_id: str = "", agent_id: str = "", **how: Any
    ) -> Any:
        caller = current_caller()
        return shown(
            await router.aroute_text(
                prompt,
                session_id=caller.session_id(session_id),
                agent_id=caller.agent_id(agent_id),
                identity=caller.identity,
                **how,
            )
        )

    def router_score(prompt: str, **how: str) -> Any:
        return shown(router.score_text(prompt, identity=current_caller().identity, **how))

    def router_status() -> Any:
        return shown(router.status())

    def router_explain(decision: str) -> Any:
        return shown(redactor.value(plain(dict(router.explain(decision)))))

    asking = _asking(own.max_text_chars)
    return [
        Offer(
            tool=Tool(
                "router_route",
                "Have a prompt answered by the model that fits it best: Remit's router scores the "
                "models that are allowed, asks the winner, and falls back to the next when it "
                "fails. The call is budgeted and on record, and so is the decision. It costs "
                "money and time: use router_score when only the choice is of interest. Returns "
                "the answer (response), which model gave it, the scores, the cost and the ids on "
                "record; give decision_id to router_explain.",
                _object(
                    {
                        **asking,
                        "max_tokens": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": _MAX_TOKENS,
                            "description": "longest answer, in tokens",
                            "examples": [500],
                        },
                        "session_id": {
                            "type": "string",
                            "pattern": "^SES-[A-Za-z0-9_.-]+$",
                            "maxLength": _MAX_NAME,
                            "description": "the session that the call belongs to; left out: a "
                            "new one",
                            "examples": ["SES-7K2M4QX9"],
                        },
                        "agent_id": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": _MAX_NAME,
                            "pattern": NAME_PATTERN,
                            "description": "the agent in whose name it is asked; left out: the "
                            "key's own",
                            "examples": ["researcher-1"],
                        },
                    },
                    "prompt",
                ),
                router_route,
                timeout_s=own.route_timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Answer by the best model",
            needs=("call",),
            output_schema=_told(
                {
                    "model_id": "the model that answered",
                    "provider_id": "its provider",
                    "response": "its answer",
                    "scores": "of all candidates",
                    "fallback_attempts": "models that were asked before and failed",
                    "latency_ms": "how long it took, milliseconds",
                    "cost_usd": "what it cost, US dollars; null without a price",
                    "decision_id": "the routing decision; router_explain tells it",
                    "decision_entry_id": "its entry in the ledger",
                    "exchange_entry_id": "the entry of the model call",
                }
            ),
            writes=True,
            outside=True,
        ),
        Offer(
            tool=Tool(
                "router_score",
                "See which model the router would choose for a prompt, and why, without asking "
                "any: no cost, nothing recorded. Returns the winner, the scores of all candidates, "
                "the chain of fallbacks, the intent that was read from the prompt, and "
                "the hash of the rules.",
                _object(asking, "prompt"),
                router_score,
                on_unknown="retry",
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Which model would answer",
            needs=("call", "read"),
            output_schema=_told(
                {
                    "winner": "the model that would be asked first",
                    "scores": "of all candidates",
                    "chain": "who would be asked in turn",
                    "intent": "what the prompt was taken for",
                    "rule_version_hash": "of the rules that decided",
                }
            ),
        ),
        Offer(
            tool=Tool(
                "router_status",
                "See how the router is: its rules' hash, its routes and preferences, the models "
                "it can choose from, and which of them cannot be asked just now. Use it when "
                "routing surprises, or to learn the names that route and operator_preference "
                "take.",
                _object({}),
                router_status,
                on_unknown="retry",
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="The router's state",
            needs=("read",),
            output_schema=_told({}),
        ),
        Offer(
            tool=Tool(
                "router_explain",
                "Explain a routing decision that is on record: what was asked for, which models "
                "were scored and how, which were skipped and why, who was chosen, under which "
                "rules. Keys and passwords in it are hidden.",
                _object(
                    {
                        "decision": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": _MAX_NAME,
                            "description": "a decision_id of router_route, or the id of its "
                            "ledger entry, or of an EXCHANGE that came of it",
                            "examples": ["DEC-0123456789abcdef0123456789abcdef", "LED-0000002a"],
                        }
                    },
                    "decision",
                ),
                router_explain,
                on_unknown="retry",
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Why a model was chosen",
            needs=("read",),
            output_schema=_told({}),
        ),
    ]


def _asking(max_text_chars: int) -> dict[str, Any]:
    return {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "maxLength": max_text_chars,
            "description": "what the model is asked, whole",
            "examples": ["Summarize RFC 6962 in three sentences."],
        },
        "route": {
            "type": "string",
            "minLength": 1,
            "maxLength": _MAX_NAME,
            "default": "auto",
            "description": "the route: auto, or another that router_status names",
            "examples": ["auto"],
        },
        "task": {
            "type": "string",
            "maxLength": _MAX_NAME,
            "description": "what kind of task it is, where that is known: a name; left out, the "
            "router reads it from the prompt",
            "examples": ["code"],
        },
        "operator_preference": {
            "type": "string",
            "maxLength": _MAX_NAME,
            "description": "what counts most in the choice: a preference that router_status names",
            "examples": ["cost"],
        },
    }


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
    }


def _told(descriptions: Mapping[str, str]) -> dict[str, Any]:
    properties = {name: {"description": text} for name, text in descriptions.items()}
    return {"type": "object", "properties": properties}
