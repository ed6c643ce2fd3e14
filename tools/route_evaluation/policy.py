"""Ways of choosing a model, among them our own scoring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.routing import read_registration
from remit.routing.candidate import Candidate
from remit.routing.scores import ScoringFn, ScoringInputs, score_candidates, task_of
from remit.routing.weights import Weights
from tools.route_evaluation.errors import EvaluationError

__all__ = [
    "Policy", "preference_policies", "read_choices", "registered_policy", "scoring_policy", "sweep",
]  # fmt: skip

_PRICE_TO_ABILITY = (0, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 1024)
"""Weights of price that the frontier is drawn with, as multiples of the weight of ability."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A way of choosing.

    Attributes:
        name: its name in the report.
        choose: given the prompt, its task (empty: unknown), the models' ids and the prompt's id in
            the set, one of the models' ids. It sees neither qualities nor costs.
        family: policies of one family make one frontier; empty: none.
    """

    name: str
    choose: Callable[[str, str, Sequence[str], str], str]
    family: str = ""


def scoring_policy(
    candidates: Sequence[Candidate],
    weights: Weights,
    *,
    name: str = "scoring",
    family: str = "",
    preference: str = "",
    given_task: bool = False,
    scoring_fn: ScoringFn = score_candidates,
) -> Policy:
    """Our scoring, as :func:`remit.routing.scores.score_candidates` does it for real calls.

    Args:
        candidates: what is stated of the models; those of the set, no others.
        weights: the rules.
        name: see :class:`Policy`.
        family: likewise.
        preference: an operator preference of the rules; empty: none.
        given_task: whether the scoring is given the set's task; else it reads the task off the
            prompt, as it does when the model is ``auto``.
        scoring_fn: another scoring.
    """
    given = tuple(candidates)

    def choose(prompt: str, task: str, models: Sequence[str], row_id: str) -> str:
        inputs = ScoringInputs(
            prompt=prompt,
            task=task_of(task if given_task else ""),
            operator_preference=preference,
            candidates=given,
            weights=weights,
        )
        return scoring_fn(inputs).winner

    return Policy(name, choose, family)


def preference_policies(candidates: Sequence[Candidate], weights: Weights) -> list[Policy]:
    """One for each operator preference of the rules."""
    return [
        scoring_policy(candidates, weights, name=f"scoring, {name}", preference=name)
        for name in sorted(weights.preferences)
    ]


def sweep(
    candidates: Sequence[Candidate],
    weights: Weights,
    *,
    family: str = "scoring by weight of price",
    ratios: Sequence[float] = _PRICE_TO_ABILITY,
    given_task: bool = False,
) -> list[Policy]:
    """Our scoring with the weight of price going from nothing to all: the points of a frontier.

    Args:
        candidates: what is stated of the models.
        weights: the rules; all but their weight of price stays.
        family: what the frontier is called.
        ratios: weights of price as multiples of the rules' weight of ability.
        given_task: see :func:`scoring_policy`.
    """
    ability = float(weights.document["features"]["ability"])
    found = []
    for ratio in ratios:
        features = {**weights.document["features"], "cost": round(ability * ratio, 6)}
        document = {**weights.document, "features": features}
        if learned := weights.document.get("learned"):  # reward that a dollar is worth
            price = min(1_000_000.0, round(learned["price_weight"] * ratio, 6))
            document["learned"] = {**learned, "price_weight": price}
        rules = Weights.from_document(document, lambda _: weights.head)
        name = f"{family} {ratio:g}"
        found.append(scoring_policy(candidates, rules, name=name, family=family,
                                    given_task=given_task))  # fmt: skip
    return found


def read_choices(file: Path) -> dict[tuple[str, str], str]:
    """Return the registered models, keyed by the id and the SHA-256 of the prompt.

    Args:
        file: a registration, as `remit route evaluate --register` writes it. Its witnesses are not
            checked: `remit ledger verify --file` does.

    Raises:
        EvaluationError: the file cannot be read.
        LedgerFormatError: the choices are not the recorded ones.
    """
    try:
        rows = read_registration(file.read_bytes(), None, ()).extract.members["choices"]
    except OSError as error:
        raise EvaluationError(f"{file} cannot be read: {error.strerror}.") from error
    return {(row["id"], row["prompt"]): row["model"] for row in rows}


def registered_policy(choices: dict[tuple[str, str], str]) -> Policy:
    """Return the policy whose choices were registered before the answers.

    The policy removes each choice that it makes, and refuses a prompt without one
    (EvaluationError).

    Args:
        choices: the registered models, as :func:`read_choices` returns them.
    """

    def choose(prompt: str, task: str, models: Sequence[str], row_id: str) -> str:
        found = choices.pop((row_id, sha256_hex(prompt.encode())), None)
        if found is None:
            raise EvaluationError(
                f"No choice was registered for the prompt {prompt[:60]!r} with the id {row_id!r}.",
                next_step="A choice that is made after the answers are known does not count.",
            )
        return found

    return Policy("registered choices", choose)
