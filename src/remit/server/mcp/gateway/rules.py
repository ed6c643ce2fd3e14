"""Rules of an upstream server: tools, arguments and prices for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from remit.agents.tools import ToolError
from remit.gateway.auth import Identity
from remit.kernel.budget_values import nano_of
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.settings import McpRule, McpServerSettings
from remit.server.mcp.callers import RateLimit


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the rules for one call.

    Attributes:
        effect: ``allow``, ``deny``, or ``ask`` if a person decides.
        reason: why the call is denied, for a model; else empty.
        rule: the place of the deciding rule, from 1; 0 if none decided.
        price_nano: price of the call in nano-dollars.
    """

    effect: Literal["allow", "deny", "ask"]
    reason: str = ""
    rule: int = 0
    price_nano: int = 0


class Rules:
    """The rules of one server, ``[[mcp.NAME.rules]]``.

    Args:
        server: its name.
        settings: its settings.

    Raises:
        ToolError: the ``arguments`` of a rule are not a JSON Schema.
    """

    def __init__(self, server: str, settings: McpServerSettings) -> None:
        self._admitted = settings.tools
        self._rules: Sequence[McpRule] = [
            rule.model_copy(update={"arguments": _texts(rule.arguments)})
            if rule.effect == "allow"
            else rule
            for rule in settings.rules
        ]
        self._rates = [RateLimit(rule.calls_per_minute, "such calls") for rule in self._rules]
        for place, rule in enumerate(self._rules, 1):
            if problem := schema_problem(rule.arguments):
                raise ToolError(
                    f"The arguments of rule {place} of [[mcp.{server}.rules]] are {problem}.",
                    next_step="Correct them in remit.toml.",
                )

    def shows(self, identity: Identity, tool: str) -> bool:
        """Return True if the key could call the tool with some arguments.

        False if the server's list of tools lacks it, or if a rule denies it for all arguments
        before a rule that allows it or asks; True without a matching rule.

        Args:
            identity: identity of the key.
            tool: the server's name of the tool.
        """
        if self._admitted and tool not in self._admitted:
            return False
        for rule in self._rules:
            if _names(rule, identity, tool):
                if rule.effect != "deny":
                    return True
                if not rule.arguments:
                    return False
        return True

    def decide(self, identity: Identity, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        """Return the verdict of the first matching rule; without one the call is allowed.

        A tool that :meth:`shows` hides is denied. If rules that allow the tool exist and the
        arguments fit none of them, the call is denied. Arguments that cannot be checked are denied.

        Args:
            identity: identity of the key.
            tool: the server's name of the tool.
            arguments: the arguments of the call.
        """
        if not self.shows(identity, tool):
            return Verdict("deny", f"this key may not use {tool}.")
        missed = ""
        for place, rule in enumerate(self._rules, 1):
            if not _names(rule, identity, tool):
                continue
            try:
                problem = first_problem(rule.arguments, dict(arguments)) if rule.arguments else ""
            except (RecursionError, ValueError, OverflowError):
                return Verdict("deny", "its arguments cannot be checked.", place)
            if not problem:
                why = (
                    "a rule forbids the call with these arguments." if rule.effect == "deny" else ""
                )
                return Verdict(rule.effect, why, place, nano_of(rule.price_usd))
            if rule.effect != "deny":
                missed = missed or problem
        if missed:
            return Verdict("deny", f"these arguments are not allowed: {missed[:500]}.")
        return Verdict("allow")

    def count(self, verdict: Verdict, owner: str) -> None:
        """Count an allowed call of ``owner``.

        Args:
            verdict: verdict on the call; one without a rule is not counted.
            owner: name of the caller.

        Raises:
            CallerError: the rule's rate limit is reached.
        """
        if verdict.rule:
            self._rates[verdict.rule - 1].take(owner)


def _texts(schema: Any) -> Any:
    """Return a schema in which each ``pattern`` also requires a text, as JSON Schema does not.

    Schemas below ``not`` and similar keywords stay, because there the change would allow more.
    """
    if not isinstance(schema, dict):
        return schema
    made = {"type": "string", **schema} if isinstance(schema.get("pattern"), str) else {**schema}
    for keyword, stated in schema.items():
        if keyword == "properties" and isinstance(stated, dict):
            made[keyword] = {name: _texts(inner) for name, inner in stated.items()}
        elif keyword == "items":
            made[keyword] = _texts(stated)
        elif keyword in ("allOf", "anyOf") and isinstance(stated, list):
            made[keyword] = [_texts(inner) for inner in stated]
    return made


def _names(rule: McpRule, identity: Identity, tool: str) -> bool:
    return (not rule.keys or any(fnmatchcase(identity.name, one) for one in rule.keys)) and (
        not rule.tools or any(fnmatchcase(tool, one) for one in rule.tools)
    )
