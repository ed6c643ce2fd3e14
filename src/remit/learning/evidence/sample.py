"""One exchange with what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Sample", "Taint"]

Taint = Literal["", "fallback", "degradation", "erased"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One exchange with what came of it; text that has no value on record is empty.

    Attributes:
        exchange_id: id of the `EXCHANGE` entry.
        decision_id: of the router's decision (`DEC-…`), where one chose the model.
        turn_id: id of the `TURN_RECORDED` entry, where the exchange was part of a turn.
        model_id: the model that answered.
        route: the named route, where one chose the model.
        epoch: the policy epoch in force; 0 before the first adoption.
        propensity: probability with which this model was chosen; 1.0 without exploration.
        tools: ids of the tools that it called.
        cost_nano: cost in billionths of a US dollar; None where it is not known.
        latency_ms: milliseconds from sending to the end of the answer.
        failed: the exchange's outcome is not success.
        retried: another attempt followed this one.
        rejected: the quality gate rejected the work that this exchange was part of.
        repaired: its output did not fit what was asked for, and the model was asked again.
        corrected: the user's next message corrects the turn that it was part of.
        cancelled: the caller gave it up.
        tool_errors: how many of its calls of tools failed.
        failed_tools: ids of those tools.
        reward: mean of its feedback from 0 to 1, each party counting once; None without any.
        raters: who gave that feedback: user ids, key ids or names.
        judged: it is a judge's alone; how far that can be relied on, `read_judges` says.
        tainted: why no learner may use it; empty for a clean one.
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
