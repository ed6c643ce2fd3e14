"""Graders for a route's prompts: references, tests, code, judges and schemas."""

from __future__ import annotations

import importlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remit.contracts import ContractError
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import text_of
from remit.learning import (
    Source,
    feedback_on,
    give_feedback,
    grade_by_reference,
    is_own_call,
    is_reference,
    is_whole,
    matches_schema,
    prompt_key,
)
from remit.learning.judges import Judge
from remit.learning.routes import CALIBRATOR, GradedPrompt
from remit.routing import JUDGE_CONTRACT

if TYPE_CHECKING:
    from remit.ledger import LedgerClient, LedgerEntry
    from remit.routing import Candidate
    from remit.runtime.runtime import Runtime

Score = Callable[[GradedPrompt, str, str], float | None]
"""Grades an answer of a model to a prompt, 0 to 1; ``None`` if it cannot."""

FIRST = 2
"""Prompts, or answers, after which a grader that never graded in this root counts as broken."""
IN_A_ROW = 20
"""Prompts, or answers of a judge, after which any grader that gave no grade counts as broken."""

_TEST_S = 60.0
_LATEST = 20_000
"""Exchanges that are read for prompts; older ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graders:
    """Graders and prompts that a caller gives.

    Immutable.

    Of several graders, the first that fits a prompt is used; see :func:`find_prompts`.

    Attributes:
        references: right answers by exchange id.
        prompts: prompts to ask in addition to recorded ones, each with its right answer or "".
        test: grades an answer to a prompt; see :func:`command_test`.
        code: grades an answer to a prompt; see :func:`load_grader`. Ignored if there is a ``test``.
        schema: JSON Schema of all answers; ``None`` for the output schemas of contracts.
        judge: provider and model of a judge; ``None`` for the latest that graded here, if any.
    """

    references: Mapping[str, str] = field(default_factory=dict)
    prompts: Sequence[tuple[Any, str]] = ()
    test: Callable[[str, str], float | None] | None = None
    code: Callable[[str, str], float | None] | None = None
    schema: Mapping[str, Any] | None = None
    judge: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """A way to grade answers.

    Immutable.

    Attributes:
        name: ``reference``, ``test``, ``code``, ``schema`` or ``judge``.
        source: the kind of the grades in the ledger.
        grade: takes the prompt, the model and the answer, and returns 0 to 1, or ``None`` without a
            grade; ``None`` for a judge, which grades recorded answers.
        judge: provider and model of a judge; two empty texts for other graders.
    """

    name: str
    source: Source
    grade: Score | None
    judge: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Found:
    """A prompt that lacks graded answers.

    Immutable.

    Attributes:
        prompt: the prompt, with the grades that exist.
        answers: recorded answers without a grade: exchange id by model.
        contract_id: contract of the recorded call; may be empty.
        reference: the right answer; empty if unknown.
    """

    prompt: GradedPrompt
    answers: Mapping[str, str]
    contract_id: str = ""
    reference: str = ""


def find_prompts(
    runtime: Runtime,
    candidates: Sequence[Candidate],
    graded: Sequence[GradedPrompt],
    right: Mapping[str, str],
    given: Graders,
) -> tuple[list[tuple[Grader, list[Found]]], int]:
    """Return prompts that lack graded answers, grouped by grader, and the number without a grader.

    The first grader that fits a prompt grades all its answers: a reference, a test, code, a given
    schema, a given judge, the schema of the prompt's contract, and the latest judge that graded in
    this root. Prompts with a schema have a group for each contract. In a group, prompts that lack
    the fewest recorded answers come first.

    Prompts come from the successful calls among the latest 20,000 exchanges, calibration included.
    Other calls of learning, calls of judges, answers of fallbacks or from the answer cache, and
    erased prompts or answers are left out. Nothing is written, graded or sent.

    Args:
        runtime: the open root.
        candidates: the route's models.
        graded: prompts with graded answers of these models.
        right: right answers by exchange id.
        given: graders and prompts of the caller.

    Raises:
        ContractError: a contract's file is not valid.
        LedgerError: the ledger cannot be read.
    """
    names = {one.model_id for one in candidates}
    prompts = _recorded(runtime, candidates, graded, {**right, **given.references})
    for prompt, reference in given.prompts:
        known = prompts.get(prompt_key(prompt))
        one = known or Found(GradedPrompt("", prompt, "", "", {}, {}), {})
        prompts[prompt_key(prompt)] = Found(
            one.prompt, one.answers, one.contract_id, reference or one.reference
        )
    references: dict[str, str] = {key: one.reference for key, one in prompts.items()}
    judge = given.judge or _latest_judge(runtime)
    by_name: dict[str, Grader] = {}
    groups: dict[str, list[Found]] = {}
    ungraded = 0
    for one in prompts.values():
        if one.prompt.rewards.keys() >= names:
            continue
        found = _grader(runtime, one, given, judge, references)
        if found is None:
            ungraded += 1
            continue
        key = f"{found.name} {one.contract_id if found.name == 'schema' else ''}"
        by_name.setdefault(key, found)
        groups.setdefault(key, []).append(one)
    for known_prompts in groups.values():
        known_prompts.sort(key=lambda one: -len(one.prompt.rewards) - len(one.answers))
    return [(by_name[key], groups[key]) for key in groups], ungraded


def command_test(command: str) -> Callable[[str, str], float | None]:
    """Return a test that runs a program for each answer.

    The program reads ``{"prompt": …, "answer": …}`` as JSON on its standard input. Exit status 0
    means right (1.0) and 1 wrong (0.0). With any other status, after 60 seconds, or if the program
    cannot be run, the test returns ``None``, which is no grade. Each call of the test blocks.
    Its output is discarded.

    Args:
        command: the command line, split as a shell splits words; no shell is run.

    Raises:
        InvalidInputError: the command is empty, cannot be split, or names no program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidInputError(f"The test {command!r} cannot be read: {error}.") from error
    if not words or shutil.which(words[0]) is None:
        raise InvalidInputError(
            f"The test {words[0] if words else ''} is not found.",
            next_step="Give a runnable command: `remit route learn --test 'python test.py'`.",
        )

    def test(prompt: str, answer: str) -> float | None:
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own command
                words, input=json.dumps({"prompt": prompt, "answer": answer}).encode(),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_TEST_S, check=False,
            )  # fmt: skip
        except (subprocess.TimeoutExpired, OSError):
            return None
        return {0: 1.0, 1: 0.0}.get(done.returncode)

    return test


def load_grader(place: str) -> Callable[[str, str], float | None]:
    """Return a Python function that grades answers.

    The module is imported, and the working directory is added to ``sys.path``. An exception of the
    function, also ``SystemExit``, and a value outside of 0 to 1 give ``None``, which is no grade.
    Another error of the module than ImportError, AttributeError and ValueError is raised unchanged.

    Args:
        place: ``module:function``. The function takes prompt and answer as texts, and returns a
            number from 0 to 1, a truth value, or ``None``.

    Raises:
        InvalidInputError: there is no such function in the module, or the import fails.
    """
    module, _, name = place.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"{place!r} cannot be imported: {error}.",
            next_step="Write module:function, and run the command in the module's directory.",
        ) from error
    if not callable(function):
        raise InvalidInputError(
            f"{place!r} is not a function.", next_step="Name a function of prompt and answer."
        )

    def grade(prompt: str, answer: str) -> float | None:
        try:
            score = function(prompt, answer)
        except (Exception, SystemExit):  # noqa: BLE001 - a grader that fails gives no grade
            return None
        known = isinstance(score, bool | int | float) and 0 <= score <= 1
        return float(score) if known else None

    return grade


def _grader(
    runtime: Runtime,
    one: Found,
    given: Graders,
    judge: tuple[str, str] | None,
    references: Mapping[str, str],
) -> Grader | None:
    if one.reference:

        def by_reference(prompt: GradedPrompt, _: str, answer: str) -> float:
            return float(is_reference(answer, references[prompt_key(prompt.prompt)]))

        return Grader(name="reference", source="reference", grade=by_reference)
    function = given.test or given.code
    if function is not None:

        def by_function(prompt: GradedPrompt, _: str, answer: str) -> float | None:
            return function(_text(prompt.prompt), answer)

        if given.test:
            return Grader(name="test", source="test", grade=by_function)
        return Grader(name="code", source="test", grade=by_function)
    schema = given.schema or (None if given.judge else _schema(runtime, one.contract_id))
    if schema is not None:

        def by_schema(_: GradedPrompt, __: str, answer: str) -> float:
            return float(matches_schema(answer, schema))

        return Grader(name="schema", source="schema", grade=by_schema)
    if judge is not None:
        return Grader(name="judge", source="judge", grade=None, judge=judge)
    return None


def _recorded(
    runtime: Runtime,
    candidates: Sequence[Candidate],
    graded: Sequence[GradedPrompt],
    right: Mapping[str, str],
) -> dict[str, Found]:
    """Return the latest recorded prompts by key, with their ungraded answers."""
    models = {one.provider_model: one.model_id for one in candidates}
    known = {prompt_key(one.prompt): one for one in graded}
    prompts: dict[str, Found] = {}
    answers: dict[str, dict[str, str]] = {}
    latest = runtime.ledger.query(event_type="EXCHANGE", order="desc", limit=_LATEST)
    for entry in latest:
        if not _is_usable(entry):
            continue
        prompt = entry.metadata["prompt"]
        key = prompt_key(prompt)
        one = known.get(key) or GradedPrompt(entry.id, prompt, "", "", {}, {})
        model = models.get(str(entry.metadata.get("model_id") or ""), "")
        if model and model not in one.rewards:
            answers.setdefault(key, {}).setdefault(model, entry.id)
        reference = right.get(entry.id, "")
        earlier = prompts.get(key)
        contract_id = str(entry.metadata.get("contract_id") or "")
        prompts[key] = Found(
            one if earlier is None else earlier.prompt,
            answers.setdefault(key, {}),
            contract_id if earlier is None else earlier.contract_id,
            (earlier.reference if earlier else "") or reference,
        )
    return prompts


def _is_usable(entry: LedgerEntry) -> bool:
    data = entry.metadata
    if is_own_call(data) and data.get("agent_id") != CALIBRATOR:
        return False
    return (
        "cached_from" not in data
        and data.get("outcome") == "success"
        and not data.get("fallback_from")
        and data.get("contract_id") != JUDGE_CONTRACT
        and is_whole(data.get("prompt"))
        and is_whole(data.get("response"))
    )


def _schema(runtime: Runtime, contract_id: str) -> Mapping[str, Any] | None:
    try:
        return runtime.contracts.load(contract_id).output_schema if contract_id else None
    except ContractError as error:
        if error.code != "contract_not_found":
            raise
        return None


def _latest_judge(runtime: Runtime) -> tuple[str, str] | None:
    """Return provider and model of the judge that graded last; ``None`` if none graded."""
    names = [one.by for one in feedback_on(runtime.ledger) if one.source == "judge"]
    provider, _, model = names[-1].rpartition(" ")[2].partition("/") if names else ("", "", "")
    return (provider, model) if model else None


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(text_of(message.get("content")) for message in prompt)


def grade_recorded(ledger: LedgerClient, references: Mapping[str, str], *, by: str) -> None:
    """Record a grade for each answer with a reference, unless a reference graded the answer.

    Missing entries, and exchanges without a text as answer, are skipped.

    Args:
        ledger: the ledger.
        references: right answers by exchange id.
        by: name of the grader, for the record.

    Raises:
        InvalidInputError: a right answer is empty, or ``by`` is empty or above 256 characters.
        ConflictError: an exchange has 100 grades of this grader already, or a part of it, such as
            its prompt, was erased. Grades before an error stay.
        LedgerError: the ledger cannot be read or written.
    """
    graded = {one.target_entry_id for one in feedback_on(ledger) if one.source == "reference"}
    for entry in ledger.read_many(references.keys() - graded):
        if isinstance(entry.metadata.get("response"), str):
            grade_by_reference(ledger, entry.id, references[entry.id], by=by)


def grade_recorded_by(
    runtime: Runtime, grader: Grader, waiting: Sequence[Found], usd: float, by: str
) -> tuple[int, float, str]:
    """Grade recorded answers that have no grade; record each grade as feedback.

    A judge is called for each answer, within the budget. The rewards of a prompt get a value, which
    need not be the grade, for each graded answer and each answer for which a function gave no
    grade, so that calibration leaves these answers out. Erased answers are skipped.

    Args:
        runtime: the open root.
        grader: the grader.
        waiting: prompts with their recorded answers.
        usd: budget of a judge in US dollars.
        by: name of the person who acts, for the record.

    Returns:
        The number of grades, their cost in US dollars, and how the grading ended: ``done``,
        ``budget`` (judges only), or ``grader``: a function was tried on 2 or more answers and has
        never graded in this root, or a judge gave no grade, as for :func:`judge_answers`.

    Raises:
        ContractError: the contract of the judge cannot be used.
        LedgerError: the ledger cannot be read or written.
    """
    ungraded = {
        entry_id: (one.prompt, model) for one in waiting for model, entry_id in one.answers.items()
    }
    if grader.grade is None:
        graded, cost, ended = judge_answers(runtime, grader, list(ungraded), usd)
        for prompt, model in map(ungraded.__getitem__, graded):
            prompt.rewards[model] = 0.0  # type: ignore[index]  # The ledger has the grade.
        return len(graded), cost, ended
    tried = count = 0
    for entry_id, (prompt, model) in ungraded.items():
        answer = runtime.ledger.read(entry_id).metadata.get("response")
        if not isinstance(answer, str):
            continue
        tried += 1
        score = grader.grade(prompt, model, answer)
        if score is not None:
            give_feedback(runtime.ledger, entry_id, score=score, source=grader.source, by=by)
            count += 1
        prompt.rewards[model] = score or 0.0  # type: ignore[index]  # Any value leaves it out.
    is_broken = tried >= FIRST and not has_graded(runtime, grader)
    return count, 0.0, "grader" if is_broken else "done"


def has_graded(runtime: Runtime, grader: Grader) -> bool:
    """Return True if the ledger has a grade of this judge, or of a function of this kind.

    Args:
        runtime: the open root.
        grader: the grader.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    name = " " + "/".join(grader.judge) if grader.grade is None else ""
    said = feedback_on(runtime.ledger)
    return any(one.source == grader.source and one.by.endswith(name) for one in said)


def judge_answers(
    runtime: Runtime, grader: Grader, exchange_ids: Sequence[str], usd: float
) -> tuple[Sequence[str], float, str]:
    """Have the judge grade answers; return the graded ones, the cost in US dollars and the end.

    The end is ``done``, ``budget``, or ``grader`` if the judge gave no grade in its first 2 calls,
    or 20 if it has graded in this root; then no further call is made. Answers that the judge cannot
    read, or judged before, cost nothing.

    Args:
        runtime: the open root.
        grader: a grader with a judge.
        exchange_ids: ids of the answers.
        usd: budget in US dollars.

    Raises:
        ContractError: the contract of the judge cannot be used.
        LedgerError: the ledger cannot be read or written.
    """
    judge = Judge(runtime.gateway, runtime.ledger, runtime.contracts, *grader.judge)
    tries = IN_A_ROW if has_graded(runtime, grader) else FIRST
    first = judge.run(exchange_ids, usd=max(0.0, usd), calls=tries)
    if first.calls < tries:
        return first.graded, first.usd, first.ended
    if not first.graded:
        return (), first.usd, "grader"
    rest = exchange_ids[first.passed_over + first.calls :]
    more = judge.run(rest, usd=max(0.0, usd - first.usd))
    return [*first.graded, *more.graded], first.usd + more.usd, more.ended


def right_answers(ledger: LedgerClient) -> dict[str, str]:
    """Return the correct answers by exchange id: answers with the latest reference grade 1.

    Later reference feedback replaces earlier, also if it has only a label. Erased and empty answers
    are left out.

    Args:
        ledger: the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    right: dict[str, str] = {}
    for one in feedback_on(ledger):
        if one.source != "reference" or one.target_type != "exchange":
            continue
        right.pop(one.target_entry_id, None)  # The latest grade counts.
        answer = ledger.read(one.target_entry_id).metadata.get("response")
        if one.score == 1 and isinstance(answer, str) and answer.strip():
            right[one.target_entry_id] = answer
    return right
