"""An exchange with its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Sample", "Taint"]

Taint = Literal["", "fallback", "degradation", "erased"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An exchange with its outcome; a text without a recorded value is empty.

    Attributes:
        exchange_id: id of the `EXCHANGE` entry.
        decision_id: id of the router's decision (`DEC-…`), if one chose the model.
        session_id: the session of the call.
        work_order_id: the work order of the call.
        turn_id: id of the `TURN_RECORDED` entry, if the exchange was part of a turn.
        agent_id: the agent that called.
        framework_id: the framework of the agent's package.
        package_id: the package that installed the contract at that time; empty without one.
        contract_id: the contract of the call.
        contract_version: its version.
        prompt_pack_id: the prompt pack of the prompt.
        model_id: the model that answered.
        provider_id: the provider of the model that answered.
        route: the named route, if one chose the model.
        key_id: id of the key of the caller.
        epoch: the policy epoch in force; 0 before the first adoption.
        propensity: probability with which this model was chosen; 1.0 without exploration.
        tools: ids of the called tools.
        cost_nano: cost in nano-dollars; None if unknown.
        latency_ms: milliseconds from sending to the end of the answer.
        failed: True unless the exchange's outcome is success.
        retried: True if another attempt followed.
        rejected: True if the quality gate rejected the work that the exchange was part of.
        repaired: True if the output did not fit and the model was asked again.
        corrected: True if the user's next message corrects the turn.
        cancelled: True if the caller cancelled the call.
        tool_errors: number of failed tool calls.
        failed_tools: ids of the failed tools.
        reward: mean of the feedback from 0 to 1, each party counting once; None without feedback.
        raters: the parties that gave the feedback: user ids, key ids or names.
        judged: True if only judges gave feedback; `read_judges` measures their reliability.
        tainted: the reason why no learner may use the sample; empty if it is clean.
        at: time of the exchange, ISO 8601 in UTC.
    """

    exchange_id: str
    decision_id: str = ""
    session_id: str = ""
    work_order_id: str = ""
    turn_id: str = ""
    agent_id: str = ""
    framework_id: str = ""
    package_id: str = ""
    contract_id: str = ""
    contract_version: str = ""
    prompt_pack_id: str = ""
    model_id: str = ""
    provider_id: str = ""
    route: str = ""
    key_id: str = ""
    epoch: int = 0
    propensity: float = 1.0
    tools: tuple[str, ...] = ()
    cost_nano: int | None = None
    latency_ms: int = 0
    failed: bool = False
    retried: bool = False
    rejected: bool = False
    repaired: bool = False
    corrected: bool = False
    cancelled: bool = False
    tool_errors: int = 0
    failed_tools: tuple[str, ...] = ()
    reward: float | None = None
    raters: tuple[str, ...] = ()
    judged: bool = False
    tainted: Taint = ""
    at: str = ""
