"""The author's choices of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any

from remit.agents import OutputType
from remit.agents.supervisor import Planner, PlanStep
from remit.kernel.budget_values import BudgetLimits, nano_of
from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import BudgetSettings, SupervisorSettings
from remit.ledger import require_plain_text

_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class AgentShape:
    """The author's choices of an agent; :meth:`session_limits` derives the limits of a session.

    Immutable, and checked when it is made.

    Attributes:
        agent_id: name of the agent in the record.
        agent_class: class of the agent, ``ADMIN`` or ``RESIDENT``.
        answer: the plan step with which the agent answers.
        output: type of the answers; ``None`` for text.
        supervisor: settings of the agent's turns.
        model: provider and model that answer; provider ``""`` names a route; ``None`` for the
            root's default.
        planner: plans the steps of each turn; ``None`` for one answering step.
        session_tokens: token limit of a session; ``None`` for the configured one.
        session_usd: limit of a session in US dollars; ``None`` for no limit of its own.
        package_id: the package that brought the agent; empty for an agent of a program.
        context_tokens: estimated tokens of earlier turns that a prompt may hold; ``None`` for the
            configured number.

    Raises:
        InvalidInputError: the id is no text that can be recorded, blank, or longer than 200
            characters; the planner cannot be called; a limit is invalid (:func:`check_limit`);
            ``max_retries`` is below 0; or ``context_tokens`` is below 1.
    """

    agent_id: str
    agent_class: str
    answer: PlanStep
    output: OutputType[Any] | None
    supervisor: SupervisorSettings
    model: tuple[str, str] | None = None
    planner: Planner | None = None
    session_tokens: int | None = None
    session_usd: float | None = None
    package_id: str = ""
    context_tokens: int | None = None

    def __post_init__(self) -> None:
        check_kind("agent_id", self.agent_id, str)
        if not self.agent_id.strip() or len(self.agent_id) > _LONGEST_ID:
            raise InvalidInputError(
                f"{self.agent_id[:_LONGEST_ID]!r} is not a valid agent id: an id has 1 to "
                f"{_LONGEST_ID} characters."
            )
        if self.planner is not None and not callable(self.planner):
            raise InvalidInputError(f"planner is {self.planner!r}; it must be a function.")
        for what, value in (("tokens", self.session_tokens), ("usd", self.session_usd)):
            check_limit(f"session_{what}", value)
        check_limit("order_tokens", self.answer.token_budget)
        retries = self.supervisor.max_retries
        if type(retries) is not int or retries < 0:
            raise InvalidInputError(f"max_retries is {retries!r}; it must be 0 or more.")
        most = self.context_tokens
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidInputError(f"context_tokens is {most!r}; it must be 1 or more.")

    def session_limits(
        self, tokens: int | None, usd: float | None, budget: BudgetSettings
    ) -> BudgetLimits:
        """Return the limits of a new session: the given ones, else the agent's or configured ones.

        The limit of model calls is always the configured one. A configured 0 is no limit.

        Args:
            tokens: token limit; None for the agent's, else the configured one.
            usd: limit in US dollars; None for the agent's, if any.
            budget: the configured limits.

        Raises:
            InvalidInputError: a limit is invalid, as for :func:`check_limit`.
        """
        check_limit("tokens", tokens)
        check_limit("usd", usd)
        most = tokens if tokens is not None else self.session_tokens
        limit_usd = usd if usd is not None else self.session_usd
        return BudgetLimits(
            tokens=(budget.session_tokens if most is None else most) or None,
            nano=None if limit_usd is None else nano_of(limit_usd),
            turns=budget.session_turns or None,
        )


def changed(supervisor: SupervisorSettings, **changes: Any) -> SupervisorSettings:
    """Return a copy of the settings of turns with an author's choices.

    Args:
        supervisor: the configured settings.
        changes: the choices by name; None keeps the configured value. Neither names nor values are
            checked.
    """
    return supervisor.model_copy(
        update={name: value for name, value in changes.items() if value is not None}
    )


def check_kind(name: str, value: Any, *kinds: type) -> None:
    """Raise InvalidInputError if an argument has none of the types ``kinds``, or is not plain text.

    Args:
        name: name of the argument, for the message.
        value: the argument.
        kinds: the accepted types.

    Raises:
        InvalidInputError: the type is wrong, or a text has characters that cannot be recorded.
    """
    if not isinstance(value, kinds):
        wanted = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise InvalidInputError(f"{name} is {value!r}; it must be {wanted}.")
    if isinstance(value, str):
        require_plain_text(name, value)


def check_limit(name: str, value: float | None) -> None:
    """Raise InvalidInputError if a limit of tokens or US dollars is invalid; None is no limit.

    In settings 0 tokens mean no limit, but a program that computes 0 means that nothing remains.

    Args:
        name: name of the limit; one that ends with ``tokens`` takes whole numbers.
        value: the limit.

    Raises:
        InvalidInputError: tokens are not an integer of at least 1, dollars are negative or no
            number, or either is 10¹⁵ or more.
    """
    if value is None:
        return
    if name.endswith("tokens"):
        if type(value) is not int or not 0 < value < 1e15:
            raise InvalidInputError(
                f"{name} is {value!r}; it must be an integer of at least 1.",
                next_step="Omit it to use the configured limit.",
            )
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise InvalidInputError(f"{name} is {value!r}; it must be a number of at least 0.")
