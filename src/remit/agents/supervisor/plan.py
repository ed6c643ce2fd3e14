"""The plan of a turn: steps, their dependencies, and their treatment by a classification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from remit.agents.supervisor.quality_gate import check_criteria
from remit.agents.workorders import OrderHistory, WorkOrder, WorkOrderType
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.errors import ConfigError, InvalidInputError
from remit.kernel.installed_files import InstalledFiles

_MAX_LIMIT = 1_000_000_000
"""Largest limit in dollars or seconds; a larger number is a mistake."""

HANDOFF_STEPS = ("handoff", "handoff-2", "handoff-3")
"""Names of steps in which other agents continue a turn that was handed over to them."""

SUPERVISOR_STEPS = ("scope", "verify", "consolidate", "direct", *HANDOFF_STEPS)
"""Names of steps that the supervisor adds; plans must not use them."""


_RULES_FILE = "HO2/documents/classification.json"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A work order of a plan.

    Immutable.

    Attributes:
        name: name, unique in the plan.
        contract_id: contract of the order; empty for ``tool_call``.
        wo_type: kind of work.
        input: joins the turn's context as ``input_context`` of the order. A ``tool_call`` reads
            ``tool_id`` and ``arguments``, or ``tool_calls``, from it.
        tools: ids of the tools that the step may use.
        approve: ids of the tools among these that need a person's approval.
        depends_on: names of steps that must complete first. Their results become ``prior_results``.
            Steps without dependencies run concurrently.
        acceptance: criteria of the quality gate; see :mod:`remit.agents.supervisor.quality_gate`.
        token_budget: largest sum of tokens; None for ``[budget] work_order_tokens``.
        usd_budget: largest cost in US dollars; None for no limit.
        turn_limit: largest number of model calls; 0 for the configured limit.
        timeout_seconds: longest duration; 0 for the configured limit.
        output_schema: JSON Schema of the answer, in place of the contract's; None for the
            contract's.

    Raises:
        InvalidInputError: a limit is negative or of another type; dollars or seconds exceed
            1,000,000,000; or tokens or calls exceed 2**53 - 1.
    """

    name: str
    contract_id: str = ""
    wo_type: WorkOrderType = WorkOrderType.EXECUTE
    input: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    acceptance: Mapping[str, Any] = field(default_factory=dict)
    token_budget: int | None = None
    usd_budget: float | None = None
    turn_limit: int = 0
    timeout_seconds: float = 0.0
    output_schema: Mapping[str, Any] | None = None

    @classmethod
    def task(cls, name: str, instructions: str, *tools: str, after: tuple[str, ...] = ()) -> Self:
        """Return a step described in words, under PRC-EXECUTE-001.

        Args:
            name: name, unique in the plan.
            instructions: the task.
            tools: ids of the tools that the step may use.
            after: names of the steps whose results the task needs.
        """
        task = {"instructions": instructions}
        return cls(name, "PRC-EXECUTE-001", input=task, tools=tools, depends_on=after)

    def __post_init__(self) -> None:
        for name in ("token_budget", "turn_limit", "usd_budget", "timeout_seconds"):
            value = getattr(self, name)
            if value is None and name.endswith("_budget"):
                continue
            if name in ("token_budget", "turn_limit"):
                if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
                    raise InvalidInputError(
                        f"{name} is {value!r}; it must be an integer of at least 0."
                    )
            elif isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidInputError(f"{name} is {value!r}; it must be a number.")
            elif not 0 <= value <= _MAX_LIMIT:
                raise InvalidInputError(
                    f"{name} is {value!r}; it must be from 0 to {_MAX_LIMIT:,}."
                )


@dataclass(frozen=True, slots=True)
class Plan:
    """A list of steps, one of which gives the answer.

    Immutable: :meth:`within` and :meth:`giving` return changed copies.

    Attributes:
        steps: the steps.
        answer: name of the step that gives the answer; by default the last.

    Raises:
        InvalidInputError: there is no step; two steps have the same name; a name is reserved;
            ``answer`` names no step; a step depends on a missing step or, indirectly, on itself; or
            a criterion is refused by :func:`~remit.agents.supervisor.quality_gate.check_criteria`.
    """

    steps: tuple[PlanStep, ...]
    answer: str = ""

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        if not names:
            raise InvalidInputError("The plan has no step.")
        if len(set(names)) < len(names):
            raise InvalidInputError("Two steps of the plan have the same name.")
        if taken := sorted(set(names) & set(SUPERVISOR_STEPS)):
            raise InvalidInputError(f"The step name {taken[0]!r} is reserved for the supervisor.")
        if self.answer and self.answer not in names:
            raise InvalidInputError(
                f"The plan has no step {self.answer!r} to take the answer from."
            )
        for step in self.steps:
            if unknown := set(step.depends_on) - set(names):
                raise InvalidInputError(
                    f"The step {step.name!r} waits for {min(unknown)!r}, which is not in the plan."
                )
            check_criteria(step.acceptance, step.tools)
        done: set[str] = set()
        while ready := [s for s in self.steps if s.name not in done and done >= {*s.depends_on}]:
            done.update(step.name for step in ready)
        if circle := sorted(set(names) - done):
            raise InvalidInputError(f"The steps {', '.join(circle)} wait for each other.")

    def within(self, agent: PlanStep) -> Plan:
        """Return the plan limited to the agent's tools and approvals, with its instructions.

        The agent's ``input`` joins that of each step, whose own values win; a ``tool_call`` step
        keeps its input. Tools for which the agent needs approval need it in the plan too.

        Args:
            agent: the agent's own answering step.

        Raises:
            InvalidInputError: a step uses a tool that the agent may not use.
        """
        steps = []
        for step in self.steps:
            if strange := sorted(set(step.tools) - set(agent.tools)):
                raise InvalidInputError(
                    f"The step {step.name!r} uses {strange[0]!r}, which the agent may not use.",
                    next_step=f"The agent may use {', '.join(agent.tools) or 'no tools'}.",
                )
            needed = [tool_id for tool_id in agent.approve if tool_id in step.tools]
            given = step.input
            if step.wo_type is not WorkOrderType.TOOL_CALL:
                given = {**agent.input, **given}
            approve = tuple(dict.fromkeys([*step.approve, *needed]))
            steps.append(replace(step, approve=approve, input=given))
        return replace(self, steps=tuple(steps))

    def giving(self, schema: Mapping[str, Any]) -> Plan:
        """Return the plan with a JSON Schema for its answer, in place of the answering step's.

        Args:
            schema: JSON Schema of the answer.
        """
        answering = self.answering
        steps = tuple(
            replace(step, output_schema=schema) if step is answering else step
            for step in self.steps
        )
        return replace(self, steps=steps)

    @property
    def answering(self) -> PlanStep:
        """The step that gives the answer: the one that ``answer`` names, else the last."""
        if not self.answer:
            return self.steps[-1]
        return next(step for step in self.steps if step.name == self.answer)


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The input of a planner. Immutable.

    Attributes:
        message: the user's message.
        classification: classification of the message; None without one.
        assembled: the turns, threads and policies to show, as
            :func:`~remit.agents.supervisor.attention.choose` selected them.
        tools: ids of the agent's tools.
    """

    message: str
    classification: Mapping[str, Any] | None
    assembled: Mapping[str, Any]
    tools: Sequence[str]


def held_to(order: WorkOrder, agent: PlanStep) -> WorkOrder:
    """Return a recorded order limited to the tools and approvals that the agent has now.

    Tools that the agent has lost are removed; approvals that it needs now are added.

    Args:
        order: the order.
        agent: the agent's answering step.
    """
    limits = order.constraints
    tools = tuple(tool_id for tool_id in limits.tools_allowed if tool_id in agent.tools)
    wanted = (*limits.tools_requiring_approval, *agent.approve)
    approve = tuple(dict.fromkeys(tool_id for tool_id in wanted if tool_id in tools))
    limits = replace(limits, tools_allowed=tools, tools_requiring_approval=approve)
    return replace(order, constraints=limits)


def for_another_attempt(
    step: PlanStep,
    context: Mapping[str, Any],
    before: OrderHistory,
    repeatable: Callable[[str], bool],
) -> tuple[PlanStep, dict[str, Any]]:
    """Return a step and its context for another attempt, with earlier results of tools.

    A tool of which any call began, even without success, is offered again only if it may run twice.
    Its approval is dropped with it. If no call began, step and context are unchanged.

    Args:
        step: the step.
        context: context of the earlier attempt.
        before: entries of the earlier attempt.
        repeatable: returns True for a tool that may run twice; asked only about tools that the
            attempt began to use.

    Returns:
        The step, and a new context whose ``prior_results`` end with the results, as ``step``,
        ``wo_id`` and ``output``.

    Raises:
        LedgerError: the entries of the earlier attempt cannot be read.
    """
    if not (results := before.tool_results()):
        return step, dict(context)
    used = {str(result["tool_id"]) for result in results}
    tools = tuple(id_ for id_ in step.tools if id_ not in used or repeatable(id_))
    approve = tuple(id_ for id_ in step.approve if id_ in tools)
    prior = {
        "step": f"{step.name}, an earlier attempt",
        "wo_id": before.wo_id,
        "output": {"tool_results": results},
    }
    earlier = context.get("prior_results", ())
    context = {**context, "prior_results": [*earlier, prior]}
    return replace(step, tools=tools, approve=approve), context


Planner = Callable[[TurnContext], Plan | Awaitable[Plan]]
"""Makes the plan of a turn."""


class Treatment(BaseModel, extra="forbid", frozen=True):
    """The treatment of messages with a certain classification.

    Immutable, read from JSON; another key, or a value of another type, raises pydantic's
    ValidationError.

    Attributes:
        when: accepted values, keyed by label; every label must match.
        tools: True if the answer may use tools.
        note: text about the message for the model; empty for none.
    """

    when: Mapping[str, Sequence[str]]
    tools: bool = True
    note: str = ""

    def applied_to(self, step: PlanStep) -> PlanStep:
        """Return the answering step; without its tools if the treatment forbids them.

        The step keeps its tools if its acceptance demands one (``tools_used``). Otherwise the same
        step is returned.

        Args:
            step: the agent's answering step.
        """
        if self.tools or step.acceptance.get("tools_used"):
            return step
        return replace(step, tools=(), approve=())


class ClassificationRules(BaseModel, extra="forbid", frozen=True):
    """Treatments, of which the first match applies.

    Immutable, read from JSON; another key raises pydantic's ValidationError. :meth:`installed`
    reads the file of the root's packages.

    Attributes:
        rules: the treatments, in the order of their precedence.
    """

    rules: Sequence[Treatment] = ()

    @classmethod
    def installed(cls, files: InstalledFiles) -> Self:
        """Return the rules of a root's packages; no rules if no package installed the file.

        Args:
            files: the installed files of the root, from which ``HO2/documents/classification.json``
                is read.

        Raises:
            ConfigError: the file does not contain rules.
            ChangedFileError: the file is missing or differs from the installed content, or the
                table of owners cannot be read.
        """
        if _RULES_FILE not in files.paths("HO2/documents/"):
            return cls()
        try:
            return cls.model_validate_json(files.read(_RULES_FILE))
        except ValidationError as error:
            raise ConfigError(
                f"The classification rules are invalid: {error}",
                next_step=f"Correct {_RULES_FILE} in its package and install a new version of it.",
            ) from error

    def treatment(self, classification: Mapping[str, Any] | None) -> Treatment:
        """Return the treatment of a message; the default without a classification or match.

        The default allows tools and adds no note.

        Args:
            classification: values keyed by label; None without one.
        """
        labels = classification or {}
        for rule in self.rules:
            if all(labels.get(name) in values for name, values in rule.when.items()):
                return rule
        return Treatment(when={})
